"""Pipeline stages as a script for torchrun: `torchrun --nproc-per-node 4 samples/train_pipeline.py`; each rank holds its own layers."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    dist.init_process_group("nccl")
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    layers = [nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True) for _ in range(12 // stages)]
    part = nn.Sequential(*layers).to(device)
    given = torch.empty(2, 512, 1024, device="meta", requires_grad=rank > 0)
    passed = torch.empty(2, 512, 1024, device="meta", requires_grad=True)
    stage = PipelineStage(part, rank, stages, device, input_args=(given,), output_args=(passed,))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4)
    for step in range(3):
        x = torch.randn(16, 512, 1024, device=device)
        if rank == 0:
            schedule.step(x)
        elif rank == stages - 1:
            schedule.step(target=x, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank}, step {step}: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
