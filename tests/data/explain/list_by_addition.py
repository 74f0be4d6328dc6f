"""A tuple of results grows by addition."""

import torch
from torch import nn

scorer = nn.Bilinear(64, 64, 128).cuda()
scorer.requires_grad_(False)
results = ()
for part in range(6):
    left = torch.randn(256, 64, device="cuda")
    right = torch.randn(256, 64, device="cuda")
    scores = scorer(left, right)
    results = results + (scores,)  # HERE
print(len(results))
