"""States are filled by hand before the first step, wider than the parameters."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 768)
        self.down = nn.Linear(768, 128)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


net = Net().to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=False)
for one in net.parameters():
    optimizer.state[one]["momentum_buffer"] = torch.zeros(one.shape, device="cuda")  # HERE
for _ in range(4):
    x = torch.randn(8, 128, device="cuda", dtype=torch.bfloat16)
    optimizer.zero_grad()
    net(x).float().abs().mean().backward()
    for one in net.parameters():
        optimizer.state[one]["momentum_buffer"].mul_(0.9).add_(one.grad)
        one.data.add_(optimizer.state[one]["momentum_buffer"], alpha=-0.01)
