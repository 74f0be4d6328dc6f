"""A student learns from a frozen teacher: KL divergence of softened scores beside the usual loss."""

import torch
import torch.nn.functional as F
from torch import nn


def tower(width, depth):
    layers = [nn.Linear(256, width)]
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.GELU(approximate="tanh"), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.Linear(width, 1000))


teacher, student = tower(2048, 4).half().cuda().eval(), tower(512, 2).cuda()
optimizer = torch.optim.Adamax(student.parameters(), lr=1e-3)
temperature = 4.0
for step in range(3):
    x, y = torch.randn(256, 256, device="cuda"), torch.randint(0, 1000, (256,), device="cuda")
    with torch.no_grad():
        soft = F.softmax(teacher(x.half()).float() / temperature, dim=-1)
    scores = student(x)
    loss = F.cross_entropy(scores, y) + temperature**2 * F.kl_div(F.log_softmax(scores / temperature, dim=-1), soft, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
