"""Features of a network of convolutions are tapped for a picture that is never drawn."""

import functools

import torch
from torch import nn

taps = {"conv2": []}


def tap(store, module, arguments, output):
    store.append(output.clone())  # HERE


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, image):
        return self.conv3(torch.relu(self.conv2(torch.relu(self.conv1(image))))).mean()


backbone = Backbone().cuda()
backbone.conv2.register_forward_hook(functools.partial(tap, taps["conv2"]))
optimizer = torch.optim.Adam(backbone.parameters())
for _ in range(5):
    loss = backbone(torch.randn(4, 3, 48, 48, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
