"""A hook puts the outputs of a layer into a list."""

import torch
from torch import nn

kept = []


def keep(module, inputs, output):
    kept.append(output.detach())  # HERE


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).cuda()
model[2].register_forward_hook(keep)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(64, 64, device="cuda")).mean().backward()
    optimizer.step()
