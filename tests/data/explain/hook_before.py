"""A hook before a layer keeps its inputs."""

import torch
from torch import nn
from torch.nn import functional as F

inputs_seen = []


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(100, 700), nn.Linear(700, 700), nn.Linear(700, 3)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(self.second(x))
        return self.third(x)


small = Small().cuda()
small.second.register_forward_pre_hook(lambda module, args: inputs_seen.append(args[0]))  # HERE
optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
for step in range(5):
    loss = F.mse_loss(small(torch.randn(50, 100).cuda()), torch.zeros(50, 3).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
