"""Two optimizers in turn."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 784)).cuda()
critic = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).cuda()
make = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
judge = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
objective = nn.BCEWithLogitsLoss()
one, zero = torch.ones(64, 1, device="cuda"), torch.zeros(64, 1, device="cuda")
for _ in range(5):
    real = torch.randn(64, 784, device="cuda")
    fake = generator(torch.randn(64, 32, device="cuda"))
    judge.zero_grad()
    (objective(critic(real), one) + objective(critic(fake.detach()), zero)).backward()
    judge.step()
    make.zero_grad()
    objective(critic(fake), one).backward()
    make.step()
