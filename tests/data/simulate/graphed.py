"""make_graphed_callables for a part of a network."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


first = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
second = nn.Linear(64, 8).cuda()
opt = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=1e-3, capturable=True)
sample = torch.randn(32, 128, device="cuda")
first = torch.cuda.make_graphed_callables(first, (sample,))
mem("captured")
for step in range(3):
    opt.zero_grad(set_to_none=True)
    out = second(first(torch.randn(32, 128, device="cuda")))
    out.square().mean().backward()
    opt.step()
    mem(f"step{step}")
