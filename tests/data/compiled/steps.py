"""Optimizers whose steps are compiled, in ways of which each cuts them into other pieces; prints how often Dynamo compiled what."""

import sys

import torch
from torch import nn
from torch._dynamo.utils import counters

DEVICE, WAYS, COUNT = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])


class Whole(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                one.add_(one.grad, alpha=-self.rate(group, one))

    def rate(self, group, one):
        return group["lr"]


class Cut(Whole):
    """A value is read within the step."""

    def rate(self, group, one):
        return group["lr"] / (1 + one.grad.norm().item())


def steps(way, model):
    """The optimizer, and what makes a step."""
    compiled = lambda function, **more: torch.compile(function, backend="eager", **more)
    made = {"full": Whole, "cut": Cut}.get(way, lambda given: torch.optim.AdamW(given, foreach=True))(model.parameters())
    if way == "plain":
        return made, made.step
    if way == "full":
        return made, compiled(lambda: made.step(), fullgraph=True)
    if way == "scheduled":
        schedule = torch.optim.lr_scheduler.StepLR(made, 100)
        step = compiled(made.step)
        return made, lambda: (step(), schedule.step())
    if way == "clipped":
        def both():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            made.step()
        return made, compiled(both)
    if way == "scaled":
        scaler = torch.amp.GradScaler(DEVICE)
        made.step = compiled(made.step)
        scaler.scale(torch.zeros((), device=DEVICE))
        return made, lambda: (scaler.step(made), scaler.update())
    return made, compiled(made.step if way == "method" else lambda: made.step())


for way in WAYS:
    torch._dynamo.reset()
    counters.clear()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(DEVICE)
    optimizer, step = steps(way, model)
    for _ in range(COUNT):
        model(torch.ones(16, 64, device=DEVICE)).sum().backward()
        step()
        optimizer.zero_grad()
    breaks = sorted((cause.splitlines()[0], count) for cause, count in counters["graph_break"].items())
    print("counted", way, dict(counters["stats"]), breaks)
