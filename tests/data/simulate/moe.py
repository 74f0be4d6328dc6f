"""A mixture of experts with top-2 routing, and a VAE beside it."""
import torch
from torch import nn
import torch.nn.functional as F


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class MoE(nn.Module):
    def __init__(self, size, experts):
        super().__init__()
        self.gate = nn.Linear(size, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, size, 2 * size) * 0.02)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * size, size) * 0.02)
        self.experts = experts

    def forward(self, x):
        b, n, d = x.shape
        flat = x.view(-1, d)
        probs = self.gate(flat).softmax(-1)
        weight, index = probs.topk(2, -1)
        capacity = 2 * flat.shape[0] // self.experts
        mask = F.one_hot(index, self.experts)
        place = mask.view(-1, self.experts).cumsum(0).view_as(mask) * mask - 1
        keep = (place < capacity) & (place >= 0)
        slot = torch.where(keep, place, 0)
        dispatch = torch.zeros(flat.shape[0], self.experts, capacity, device=x.device).scatter_add(2, slot.amax(1)[:, :, None], keep.any(1).float()[:, :, None])
        inputs = torch.einsum("tec,td->ecd", dispatch, flat)
        out = torch.bmm(F.silu(torch.bmm(inputs, self.w1)), self.w2)
        combine = dispatch * torch.zeros_like(probs).scatter(1, index, weight)[:, :, None]
        aux = (probs.mean(0) * mask.float().mean((0, 1))).sum() * self.experts
        return torch.einsum("tec,ecd->td", combine, out).view(b, n, d), aux


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.m, self.v = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.d = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def forward(self, x):
        h = F.relu(self.e(x))
        mu, logvar = self.m(h), self.v(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.d(z), mu, logvar


model = MoE(128, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
for step in range(3):
    out, aux = model(torch.randn(4, 64, 128, device="cuda"))
    (out.square().mean() + 0.01 * aux).backward()
    opt.step()
    opt.zero_grad()
    mem(f"moe{step}")
vae = VAE().cuda()
opt = torch.optim.Adam(vae.parameters())
for step in range(3):
    x = torch.rand(128, 784).cuda()
    r, mu, logvar = vae(x)
    loss = F.binary_cross_entropy(r, x, reduction="sum") - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    opt.zero_grad()
    loss.backward()
    opt.step()
    mem(f"vae{step}")
