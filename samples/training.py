"""A training step for `irscope train-plan samples/training.py:build`: module, inputs, loss, optimizer."""

import torch
from torch import nn


def build():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(64 * 16 * 16, 10),
    )
    labels = torch.zeros(32, dtype=torch.long)

    def loss(scores):
        return nn.functional.cross_entropy(scores, labels.to(scores.device))

    return net, (torch.zeros(32, 3, 32, 32),), loss, lambda parameters: torch.optim.AdamW(parameters, fused=True)
