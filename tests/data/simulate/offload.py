"""Keeps optimizer states and a copy of the weights in pinned host memory, moves gradients there and weights back."""

import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)]).cuda()
host = [torch.empty(p.shape, pin_memory=True).copy_(p.detach()) for p in model.parameters()]
for h in host:
    h.requires_grad_()
optimizer = torch.optim.AdamW(host, lr=1e-3)
for step in range(3):
    x = torch.randn(512, 1024).pin_memory().to("cuda", non_blocking=True)
    loss = model(x).square().mean()
    loss.backward()
    for h, p in zip(host, model.parameters()):
        h.grad = p.grad.to("cpu")
        p.grad = None
    optimizer.step()
    with torch.no_grad():
        for h, p in zip(host, model.parameters()):
            p.copy_(h, non_blocking=True)
    torch.cuda.synchronize()
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
