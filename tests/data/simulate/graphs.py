"""A whole training step in a CUDA graph, captured on a side stream and replayed."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Sequential(nn.Linear(256, 512), nn.Dropout(0.2), nn.ReLU(), nn.Linear(512, 10)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()
static_x, static_y = torch.randn(128, 256, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        opt.zero_grad(set_to_none=True)
        loss_fn(model(static_x), static_y).backward()
        opt.step()
torch.cuda.current_stream().wait_stream(side)
mem("warm")
graph = torch.cuda.CUDAGraph()
opt.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    static_pred = model(static_x)
    static_loss = loss_fn(static_pred, static_y)
    static_loss.backward()
    opt.step()
mem("captured")
for x, y in zip(torch.randn(4, 128, 256).cuda(), torch.randint(0, 10, (4, 128)).cuda()):
    static_x.copy_(x)
    static_y.copy_(y)
    graph.replay()
    mem("replayed")
second = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(second, pool=graph.pool()):
    out = model(static_x)
second.replay()
mem("shared_pool")
temporary = torch.randn(1024, 1024, device="cuda")
mem("outside")
del graph, second, static_pred, static_loss, out
torch.cuda.empty_cache()
mem("released")
