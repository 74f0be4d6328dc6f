"""A checkpoint is loaded to the device and kept for the whole training."""

import io

import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(300, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 10))


stored = io.BytesIO()
torch.save({"model": build().state_dict(), "epoch": 3}, stored)
stored.seek(0)
checkpoint = torch.load(stored, map_location="cuda")  # HERE
model = build().cuda()
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(checkpoint["epoch"], 7):
    optimizer.zero_grad()
    model(torch.randn(20, 300, device="cuda")).mean().backward()
    optimizer.step()
