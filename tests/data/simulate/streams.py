"""Work on several streams: a prefetcher, events, record_stream, stream priorities."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Linear(1024, 1024).cuda()
low, high = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
copied = torch.cuda.Event()
batches = [torch.randn(256, 1024).pin_memory() for _ in range(6)]
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def fetch(batch):
    with torch.cuda.stream(low):
        x = batch.cuda(non_blocking=True)
        copied.record(low)
    return x


following = fetch(batches[0])
for i in range(len(batches)):
    torch.cuda.current_stream().wait_event(copied)
    x = following
    x.record_stream(torch.cuda.current_stream())
    if i + 1 < len(batches):
        following = fetch(batches[i + 1])
    out = model(x)
    high.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(high):
        extra = out.detach() * 2
        total = extra.sum()
        extra.record_stream(torch.cuda.default_stream())
    torch.cuda.current_stream().wait_stream(high)
    (out.square().mean() + total).backward()
    opt.step()
    opt.zero_grad()
    del x, out, extra, total
    torch.cuda.synchronize()
    mem(f"batch{i}")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
with torch.cuda.stream(low):
    parts = [torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda") for _ in range(3)]
end.record()
torch.cuda.synchronize()
start.elapsed_time(end)
mem("timed")
