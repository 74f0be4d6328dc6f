"""Distillation: the teacher's forward records for a backward that never comes."""

import torch
from torch import nn
from torch.nn import functional as F


def tower(width, depth):
    layers = [nn.Linear(64, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 20))


teacher, student = tower(512, 6).cuda().eval(), tower(64, 1).cuda()
optimizer = torch.optim.AdamW(student.parameters())
for step in range(5):
    batch = torch.randn(128, 64, device="cuda")
    wanted = teacher(batch).softmax(-1).detach()  # HERE
    got = student(batch).log_softmax(-1)
    loss = F.kl_div(got, wanted, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
