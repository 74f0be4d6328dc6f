"""An optimizer of its own keeps its averages in float32 for a model in bfloat16."""

import torch
from torch import nn


class Adam32(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                if not state:
                    state["first"] = torch.zeros_like(one, dtype=torch.float32)  # HERE
                    state["second"] = torch.zeros_like(one, dtype=torch.float32)  # HERE
                gradient = one.grad.float()
                state["first"].lerp_(gradient, 0.1)
                state["second"].lerp_(gradient * gradient, 0.01)
                one.sub_((group["lr"] * state["first"] / (state["second"].sqrt() + 1e-8)).to(one.dtype))


model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda().bfloat16()
optimizer = Adam32(model.parameters())
for _ in range(4):
    out = model(torch.randn(32, 256, device="cuda", dtype=torch.bfloat16))
    optimizer.zero_grad()
    out.float().square().mean().backward()
    optimizer.step()  # HERE
