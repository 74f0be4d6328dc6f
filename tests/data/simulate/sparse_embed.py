"""word2vec with sparse gradients: SparseAdam for the tables, Adam for the rest."""
import torch
from torch import nn
import torch.nn.functional as F


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class SkipGram(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.center = nn.Embedding(vocabulary, size, sparse=True)
        self.context = nn.Embedding(vocabulary, size, sparse=True)
        self.scale = nn.Linear(size, size)

    def forward(self, center, context, negatives):
        c = self.scale(self.center(center))
        positive = F.logsigmoid((c * self.context(context)).sum(-1))
        negative = F.logsigmoid(-torch.bmm(self.context(negatives), c.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + negative).mean()


torch.manual_seed(0)
device = torch.device("cuda")
model = SkipGram(50000, 128).to(device)
sparse = torch.optim.SparseAdam([model.center.weight, model.context.weight], lr=1e-3)
dense = torch.optim.Adam(model.scale.parameters(), lr=1e-3)
for step in range(4):
    center = torch.randint(0, 50000, (512,), device=device)
    context = torch.randint(0, 50000, (512,), device=device)
    negatives = torch.randint(0, 50000, (512, 10), device=device)
    loss = model(center, context, negatives)
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    mem(f"backward{step}")
    sparse.step()
    dense.step()
    mem(f"step{step}")

table = nn.Embedding(20000, 64, sparse=True, padding_idx=0).cuda()
sgd = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(2):
    sgd.zero_grad()
    table(torch.randint(0, 20000, (256, 20), device=device)).sum(1).square().mean().backward()
    sgd.step()
    mem(f"sgd{step}")
