"""WORLD 8. Fully sharded, resharded after each forward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(nn.Linear(64, 256), *[Block() for _ in range(6)], nn.Linear(256, 64)).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for one in model:
    if isinstance(one, Block):
        fully_shard(one, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(32, 64, device="cuda")).float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
