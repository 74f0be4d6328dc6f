"""A training loop with torch.compile: python train_compiled.py resnet|gpt2|fsdp2 [eager]"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))) + self.skip(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm_a(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_b(x))))


def resnet():
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks = [Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2), Residual(256, 512, 2)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).cuda()
    return model, torch.zeros(64, 3, 224, 224, device="cuda"), torch.zeros(64, dtype=torch.int64, device="cuda")


def gpt2():
    embed, blocks = nn.Embedding(50257, 768), [Block(768, 12) for _ in range(12)]
    model = nn.Sequential(embed, *blocks, nn.LayerNorm(768), nn.Linear(768, 50257, bias=False)).cuda()
    words = torch.zeros(4, 1024, dtype=torch.int64, device="cuda")
    return model, words, words


kind, eager = sys.argv[1], "eager" in sys.argv
model, batch, target = resnet() if kind == "resnet" else gpt2()
if kind == "fsdp2":
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl")
    for block in model[1:-2]:
        if not eager:
            block.compile()
        fully_shard(block)
    fully_shard(model)
compiled = model if eager or kind == "fsdp2" else torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    out = compiled(batch)
    F.cross_entropy(out.flatten(0, -2), target.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
