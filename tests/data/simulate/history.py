"""The history of memory as snapshots have it."""
import pickle
import tempfile
from pathlib import Path

import torch
from torch import nn

first = torch.zeros(1000, device="cuda")
torch.cuda.memory._record_memory_history(max_entries=100000)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    opt.step()
    opt.zero_grad()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    found = pickle.loads(path.read_bytes())
torch.cuda.memory._record_memory_history(enabled=None)
print("STAT", len(found["segments"]), sum(one["total_size"] for one in found["segments"]), sum(len(one["blocks"]) for one in found["segments"]))
trace = found["device_traces"][0]
places = {one["address"] for one in found["segments"]}
for action in ("alloc", "free_requested", "free_completed", "segment_alloc"):
    entries = [one for one in trace if one["action"] == action]
    print("STAT", action, len(entries), sum(one["size"] for one in entries), {one["stream"] for one in entries})
print("STAT", all(one["addr"] in places for one in trace if one["action"] == "segment_alloc"))
print("STAT", [one["size"] for one in trace if one["action"] == "alloc"][:30])
print("STAT", len(torch.cuda.memory._snapshot()["device_traces"][0]))
