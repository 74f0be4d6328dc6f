"""Results are remembered within the module for inputs that never come again."""

import torch
from torch import nn


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(300, 300))
        self.memory = {}

    def forward(self, x):
        normal = x / x.norm(dim=-1, keepdim=True)
        projected = normal @ self.weight
        self.memory[len(self.memory)] = projected  # HERE
        return projected.sum(-1)


model = Remembering().cuda()
with torch.no_grad():
    for _ in range(6):
        model(torch.randn(40, 300, device="cuda"))
