import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel, SequenceParallel
from stat_ import say
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (4,))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)
    def forward(self, x): return self.down(torch.relu(self.up(x)))
net = nn.Sequential(*[Block() for _ in range(3)]).cuda()
for b in net: parallelize_module(b, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
opt = torch.optim.AdamW(net.parameters(), foreach=True)
for step in range(3):
    net(torch.randn(256, 512, device="cuda")).square().mean().backward()
    opt.step(); opt.zero_grad()
    say(step)
