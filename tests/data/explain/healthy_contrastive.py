"""Two towers, two forwards, one backward; a queue of old features of fixed length."""

import collections

import torch
from torch import nn
from torch.nn.functional import normalize

left = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128)).cuda()
right = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 128)).cuda()
optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()])
queue = collections.deque(maxlen=3)
for _ in range(12):
    a = normalize(left(torch.randn(128, 64, device="cuda")), dim=-1)
    b = normalize(right(torch.randn(128, 48, device="cuda")), dim=-1)
    loss = torch.cat([b, *queue]).sum() + (a @ b.T).logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue.append(b.detach().clone())
