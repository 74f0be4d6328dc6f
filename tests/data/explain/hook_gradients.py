"""A hook of the backward keeps gradients of activations."""

import torch
from torch import nn

flows = []
model = nn.Sequential(nn.Linear(128, 1024), nn.Sigmoid(), nn.Linear(1024, 128)).cuda()
model[1].register_full_backward_hook(lambda module, into, out_of: flows.append(out_of[0]))  # HERE
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(6):
    data = torch.randn(96, 128, device="cuda")
    optimizer.zero_grad()
    (model(data) - data).square().mean().backward()  # HERE
    optimizer.step()
