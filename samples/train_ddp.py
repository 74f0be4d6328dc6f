"""Data-parallel training as a script for torchrun: `torchrun --nproc-per-node 8 samples/train_ddp.py`."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        x = torch.randn(8, 1024, 1024, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
