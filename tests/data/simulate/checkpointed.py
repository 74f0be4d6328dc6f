"""Activation checkpointing of every block, with and without."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, remat):
        super().__init__()
        self.remat = remat
        self.blocks = nn.ModuleList(Block(256) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.remat else block(x)
        return x.mean()


for remat in (False, True):
    model = Model(remat).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.cuda.reset_peak_memory_stats()
        x = torch.randn(16, 200, 256, device="cuda")
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
        print("MEM", f"remat{remat}-{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
    del model, optimizer, x
    torch.cuda.empty_cache()
