"""WORLD 8. Blocks stay whole from their forward to their backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(0)
dist.init_process_group("nccl")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


model = nn.Sequential(*[Block(256) for _ in range(6)]).cuda()
for block in model:
    fully_shard(block, reshard_after_forward=False)  # HERE
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(4, 256, device="cuda")).mean().backward()  # HERE
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
