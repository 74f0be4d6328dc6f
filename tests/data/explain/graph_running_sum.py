"""The sum of validation losses over an epoch holds the graph of each."""

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)])
        self.head = nn.Linear(width, 5)

    def forward(self, images):
        for one in self.convolutions:
            images = F.relu(one(images))
        return self.head(images.mean((2, 3)))


net = Classifier(24).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(2):
    for _ in range(3):
        images = torch.randn(8, 3, 32, 32, device="cuda")
        wanted = torch.zeros(8, dtype=torch.long, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(images), wanted).backward()
        optimizer.step()
    total = 0
    for _ in range(5):
        images = torch.randn(8, 3, 32, 32, device="cuda")
        loss = F.cross_entropy(net(images), wanted)  # HERE
        total += loss  # HERE
    print("validated", epoch)
