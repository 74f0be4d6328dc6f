"""A recorder of activations is registered on some modules and never cleared."""

import torch
from torch import nn


class Recorder:
    def __init__(self):
        self.seen = {}

    def __call__(self, name):
        def hook(module, args, result):
            self.seen.setdefault(name, []).append(result)  # HERE

        return hook


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return x + self.out(weights @ v)


record = Recorder()
net = nn.Sequential(*[Attention(96) for _ in range(3)]).cuda()
net[1].out.register_forward_hook(record("second"))
net.eval()
with torch.no_grad():
    for _ in range(6):
        net(torch.randn(8, 64, 96, device="cuda"))
