"""All of it in bfloat16, states too."""

import torch
from torch import nn

model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 1000)).cuda().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    ids = torch.zeros(16, 64, dtype=torch.long, device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(ids).view(-1, 1000), ids.view(-1)).backward()
    optimizer.step()
