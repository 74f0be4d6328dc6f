"""A trainer keeps an average of its validation loss, which is a tensor with a history."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.RMSprop(self.model.parameters())
        self.average = torch.zeros((), device="cuda")

    def objective(self, size=256):
        sample = torch.randn(size, 100, device="cuda")
        return self.model(sample).square().mean()

    def fit(self, epochs):
        for _ in range(epochs):
            for _ in range(2):
                self.optimizer.zero_grad()
                self.objective().backward()
                self.optimizer.step()
            self.validate()

    def validate(self):
        loss = self.objective(512)  # HERE
        self.average = 0.9 * self.average + 0.1 * loss  # HERE


Trainer(nn.Sequential(nn.Linear(100, 300), nn.GELU(), nn.Linear(300, 300), nn.GELU(), nn.Linear(300, 1))).fit(6)
