"""The backward keeps its graph, and a history of losses keeps it alive."""

import torch
from torch import nn

history = {"train": [], "steps": 0}
encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).cuda()
decoder = nn.Linear(64, 64).cuda()
everything = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.AdamW(everything, lr=1e-3)
for step in range(6):
    batch = torch.randn(16, 32, 64, device="cuda")
    rebuilt = decoder(encoder(batch))
    objective = (rebuilt - batch).abs().mean()  # HERE
    optimizer.zero_grad()
    objective.backward(retain_graph=True)
    optimizer.step()
    history["train"].append(objective)  # HERE
    history["steps"] += 1
