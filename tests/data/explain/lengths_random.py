"""Batches are padded to their longest sentence, which is another one each time."""

import torch
from torch import nn


def batches(count):
    generator = torch.Generator().manual_seed(11)
    for at in range(count):
        longest = int(torch.randint(500, 1500, (1,), generator=generator)) + 600 * at
        yield torch.zeros(16, longest, dtype=torch.long)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 64)
        self.inner = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.tags = nn.Linear(64, 12)

    def forward(self, ids):
        hidden = self.words(ids)
        for one in self.inner:
            hidden = torch.tanh(one(hidden))
        return self.tags(hidden)


tagger = Tagger().cuda()
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.5)
for ids in batches(12):
    tokens = ids.cuda()  # HERE
    loss = tagger(tokens).float().logsumexp(-1).mean()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
