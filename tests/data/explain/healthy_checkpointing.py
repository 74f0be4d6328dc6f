"""Activations are made again in the backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


deep = Deep().cuda()
optimizer = torch.optim.AdamW(deep.parameters(), fused=True)
for _ in range(4):
    optimizer.zero_grad()
    deep(torch.randn(128, 256, device="cuda", requires_grad=True)).square().mean().backward()
    optimizer.step()
