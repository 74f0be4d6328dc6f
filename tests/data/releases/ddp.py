import os, torch, torch.distributed as dist
from torch import nn
from stat_ import say
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
net = nn.parallel.DistributedDataParallel(net)
opt = torch.optim.AdamW(net.parameters())
for step in range(3):
    net(torch.randn(256, 512, device="cuda")).square().mean().backward()
    opt.step(); opt.zero_grad()
    say(step)
