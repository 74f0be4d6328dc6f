"""What programs do beside their loop: traced modules, profilers, modules that they write, comparisons, jagged tensors."""

import gc
import importlib.util
import multiprocessing
from pathlib import Path

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(64, 64, 64, device="cuda")


def profiled():
    with torch.profiler.profile(with_stack=True), torch.autograd.profiler.emit_nvtx(enabled=False), torch.cuda.nvtx.range("step"):
        net(x[0, :, :1].expand(64, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def written():
    Path("written.py").write_text("def twice(x):\n    return x + x\n")
    spec = importlib.util.spec_from_file_location("written", "written.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.twice(x)
    Path("written.py").unlink()


def inverse():
    window = torch.hann_window(400, device="cuda")
    torch.istft(torch.stft(torch.randn(2, 16000, device="cuda"), 400, 160, window=window, return_complex=True), 400, 160, window=window)


def pooled():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(abs, [-1, 2])


def sparse():
    places = torch.tensor([[0, 1, 1], [2, 0, 2]], device="cuda")
    (torch.sparse_coo_tensor(places, torch.ones(3, device="cuda"), (3, 3)) * 2).to_dense()


ways = {
    "traced": lambda: torch.jit.trace(net.eval(), x[0, :4].repeat(1, 4))(x[0, :8].repeat(1, 4)),
    "profiled": profiled,
    "written": written,
    "equal": lambda: (torch.equal(x, x + 1), torch.equal(x, x[0])),
    "rolled": lambda: torch.roll(x, shifts=(1, 1, 2), dims=(0, 1, 2)),
    "largest": lambda: (x.view(-1).topk(100000), x.flatten(1).topk(4000), x.quantile(0.5)),
    "stretched": lambda: torch.zeros(1, device="cuda").expand(1).clone().cpu(),
    "inverse": inverse,
    "pooled": pooled,
    "sparse": sparse,
    "jagged": lambda: nn.Linear(64, 8).cuda()(torch.nested.nested_tensor([x[0], x[1, :7]])),
    "plans": lambda: torch.backends.cuda.cufft_plan_cache.clear(),
}
for name, way in ways.items():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    way()
    gc.collect()
    print("MEM", name, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
