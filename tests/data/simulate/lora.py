"""Low-rank adapters written by hand around frozen bfloat16 linear layers."""

import math

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad = False
        self.a = nn.Parameter(torch.empty(rank, base.in_features, device=base.weight.device))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        low = (x.to(self.a.dtype) @ self.a.t()) @ self.b.t()
        return self.base(x) + (low * self.scale).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.norm(x)
        shape = (*h.shape[:2], 8, -1)
        q, k, v = (proj(h).view(shape).transpose(1, 2) for proj in (self.q, self.k, self.v))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(out.transpose(1, 2).reshape(x.shape))


model = nn.Sequential(nn.Embedding(4000, 512), *[Layer(512) for _ in range(4)], nn.Linear(512, 4000, bias=False)).to("cuda", torch.bfloat16)
for p in model.parameters():
    p.requires_grad = False
for layer in model:
    if isinstance(layer, Layer):
        layer.q, layer.v = LoRA(layer.q), LoRA(layer.v)
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable", sum(p.numel() for p in trainable), "of", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.AdamW(trainable, lr=1e-4)
for step in range(3):
    tokens = torch.randint(4000, (4, 257), device="cuda")
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).float().view(-1, 4000), tokens[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
