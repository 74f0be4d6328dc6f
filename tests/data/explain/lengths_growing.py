"""Sentences of all lengths: each is a little longer than what was there before."""

import random

import torch
from torch import nn

random.seed(3)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(14):
    length = 2600 + 640 * step + random.randrange(300)
    words = torch.randn(length, 256, device="cuda")  # HERE
    loss = model(words).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
