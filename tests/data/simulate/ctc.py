"""Speech recognition: convolutions, a GRU, CTC."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.GELU(), nn.Conv2d(32, 32, 3, (2, 1), 1), nn.BatchNorm2d(32), nn.GELU())
        self.proj = nn.Linear(32 * 20, 256)
        self.gru = nn.GRU(256, 256, 2, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Linear(512, 29)

    def forward(self, x):
        x = self.conv(x)
        x = x.permute(0, 3, 1, 2).flatten(2)
        x, _ = self.gru(self.proj(x))
        return self.head(x)


torch.manual_seed(1)
model = Recogniser().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=10)
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
for step in range(3):
    spectrogram = torch.randn(8, 1, 80, 400).cuda(non_blocking=True)
    targets = torch.randint(1, 29, (8, 40)).cuda()
    lengths = torch.full((8,), 200, dtype=torch.long)
    target_lengths = torch.randint(20, 40, (8,), generator=torch.Generator().manual_seed(step))
    logits = model(spectrogram)
    log_probs = logits.log_softmax(2).transpose(0, 1)
    loss = criterion(log_probs, targets, lengths, target_lengths)
    mem(f"loss{step}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    mem(f"step{step}")
