"""Pictures of many sizes in turn."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sizes = [180, 212, 250, 290, 334, 380, 430, 486, 540, 600, 664, 730]
for size in sizes:
    picture = torch.randn(2, 3, size, size, device="cuda")  # HERE
    optimizer.zero_grad()
    net(picture).square().mean().backward()
    optimizer.step()
