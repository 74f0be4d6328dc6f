"""Translation with nn.Transformer, as in the tutorial."""
import math
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Position(nn.Module):
    def __init__(self, size, dropout, most=500):
        super().__init__()
        den = torch.exp(-torch.arange(0, size, 2) * math.log(10000) / size)
        pos = torch.arange(0, most).reshape(most, 1)
        table = torch.zeros((most, size))
        table[:, 0::2] = torch.sin(pos * den)
        table[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", table.unsqueeze(-2))

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(0), :])


class Seq2Seq(nn.Module):
    def __init__(self, size=256, vocabulary=8000):
        super().__init__()
        self.transformer = nn.Transformer(size, 8, 3, 3, 512, 0.1)
        self.generator = nn.Linear(size, vocabulary)
        self.src = nn.Embedding(vocabulary, size)
        self.tgt = nn.Embedding(vocabulary, size)
        self.position = Position(size, 0.1)

    def forward(self, src, tgt, src_mask, tgt_mask, src_pad, tgt_pad):
        s, t = self.position(self.src(src)), self.position(self.tgt(tgt))
        return self.generator(self.transformer(s, t, src_mask, tgt_mask, None, src_pad, tgt_pad, src_pad))


DEVICE = "cuda"


def masks(src, tgt):
    tgt_mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[0], device=DEVICE)
    src_mask = torch.zeros((src.shape[0], src.shape[0]), device=DEVICE).type(torch.bool)
    return src_mask, tgt_mask, (src == 1).transpose(0, 1), (tgt == 1).transpose(0, 1)


torch.manual_seed(0)
model = Seq2Seq().to(DEVICE)
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
loss_fn = nn.CrossEntropyLoss(ignore_index=1, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
for step in range(3):
    src = torch.randint(2, 8000, (37, 16)).to(DEVICE)
    tgt = torch.randint(2, 8000, (41, 16)).to(DEVICE)
    tgt_in = tgt[:-1, :]
    logits = model(src, tgt_in, *masks(src, tgt_in))
    optimizer.zero_grad()
    loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt[1:, :].reshape(-1))
    loss.backward()
    optimizer.step()
    mem(f"step{step}")
model.eval()
with torch.no_grad():
    logits = model(src, tgt_in, *masks(src, tgt_in))
    mem("eval")
    memory = model.transformer.encoder(model.position(model.src(src)), masks(src, tgt_in)[0])
    ys = torch.ones(1, 16).fill_(2).type(torch.long).to(DEVICE)
    for i in range(5):
        mask = nn.Transformer.generate_square_subsequent_mask(ys.size(0), device=DEVICE).type(torch.bool)
        out = model.transformer.decoder(model.position(model.tgt(ys)), memory, mask).transpose(0, 1)
        _, word = torch.max(model.generator(out[:, -1]), dim=1)
        ys = torch.cat([ys, word[None]], dim=0)
    mem("greedy")
