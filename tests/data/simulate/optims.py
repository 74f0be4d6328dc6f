"""Every optimizer of torch, in every variant that it has."""
import inspect
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


def run(tag, kind, **options):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = nn.Sequential(nn.Linear(300, 400), nn.LayerNorm(400), nn.Linear(400, 100, bias=False)).cuda()
    parameters = [p for p in model.parameters() if p.dim() == 2] if kind is torch.optim.Muon else model.parameters()
    opt = kind(parameters, **options)
    for step in range(3):
        opt.zero_grad()
        model(torch.randn(32, 300, device="cuda")).square().mean().backward()
        opt.step()
        mem(f"{tag}{step}")


for name in ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "SGD", "Adafactor", "Muon"):
    kind = getattr(torch.optim, name)
    known = inspect.signature(kind).parameters
    needs = {"lr": 0.01}
    run(f"{name}_default", kind, **needs)
    for option in ("foreach", "fused", "capturable", "differentiable"):
        if option in known and option != "differentiable":
            run(f"{name}_{option}", kind, **needs, **{option: True})
    if "foreach" in known:
        run(f"{name}_single", kind, **needs, foreach=False)
    if "maximize" in known and "weight_decay" in known:
        run(f"{name}_maximize", kind, **needs, maximize=True, weight_decay=0.01)
run("Adam_amsgrad_fused", torch.optim.Adam, amsgrad=True, fused=True)
run("SGD_momentum_fused", torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)
run("Adam_tensor_lr", torch.optim.Adam, lr=torch.tensor(0.01), fused=True)
run("RMSprop_centered", torch.optim.RMSprop, centered=True, momentum=0.9)
