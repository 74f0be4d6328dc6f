"""What is made beside the model in each step is put into a list and never let go."""

import torch
from torch import nn

model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = []
for step in range(6):
    mask = torch.rand(512, 512, device="cuda") > 0.5  # HERE
    seen.append(mask)  # HERE
    out = model(torch.randn(64, 512, device="cuda"))
    optimizer.zero_grad()
    (out * mask[:64]).mean().backward()
    optimizer.step()
