"""Weights from the host are moved to the device one by one, and the dictionary stays."""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width=400):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(5))

    def forward(self, x):
        for part in self.parts:
            x = torch.relu(part(x))
        return x


pretrained = Tower().state_dict()
weights = {}
for name, tensor in pretrained.items():
    weights[name] = tensor.to("cuda")  # HERE
tower = Tower().cuda()
tower.load_state_dict(weights)
optimizer = torch.optim.AdamW(tower.parameters(), lr=1e-3)
for _ in range(4):
    loss = tower(torch.randn(10, 400, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
