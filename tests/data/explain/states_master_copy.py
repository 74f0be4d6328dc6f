"""A second set of the parameters in float32, beside those in half precision."""

import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(384, 384, bias=False) for _ in range(4)]).cuda().half()
master = [one.detach().clone().float().requires_grad_() for one in model.parameters()]  # HERE
optimizer = torch.optim.SGD(master, lr=0.1)
for step in range(4):
    model.zero_grad()
    model(torch.randn(16, 384, device="cuda", dtype=torch.half)).float().mean().backward()
    for own, half in zip(master, model.parameters()):
        own.grad = half.grad.float()
    optimizer.step()
    with torch.no_grad():
        for own, half in zip(master, model.parameters()):
            half.copy_(own)
