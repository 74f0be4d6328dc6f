"""Graph networks: sparse matrices, scatter_reduce, attention over edges."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


torch.manual_seed(0)
n, e = 2000, 10000
edges = torch.randint(0, n, (2, e), device="cuda")
x, y = torch.randn(n, 64, device="cuda"), torch.randint(0, 7, (n,), device="cuda")
adj = torch.sparse_coo_tensor(edges, torch.ones(e, device="cuda"), (n, n))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 7)

    def forward(self, x):
        x = torch.relu(torch.sparse.mm(adj, self.a(x)))
        return torch.sparse.mm(adj, self.b(x))


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.att, self.out = nn.Linear(64, 128), nn.Linear(256, 1), nn.Linear(128, 7)

    def forward(self, x):
        h = self.w(x)
        src, dst = edges
        score = nn.functional.leaky_relu(self.att(torch.cat([h[src], h[dst]], 1)).squeeze(1), 0.2)
        most = torch.full((n,), -1e9, device="cuda").scatter_reduce(0, dst, score.detach(), "amax")
        w = (score - most[dst]).exp()
        total = torch.zeros(n, device="cuda").index_add(0, dst, w)
        out = torch.zeros(n, 128, device="cuda").index_add(0, dst, h[src] * (w / (total[dst] + 1e-9))[:, None])
        return self.out(nn.functional.elu(out))


for model in (GAT().cuda(), GCN().cuda()):
    opt = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4)
    for step in range(2):
        loss = nn.functional.cross_entropy(model(x)[:1500], y[:1500])
        opt.zero_grad()
        loss.backward()
        opt.step()
        mem(f"{type(model).__name__}{step}")
