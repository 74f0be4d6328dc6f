"""A checkpoint is loaded to the host, copied and let go; the optimizer's states come with it."""

import io

import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(200, 800), nn.ReLU(), nn.Linear(800, 50))


old = build()
optimizer = torch.optim.Adam(old.parameters())
old(torch.randn(4, 200)).sum().backward()
optimizer.step()
stored = io.BytesIO()
torch.save({"model": old.state_dict(), "optimizer": optimizer.state_dict()}, stored)
stored.seek(0)
found = torch.load(stored, map_location="cpu")
model = build().cuda()
model.load_state_dict(found["model"])
optimizer = torch.optim.Adam(model.parameters())
optimizer.load_state_dict(found["optimizer"])
del found
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(64, 200, device="cuda")).mean().backward()
    optimizer.step()
