"""Sequence to sequence with GRUCell and LSTMCell, attention and teacher forcing."""
import random
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.cell, self.second = nn.GRUCell(64 + 128, 128), nn.LSTMCell(128, 128)
        self.out = nn.Linear(128, 1000)

    def forward(self, token, hidden, state, encoded):
        score = torch.bmm(encoded, hidden.unsqueeze(2)).softmax(1)
        context = (encoded * score).sum(1)
        hidden = self.cell(torch.cat([self.embed(token), context], 1), hidden)
        state = self.second(hidden, state)
        return self.out(state[0]), hidden, state


random.seed(0)
torch.manual_seed(0)
encoder, decoder = nn.GRU(64, 128, batch_first=True).cuda(), Decoder().cuda()
embed = nn.Embedding(1000, 64).cuda()
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *embed.parameters()])
for step in range(3):
    src, tgt = torch.randint(0, 1000, (16, 20)).cuda(), torch.randint(0, 1000, (16, 10)).cuda()
    encoded, hidden = encoder(embed(src))
    hidden, state, loss, token = hidden[0], None, 0, tgt[:, 0]
    for t in range(1, 10):
        logits, hidden, state = decoder(token, hidden, state, encoded)
        loss = loss + nn.functional.cross_entropy(logits, tgt[:, t])
        token = tgt[:, t] if random.random() < 0.5 else logits.argmax(1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    mem(f"step{step}")
