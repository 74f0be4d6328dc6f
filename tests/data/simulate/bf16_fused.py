"""Everything in bfloat16, fused AdamW, tied weights, dropout, rotary positions, a loss that makes its own targets."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    @staticmethod
    def turn(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class GPT(nn.Module):
    def __init__(self, vocab=8000, width=384, heads=6, layers=4, length=256):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"n1": nn.RMSNorm(width), "att": Attention(width, heads), "n2": nn.RMSNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)})
            for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight
        angle = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):
        x = self.drop(self.embed(tokens))
        for block in self.blocks:
            x = x + block["att"](block["n1"](x), self.cos[: x.shape[1]], self.sin[: x.shape[1]])
            x = x + block["down"](F.gelu(block["up"](block["n2"](x))))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].float().reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


model = GPT().to(device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for step in range(4):
    torch.cuda.reset_peak_memory_stats()
    loss = model(torch.randint(0, 8000, (8, 256), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
