"""Losses are kept as numbers and predictions on the host."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, predictions = [], []
for _ in range(6):
    loss = model(torch.randn(100, 300, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
with torch.inference_mode():
    for _ in range(5):
        predictions.append(model(torch.randn(100, 300).cuda()).cpu())
print(torch.stack(losses).mean().item())
