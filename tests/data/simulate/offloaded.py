"""Saved tensors on the host: save_on_cpu, hooks that compress, hooks that write to disk."""
import os
import tempfile
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU()) for _ in range(4)]).cuda()
opt = torch.optim.Adam(model.parameters())
for pin in (False, True):
    for step in range(2):
        x = torch.randn(256, 512, device="cuda")
        with save_on_cpu(pin_memory=pin):
            loss = model(x).square().mean()
        mem(f"forward_pin{pin}{step}")
        loss.backward()
        mem(f"backward_pin{pin}{step}")
        opt.step()
        opt.zero_grad()
with saved_tensors_hooks(lambda t: t.to(torch.bfloat16) if t.is_floating_point() else t, lambda t: t.float() if t.is_floating_point() else t):
    loss = model(x).square().mean()
mem("packed")
loss.backward()
mem("unpacked")


class OnDisk:
    def __init__(self, tensor):
        self.name = os.path.join(folder, str(id(self)))
        torch.save(tensor, self.name)

    def load(self):
        return torch.load(self.name)


with tempfile.TemporaryDirectory() as folder:
    with saved_tensors_hooks(OnDisk, lambda one: one.load()):
        loss = model(x).square().mean()
    mem("to_disk")
    loss.backward()
    mem("from_disk")
