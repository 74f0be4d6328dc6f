"""Gradients of four batches are summed before a step; mixed precision."""

import torch
from torch import nn

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 3, enable_nested_tensor=False).cuda()
head = nn.Linear(128, 100).cuda()
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4)
for step in range(12):
    tokens = torch.randn(4, 64, 128, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = head(model(tokens)).float().logsumexp(-1).mean() / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
