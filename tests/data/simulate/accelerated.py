"""The loop of the accelerate documentation."""

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(512, 512), torch.randn(512, 512))
loader = torch.utils.data.DataLoader(data, batch_size=64)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for step, (x, y) in enumerate(loader):
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
