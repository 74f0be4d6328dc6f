"""Batches padded to the longest of their sequences, so that sizes change from step to step."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

random.seed(3)
torch.manual_seed(3)
sequences = [torch.randint(1, 2000, (random.randint(20, 300),)) for _ in range(48)]


def collate(items):
    return pad_sequence(items, batch_first=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2000, 192, padding_idx=0)
        self.position = nn.Embedding(512, 192)
        layer = nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(192, 5)

    def forward(self, tokens):
        hidden = self.embed(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        hidden = self.encoder(hidden)
        return self.head(hidden.mean(dim=1))


model = Classifier().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
loader = torch.utils.data.DataLoader(sequences, batch_size=8, collate_fn=collate)
for step, tokens in enumerate(loader):
    tokens = tokens.cuda()
    loss = nn.functional.cross_entropy(model(tokens), torch.zeros(len(tokens), dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("MEM", f"length{tokens.shape[1]}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
