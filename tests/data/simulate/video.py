"""3D convolutions, transposed ones, group and instance norms."""
import torch
from torch import nn
import torch.nn.functional as F


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.b = nn.Conv3d(i, o, 3, padding=1), nn.Conv3d(o, o, 3, padding=1)
        self.n, self.m = nn.GroupNorm(8, o), nn.InstanceNorm3d(o, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.m(self.b(F.silu(self.n(self.a(x))))), 0.1, inplace=True)


class UNet3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = Block(1, 16), Block(16, 32), Block(32, 64)
        self.u2, self.u1 = nn.ConvTranspose3d(64, 32, 2, 2), nn.ConvTranspose3d(32, 16, 2, 2)
        self.c2, self.c1 = Block(64, 32), Block(32, 16)
        self.out = nn.Conv3d(16, 3, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool3d(a, 2))
        m = self.mid(F.avg_pool3d(b, 2))
        b = self.c2(torch.cat([self.u2(m), b], 1))
        a = self.c1(torch.cat([self.u1(b), a], 1))
        return self.out(a)


model = UNet3d().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.99, nesterov=True)
for step in range(3):
    x, y = torch.randn(2, 1, 16, 32, 32, device="cuda"), torch.randint(0, 3, (2, 16, 32, 32), device="cuda")
    logits = model(x)
    dice = 1 - (logits.softmax(1) * F.one_hot(y, 3).permute(0, 4, 1, 2, 3)).sum((2, 3, 4)).mean()
    loss = F.cross_entropy(logits, y) + dice
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mem(f"step{step}")
net = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1, bias=False), nn.InstanceNorm2d(64), nn.ReLU(True), nn.Conv2d(64, 32, 3, groups=4, padding=1),
                    nn.LocalResponseNorm(3), nn.PReLU(32), nn.Conv1d and nn.Flatten(2), nn.Conv1d(32, 16, 5, dilation=2), nn.BatchNorm1d(16), nn.AdaptiveAvgPool1d(10),
                    nn.Flatten(), nn.Linear(160, 4)).cuda()
net(torch.randn(4, 64, 16, 16, device="cuda")).square().mean().backward()
mem("mixed")
