"""WORLD 4. An option says how layers are sharded, and it is wrong."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(128, 4, 512, dropout=0.0, batch_first=True)


class Model(nn.Module):
    def __init__(self, depth=5):
        super().__init__()
        self.enter = nn.Linear(40, 128)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.leave = nn.Linear(128, 40)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x)


def shard(model, options):
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, reshard_after_forward=False)  # HERE
    return model


def main():
    dist.init_process_group("nccl")
    model = shard(Model().cuda(), {"reshard_after_forward": False})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(2, 16, 40, device="cuda"))  # HERE
        out.pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
