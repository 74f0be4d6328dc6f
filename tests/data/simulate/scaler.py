"""fp16 with GradScaler: unscale, clip, accumulate; autocast with its cache; a custom autograd function under it."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Scaled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.LayerNorm(256)
        self.w = nn.Parameter(torch.ones(256))

    def forward(self, x):
        return self.n(Scaled.apply(self.b(torch.nn.functional.gelu(self.a(x))), self.w) + x)


model = nn.Sequential(*[Net() for _ in range(3)], nn.Linear(256, 10)).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(4):
    for micro in range(2):
        x, y = torch.randn(128, 256, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    mem(f"step{step}")
print("STAT", len(scaler.state_dict()))
