import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, CPUOffloadPolicy
from stat_ import say
torch.backends.cuda.enable_cudnn_sdp(False)
kind = sys.argv[1] if len(sys.argv) > 1 else "mixed"
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
kw = {}
if kind == "mixed":
    kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
if kind == "zero2":
    kw = dict(reshard_after_forward=False)
for block in model.layers:
    fully_shard(block, mesh=mesh, **kw)
fully_shard(model, mesh=mesh, **kw)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4) if kind != "f32" else torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
for step in range(3):
    x = torch.randn(4, 256, 512, device="cuda")
    loss = model(x).float().square().mean()
    loss.backward()
    if kind == "f32": torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    say(step)
