"""A small convolutional network with Adam, a cosine schedule, and losses collected in a list."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, stride, 1)
        self.norm = nn.GroupNorm(8, outer)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)), inplace=True)


torch.manual_seed(0)
model = nn.Sequential(Block(3, 32, 1), Block(32, 64, 2), nn.MaxPool2d(2), Block(64, 128, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100))
model.cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
losses = []
for step in range(4):
    x = torch.randn(32, 3, 64, 64, device="cuda")
    y = torch.randint(0, 100, (32,), device="cuda")
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.detach())
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
print("mean loss", torch.stack(losses).mean().item())
