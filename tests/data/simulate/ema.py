"""An exponential moving average of the weights beside the model, evaluated every second step."""

import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.999):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.shadow.parameters(), model.parameters()):
            ours.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(nn.Linear(64, 512), *[Residual(512) for _ in range(3)], nn.Linear(512, 10)).cuda()
ema = EMA(model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)
for step in range(4):
    x, y = torch.randn(512, 64).cuda(), torch.randint(0, 10, (512,)).cuda()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    if step % 2:
        with torch.inference_mode():
            print("shadow", ema.shadow(x).argmax(-1).eq(y).float().mean().item())
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
