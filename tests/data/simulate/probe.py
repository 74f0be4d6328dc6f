"""Doubles the batch until the card is full, then takes half of the last one that fitted."""

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction(0.01)
model = nn.Sequential(nn.Linear(2048, 8192), nn.ReLU(), nn.Linear(8192, 2048)).cuda()
optimizer = torch.optim.Adam(model.parameters())


def attempt(batch):
    x = torch.randn(batch, 2048, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


batch = 1024
while True:
    try:
        attempt(batch)
    except torch.OutOfMemoryError as error:
        print("full at", batch, str(error).split(". ")[0])
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        break
    print("MEM", f"batch{batch}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
    batch *= 2
torch.cuda.reset_peak_memory_stats()
attempt(batch // 4)
print("MEM", "last", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
