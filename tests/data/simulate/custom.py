"""Custom autograd functions and custom operators made of torch's own."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * torch.sigmoid(x)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.mark_dirty(x)
        ctx.k = k
        return x.mul_(k)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * ctx.k, None


@torch.library.custom_op("mine::rms", mutates_args=())
def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@rms.register_fake
def _(x, weight, eps):
    return torch.empty_like(x)


def setup(ctx, inputs, output):
    x, weight, eps = inputs
    ctx.save_for_backward(x, weight)
    ctx.eps = eps


def backward(ctx, grad):
    x, weight = ctx.saved_tensors
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
    n = x * r
    gw = (grad * n).sum(0)
    gn = grad * weight
    return r * (gn - n * (gn * n).mean(-1, keepdim=True)), gw, None


rms.register_autograd(backward, setup_context=setup)

library = torch.library.Library("old", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 256), nn.Linear(256, 256)
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x):
        x = Swish.apply(self.a(x))
        x = rms(x, self.weight, 1e-6)
        x = InPlace.apply(x, 2.0)
        return torch.ops.old.twice(self.b(x))


model = Net().cuda()
opt = torch.optim.Adam(model.parameters())
for step in range(3):
    model(torch.randn(512, 256, device="cuda")).square().mean().backward()
    mem(f"backward{step}")
    opt.step()
    opt.zero_grad()
    mem(f"step{step}")
