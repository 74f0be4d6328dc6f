"""WGAN with a gradient penalty, spectral norm and weight norm: double backward through convolutions."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


gen = nn.Sequential(nn.Linear(64, 128 * 8 * 8), nn.Unflatten(1, (128, 8, 8)), nn.BatchNorm2d(128), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64),
                    nn.ReLU(), weight_norm(nn.ConvTranspose2d(64, 3, 4, 2, 1)), nn.Tanh()).cuda()
critic = nn.Sequential(spectral_norm(nn.Conv2d(3, 32, 4, 2, 1)), nn.LeakyReLU(0.2), spectral_norm(nn.Conv2d(32, 64, 4, 2, 1)), nn.InstanceNorm2d(64), nn.LeakyReLU(0.2),
                       nn.Flatten(), nn.Linear(64 * 64, 1)).cuda()
g_opt, c_opt = torch.optim.Adam(gen.parameters(), 1e-4, (0.0, 0.9)), torch.optim.Adam(critic.parameters(), 1e-4, (0.0, 0.9))
for step in range(3):
    for _ in range(2):
        real = torch.randn(16, 3, 32, 32, device="cuda")
        fake = gen(torch.randn(16, 64, device="cuda")).detach()
        e = torch.rand(16, 1, 1, 1, device="cuda")
        mixed = (e * real + (1 - e) * fake).requires_grad_()
        g = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        loss = critic(fake).mean() - critic(real).mean() + 10 * (g.flatten(1).norm(2, 1) - 1).square().mean()
        c_opt.zero_grad()
        loss.backward()
        c_opt.step()
    mem(f"critic{step}")
    loss = -critic(gen(torch.randn(16, 64, device="cuda"))).mean()
    g_opt.zero_grad()
    loss.backward()
    g_opt.step()
    mem(f"generator{step}")
