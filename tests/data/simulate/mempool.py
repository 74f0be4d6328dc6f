"""Memory of its own for a part of a program: MemPool."""
import torch


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    cache = [torch.zeros(4, 256, 1024, device="cuda") for _ in range(3)]
mem("pooled")
x = torch.randn(2048, 2048, device="cuda")
y = x @ x
mem("outside")
with torch.cuda.use_mem_pool(pool):
    more = torch.ones(1000, 1000, device="cuda")
    inner = torch.relu(y)
mem("again")
del cache
torch.cuda.empty_cache()
mem("freed")
print("STAT", pool.use_count(), len(pool.snapshot()), sum(s["total_size"] for s in pool.snapshot()))
del more, inner, pool
torch.cuda.empty_cache()
mem("gone")
