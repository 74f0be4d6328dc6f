"""WORLD 8. A call behind the sharding turns it off for all modules."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
stack = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()
for one in stack:
    fully_shard(one)
fully_shard(stack)
stack.set_reshard_after_forward(False)  # HERE
optimizer = torch.optim.Adam(stack.parameters())
for _ in range(3):
    loss = stack(torch.randn(16, 512, device="cuda")).sum()  # HERE
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
