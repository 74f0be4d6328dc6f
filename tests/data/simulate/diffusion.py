"""A step of a diffusion UNet with attention and time embeddings, EMA, and a sampling loop."""
import copy
import math
import torch
from torch import nn
import torch.nn.functional as F


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


def embedding(t, size):
    freq = torch.exp(-math.log(10000) * torch.arange(size // 2, device=t.device) / (size // 2))
    args = t[:, None].float() * freq[None]
    return torch.cat([args.sin(), args.cos()], -1)


class Res(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
        self.t = nn.Linear(t, 2 * o)
        self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.t(F.silu(t))[:, :, None, None].chunk(2, 1)
        return self.skip(x) + self.c2(F.dropout(F.silu(self.n2(h) * (1 + scale) + shift), 0.1, self.training))


class Attend(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.qkv, self.o = nn.GroupNorm(8, c), nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.n(x).flatten(2)).view(b, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
        a = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h * w)
        return x + self.o(a).view(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.d1, self.d2 = Res(c, c, 4 * c), Res(c, 2 * c, 4 * c)
        self.down = nn.Conv2d(c, c, 3, 2, 1)
        self.mid, self.att = Res(2 * c, 2 * c, 4 * c), Attend(2 * c)
        self.u2, self.u1 = Res(4 * c, c, 4 * c), Res(2 * c, c, 4 * c)
        self.out = nn.Conv2d(c, 3, 3, padding=1)
        self.c = c

    def forward(self, x, t):
        t = self.time(embedding(t, self.c))
        a = self.d1(self.inp(x), t)
        b = self.d2(self.down(a), t)
        m = self.att(self.mid(b, t))
        u = self.u2(torch.cat([m, b], 1), t)
        u = F.interpolate(u, scale_factor=2, mode="nearest")
        return self.out(self.u1(torch.cat([u, a], 1), t))


model = UNet().cuda()
ema = copy.deepcopy(model).eval().requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), 1e-4)
betas = torch.linspace(1e-4, 0.02, 1000, device="cuda")
alphas = (1 - betas).cumprod(0)
scaler = torch.amp.GradScaler()
for step in range(3):
    x = torch.rand(8, 3, 32, 32).cuda() * 2 - 1
    t = torch.randint(0, 1000, (8,), device="cuda")
    noise = torch.randn_like(x)
    a = alphas[t][:, None, None, None]
    with torch.autocast("cuda", torch.float16):
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad(set_to_none=True)
    with torch.no_grad():
        for p, q in zip(model.parameters(), ema.parameters()):
            q.lerp_(p, 0.01)
    mem(f"step{step}")


@torch.no_grad()
def sample(n):
    x = torch.randn(n, 3, 32, 32, device="cuda")
    for i in reversed(range(0, 1000, 250)):
        t = torch.full((n,), i, device="cuda")
        e = ema(x, t)
        a, b = alphas[i], betas[i]
        x = (x - b / (1 - a).sqrt() * e) / (1 - b).sqrt()
        if i > 0:
            x = x + b.sqrt() * torch.randn_like(x)
    return x.clamp(-1, 1).cpu()


sample(4)
mem("sampled")
