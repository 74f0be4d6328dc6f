"""Per-sample gradients of an MLP, Jacobians and Hessians with torch.func."""
import gc
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap, stack_module_state


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.LayerNorm(256), nn.Linear(256, 16)).cuda()
params = dict(model.named_parameters())


def f(x):
    return functional_call(model, params, (x,))


def loss(params, x, y):
    return nn.functional.mse_loss(functional_call(model, params, (x[None],)), y[None])


x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 16, device="cuda")
detached = {k: v.detach() for k, v in params.items()}
g = vmap(grad(loss), (None, 0, 0))(detached, x, y)
gc.collect()
mem("grad")
del g
j = vmap(jacrev(f))(x)
mem("jacrev")
j2 = vmap(jacfwd(f))(x)
mem("jacfwd")
del j, j2
h = hessian(lambda z: f(z).square().sum())(x[0])
mem("hessian")
out, pull = vjp(f, x)
gx = pull(torch.ones_like(out))[0]
mem("vjp")
out, tangent = jvp(f, (x,), (torch.randn_like(x),))
mem("jvp")
del out, pull, gx, tangent, h
models = [nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).cuda() for _ in range(8)]
stacked, buffers = stack_module_state(models)
base = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).to("meta")
preds = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(stacked, buffers, x)
preds.square().mean().backward()
mem("ensemble")
