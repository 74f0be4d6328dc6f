"""Gradients of each step are cloned for statistics that nobody takes."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(200, 400), nn.Tanh(), nn.Linear(400, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
trail = []


def remember(parameters):
    trail.append([one.grad.clone() for one in parameters])  # HERE


for step in range(5):
    loss = model(torch.randn(32, 200).cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    remember(model.parameters())
    optimizer.step()
