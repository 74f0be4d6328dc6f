"""Fully sharded training as a script for torchrun: `torchrun --nproc-per-node 8 samples/train_fsdp2.py`."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, norm_first=True)
        model = nn.TransformerEncoder(layer, 16, enable_nested_tensor=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        x = torch.randn(4, 1024, 2048, device="cuda")
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
