"""Activation checkpointing, both kinds, with dropout and attention; sequential; selective."""
import functools
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 8, dropout=0.1, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * size, size))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else CheckpointPolicy.PREFER_RECOMPUTE


torch.manual_seed(0)
blocks = nn.ModuleList(Block(256) for _ in range(4)).cuda()
opt = torch.optim.AdamW(blocks.parameters())
for kind in ("none", "reentrant", "plain", "selective", "sequential"):
    for step in range(2):
        torch.cuda.reset_peak_memory_stats()
        x = torch.randn(8, 128, 256, device="cuda", requires_grad=True)
        if kind == "sequential":
            x = checkpoint_sequential(blocks, 2, x, use_reentrant=False)
        else:
            for block in blocks:
                if kind == "none":
                    x = block(x)
                elif kind == "reentrant":
                    x = checkpoint(block, x, use_reentrant=True)
                elif kind == "plain":
                    x = checkpoint(block, x, use_reentrant=False)
                else:
                    x = checkpoint(block, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
        mem(f"{kind}_forward{step}")
        x.square().mean().backward()
        mem(f"{kind}_backward{step}")
        opt.step()
        opt.zero_grad()
        mem(f"{kind}_step{step}")
