"""Mixed precision as the recipe has it: autocast to half, GradScaler, unscale before clipping."""

import torch
from torch import nn

batch, width = 256, 1024
net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, width)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cuda")
data = [torch.randn(batch, width, device="cuda") for _ in range(4)]
targets = [torch.randn(batch, width, device="cuda") for _ in range(4)]
loss_fn = nn.MSELoss().cuda()
for epoch in range(1):
    for i, (x, target) in enumerate(zip(data, targets)):
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            output = net(x)
            loss = loss_fn(output, target)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        print("MEM", f"step{i}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
