"""Distillation as it should be, with an average of the student's weights."""

import copy

import torch
from torch import nn

student = nn.Sequential(nn.Linear(100, 400), nn.GELU(), nn.Linear(400, 400), nn.GELU(), nn.Linear(400, 30)).cuda()
teacher = copy.deepcopy(student).requires_grad_(False).eval()
optimizer = torch.optim.AdamW(student.parameters())
for _ in range(5):
    batch = torch.randn(256, 100, device="cuda")
    with torch.no_grad():
        wanted = teacher(batch).softmax(-1)
    loss = nn.functional.cross_entropy(student(batch), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, now in zip(teacher.parameters(), student.parameters()):
            mean.lerp_(now, 0.01)
