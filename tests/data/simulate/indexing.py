"""topk, sort, cumsum, scatter, gather, index_put and their like, forward and backward."""
import torch


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


torch.manual_seed(0)
x = torch.randn(64, 1000, device="cuda", requires_grad=True)
i = torch.randint(0, 1000, (64, 32), device="cuda")
rows = torch.randint(0, 64, (128,), device="cuda")
cases = {
    "topk": lambda: x.topk(10).values,
    "sort": lambda: x.sort(dim=1, descending=True).values,
    "argsort": lambda: x.argsort(dim=0).float() + x,
    "cumsum": lambda: x.cumsum(1),
    "cumprod": lambda: x.cumprod(1),
    "logcumsumexp": lambda: x.logcumsumexp(1),
    "cummax": lambda: x.cummax(1).values,
    "gather": lambda: x.gather(1, i),
    "scatter": lambda: torch.zeros(64, 1000, device="cuda").scatter(1, i, x[:, :32]),
    "scatter_add": lambda: torch.zeros(64, 1000, device="cuda").scatter_add(1, i, x[:, :32]),
    "scatter_reduce": lambda: torch.zeros(64, 1000, device="cuda").scatter_reduce(1, i, x[:, :32], "amax"),
    "index_select": lambda: x.index_select(0, rows),
    "index": lambda: x[rows],
    "index_pair": lambda: x[rows, rows],
    "index_add": lambda: torch.zeros(64, 1000, device="cuda").index_add(0, rows, x.repeat(2, 1)),
    "index_put": lambda: torch.zeros(64, 1000, device="cuda").index_put((rows,), x.repeat(2, 1), accumulate=True),
    "index_copy": lambda: torch.zeros(64, 1000, device="cuda").index_copy(0, torch.arange(64, device="cuda"), x),
    "take_along": lambda: x.take_along_dim(i, 1),
    "take": lambda: x.take(i),
    "masked_fill": lambda: x.masked_fill(x > 0, 0.0),
    "where": lambda: torch.where(x > 0, x, x * 0.1),
    "roll": lambda: x.roll(3, 1),
    "flip": lambda: x.flip(0, 1),
    "tril": lambda: x.tril(),
    "median": lambda: x.median(1).values,
    "kthvalue": lambda: x.kthvalue(5, dim=1).values,
    "mode": lambda: x.mode(1).values,
    "quantile": lambda: x.quantile(0.9, dim=1),
    "std": lambda: x.std(1) + x.var(1),
    "logsumexp": lambda: x.logsumexp(1),
    "norm": lambda: x.norm(dim=1) + x.norm(p=1, dim=1),
    "prod": lambda: x.prod(1),
    "amax": lambda: x.amax(1) + x.max(1).values + x.aminmax(dim=1).min,
    "unfold": lambda: x.unfold(1, 10, 5),
    "repeat_interleave": lambda: x.repeat_interleave(3, dim=1),
    "diff": lambda: x.diff(dim=1),
    "searchsorted": lambda: torch.searchsorted(x.detach().sort(1).values, x.detach()).float() + x,
    "bucketize": lambda: torch.bucketize(x.detach(), torch.linspace(-1, 1, 20, device="cuda")).float() * x,
    "one_hot": lambda: torch.nn.functional.one_hot(i, 1000).float().sum(1) * x,
    "cross": lambda: torch.cross(x[:, :999].view(64, 333, 3), x[:, 1:].view(64, 333, 3), dim=2),
    "tensordot": lambda: torch.tensordot(x, x, dims=([1], [1])),
    "outer": lambda: torch.outer(x[0], x[1]),
    "renorm": lambda: x.renorm(2, 0, 1.0),
    "fmod": lambda: x.fmod(0.3) + x.remainder(0.2) + x.frac(),
    "erfinv": lambda: x.tanh().erfinv() + x.abs().lgamma() + x.sinc() + x.i0(),
    "clamp": lambda: x.clamp(-1, 1) + x.clip(min=0),
    "lerp": lambda: torch.lerp(x, x.detach(), 0.3) + torch.addcmul(x, x, x) + torch.addcdiv(x, x, x.exp()),
    "cov": lambda: torch.cov(x) + torch.corrcoef(x),
    "block_diag": lambda: torch.block_diag(x[:, :10], x[:, :20]),
    "cartesian": lambda: torch.cartesian_prod(x[0, :50], x[1, :50]),
    "histc": lambda: torch.histc(x.detach(), 100).sum() * x,
    "bincount": lambda: torch.bincount(rows, minlength=64).float() @ x,
    "multinomial": lambda: torch.multinomial(x.detach().softmax(1), 5).float().sum() * x,
    "rand": lambda: torch.bernoulli(x.sigmoid()) + torch.rand_like(x) * x + torch.normal(x.detach(), 1.0) + torch.randperm(1000, device="cuda"),
    "stack": lambda: torch.stack([x, x * 2], 1).chunk(2, 2)[0],
    "masked_scatter": lambda: torch.zeros(64, 1000, device="cuda").masked_scatter(torch.ones(64, 1000, dtype=torch.bool, device="cuda"), x),
}
for name, f in cases.items():
    torch.cuda.reset_peak_memory_stats()
    f().sum().backward()
    mem(name)
y = x.detach().clone()
y[rows] = 1.0
y[y > 0] = 0
y[:, ::2] += 1
y.index_fill_(0, rows, 2.0).put_(i, torch.ones(64, 32, device="cuda")).exponential_().uniform_().clamp_(0)
mem("inplace")
