"""Log probabilities of all episodes are kept, and with them what each forward saved."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 256)
        self.inner = nn.Linear(256, 256)
        self.choice = nn.Linear(256, 4)
        self.saved = []

    def forward(self, state):
        hidden = torch.tanh(self.body(state))
        hidden = torch.tanh(self.inner(hidden))
        return torch.log_softmax(self.choice(hidden), -1)


policy = Policy().to("cuda")
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(6):
    states = torch.randn(128, 16, device="cuda")
    chances = policy(states)
    taken = chances[:, 0].mean()  # HERE
    policy.saved.append(taken)  # HERE
    optimizer.zero_grad()
    (-taken).backward(retain_graph=True)
    optimizer.step()
