import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from stat_ import say
torch.backends.cuda.enable_cudnn_sdp(False)
static = "static" in sys.argv
dist.init_process_group("nccl")
rank, stages = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
part = nn.Sequential(*[nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True) for _ in range(2)]).to(device)
kw = {}
if static:
    given = torch.empty(2, 128, 256, device="meta", requires_grad=rank > 0)
    passed = torch.empty(2, 128, 256, device="meta", requires_grad=True)
    kw = dict(input_args=(given,), output_args=(passed,))
stage = PipelineStage(part, rank, stages, device, **kw)
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4)
for step in range(3):
    x = torch.randn(16, 128, 256, device=device)
    if rank == 0: schedule.step(x)
    elif rank == stages - 1: schedule.step(target=x, losses=[])
    else: schedule.step()
    optimizer.step()
    optimizer.zero_grad()
    say(step)
