"""Keys and values of every request stay in the module."""

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.keys, self.values = [], []

    def forward(self, x):
        q = self.q(x)
        key, value = self.k(x) * 0.5, self.v(x) * 1.0
        self.keys.append(key)  # HERE
        self.values.append(value)  # HERE
        return torch.softmax(q @ self.keys[-1].transpose(-1, -2), -1) @ self.values[-1]


attention = CachedAttention().cuda().eval()
with torch.no_grad():
    for prompt in range(6):
        attention(torch.randn(4, 32, 128, device="cuda"))
