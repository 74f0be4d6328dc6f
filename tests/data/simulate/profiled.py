"""torch.profiler with a schedule around the loop."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

model = nn.Sequential(nn.Linear(512, 2048), nn.SiLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2), record_shapes=True) as prof:
    for step in range(4):
        with record_function("load"):
            x = torch.randn(1024, 512).to("cuda")
        with record_function("forward"):
            loss = model(x).pow(2).mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()
        print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
print("events", len(prof.key_averages()) > 0)
