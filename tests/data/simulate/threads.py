"""Weights loaded by threads, streams and events by their generic names, and arithmetic with numbers."""

from concurrent.futures import ThreadPoolExecutor

import torch

weights = [torch.randn(256, 64 + 8 * number) for number in range(24)]
with ThreadPoolExecutor(4) as pool:
    loaded = list(pool.map(lambda one: one.to("cuda", torch.bfloat16), weights))
# One order of the copies or another: requested is the same.
print("MEM loaded", torch.cuda.memory_stats()["requested_bytes.all.current"])

side = torch.Stream()
with side:
    ahead = [one * 2 for one in loaded[:4]]
side.record_event().wait(torch.accelerator.current_stream())
torch.cuda.default_stream().wait_stream(side)
for one in ahead:
    one.record_stream(torch.cuda.default_stream())
done = torch.Event()
done.record(side)
done.synchronize()
side.wait_stream(torch.cuda.default_stream())
print("MEM side", torch.cuda.memory_stats()["requested_bytes.all.current"], side.query(), done.query())

beams = torch.arange(4096, device="cuda")
print("MEM numbers", [str((one).dtype) for one in (beams % 7, 7 % beams, beams % 2.5, beams // 3, beams == 3, beams << 1)])
print("MEM peak", torch.cuda.memory_stats()["requested_bytes.all.peak"])
