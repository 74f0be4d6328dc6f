import sys, torch
from torch import nn
import torch.nn.functional as F
from stat_ import say
torch.backends.cuda.enable_cudnn_sdp(False)
kind = sys.argv[1]
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
if kind == "gpt":
    model = nn.Sequential(nn.Embedding(5000, 256), *[Block(256, 4) for _ in range(2)], nn.LayerNorm(256), nn.Linear(256, 5000, bias=False)).cuda()
    make = lambda: torch.zeros(4, 256, dtype=torch.int64, device="cuda")
    loss_of = lambda out, x: F.cross_entropy(out.flatten(0, -2), x.flatten())
elif kind == "mlp":
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 256), nn.LayerNorm(256)).cuda()
    make = lambda: torch.randn(2048, 256, device="cuda")
    loss_of = lambda out, x: F.mse_loss(out, x)
else:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.LayerNorm(512)) for _ in range(4)]).cuda().bfloat16()
    make = lambda: torch.randn(1024, 512, device="cuda", dtype=torch.bfloat16)
    loss_of = lambda out, x: (out.float() - x.float()).abs().mean()
fast = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters()) if kind != "bf16" else torch.optim.SGD(model.parameters(), lr=.1)
for step in range(3):
    x = make()
    loss_of(fast(x), x).backward()
    optimizer.step()
    optimizer.zero_grad()
    say(step)
