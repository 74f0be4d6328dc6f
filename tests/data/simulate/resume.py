"""Train, save, build everything anew, resume from the file and go on."""

import os
import tempfile

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 256)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, steps, tag):
    for step in range(steps):
        x = torch.randn(300, 256, device="cuda")
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
model, optimizer = build()
train(model, optimizer, 2, "first")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}, path)
del model, optimizer
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
print("MEM", "emptied", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
checkpoint = torch.load(path, map_location="cpu")
model, optimizer = build()
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
print("resumed at", checkpoint["step"])
print("MEM", "loaded", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
del checkpoint
train(model, optimizer, 2, "resumed")
