"""Lengths vary, from a few buckets."""

import torch
from torch import nn

model = nn.LSTM(64, 128, num_layers=2, batch_first=True).cuda()
head = nn.Linear(128, 20).cuda()
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
for step in range(12):
    length = (32, 64, 96, 128)[step % 4]
    states, _ = model(torch.randn(16, length, 64, device="cuda"))
    loss = head(states).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
