"""Hooks that look and keep numbers; features of two layers are returned and used."""

import torch
from torch import nn

sizes = []


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (nn.Conv2d(a, b, 3, 2, 1) for a, b in ((3, 16), (16, 32), (32, 64)))

    def forward(self, x):
        first = torch.relu(self.one(x))
        second = torch.relu(self.two(first))
        return first, second, torch.relu(self.three(second))


net = Pyramid().cuda()
net.two.register_forward_hook(lambda module, args, out: sizes.append(out.shape))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(4):
    maps = net(torch.randn(4, 3, 64, 64, device="cuda"))
    optimizer.zero_grad()
    sum(one.mean() for one in maps).backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    for _ in range(4):
        maps = net(torch.randn(4, 3, 64, 64, device="cuda"))
