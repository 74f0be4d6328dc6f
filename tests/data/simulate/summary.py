"""Prints what torch.cuda says about memory along the way, the snapshot's own sums included."""

import torch
from torch import nn

torch.cuda.memory._record_memory_history(max_entries=10000)
print(torch.cuda.get_device_name(), torch.cuda.device_count() >= 1, torch.cuda.get_device_capability())
properties = torch.cuda.get_device_properties(0)
print("total", properties.total_memory > 2**30, properties.multi_processor_count)
model = nn.Linear(3000, 3000).cuda()
x = torch.randn(1000, 3000, device="cuda", requires_grad=True)
y = model(x).relu()
print("MEM", "forward", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
y.sum().backward()
print("MEM", "backward", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
del y
torch.cuda.empty_cache()
print("MEM", "emptied", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
stats = torch.cuda.memory_stats()
for key in ("segment.all.current", "active_bytes.all.peak", "inactive_split_bytes.all.current", "requested_bytes.all.peak", "num_alloc_retries", "allocation.all.allocated"):
    print("STAT", key, stats[key])
snapshot = torch.cuda.memory._snapshot()
print("STAT", "segments", len(snapshot["segments"]))
print("STAT", "segment bytes", sum(segment["total_size"] for segment in snapshot["segments"]))
print("STAT", "active bytes", sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"))
print("\n".join(line for line in torch.cuda.memory_summary(abbreviated=True).splitlines() if "Allocated memory" in line or "reserved" in line))
torch.cuda.reset_accumulated_memory_stats()
print("STAT", "after reset", torch.cuda.memory_stats()["allocated_bytes.all.allocated"])
