"""Out of memory is caught, the batch halved, until it fits."""
import gc
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


torch.cuda.set_per_process_memory_fraction(0.01)
model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
size = 65536
while size:
    try:
        opt.zero_grad()
        x = torch.randn(size, 4096, device="cuda")
        model(x).square().mean().backward()
        opt.step()
        break
    except torch.cuda.OutOfMemoryError as error:
        print("STAT", str(error).split(". GPU")[0])
        mem(f"refused{size}")
        x = None
        gc.collect()
        torch.cuda.empty_cache()
        size //= 2
mem(f"fits{size}")
print("STAT", torch.cuda.memory_stats()["num_ooms"], torch.cuda.memory_stats()["num_alloc_retries"])
