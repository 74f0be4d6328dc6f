"""A tagger: packed sequences through a bidirectional LSTM, then a GRU."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, 128, padding_idx=0)
        self.lstm = nn.LSTM(128, 256, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.gru = nn.GRU(512, 128, batch_first=True)
        self.out = nn.Linear(128, 17)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
        found, (h, c) = self.lstm(packed)
        found, _ = pad_packed_sequence(found, batch_first=True)
        found, _ = self.gru(found)
        return self.out(found)


torch.manual_seed(0)
model = Tagger().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
mem("model")
for step in range(3):
    lengths = torch.tensor([40, 12, 33, 25, 7, 39, 18, 30])
    texts = pad_sequence([torch.randint(1, 5000, (int(n),)) for n in lengths], batch_first=True).cuda()
    tags = torch.randint(0, 17, texts.shape).cuda()
    logits = model(texts, lengths)
    mem(f"forward{step}")
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    mem(f"step{step}")
model.eval()
with torch.no_grad():
    model(texts, lengths)
mem("eval")
rnn = nn.RNN(32, 64, 2).cuda()
out, h = rnn(torch.randn(20, 4, 32, device="cuda"))
out.sum().backward()
mem("rnn")
lstm = nn.LSTM(32, 64, proj_size=16).cuda()
out, h = lstm(torch.randn(20, 4, 32, device="cuda"))
out.sum().backward()
mem("projected")
