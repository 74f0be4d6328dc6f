"""A physics-informed network: second derivatives, LBFGS with a line search, then Adam."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
x = torch.rand(2000, 1, device="cuda", requires_grad=True)
t = torch.rand(2000, 1, device="cuda", requires_grad=True)


def residual():
    u = model(torch.cat([x, t], 1))
    u_t, u_x = torch.autograd.grad(u, (t, x), torch.ones_like(u), create_graph=True)
    u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
    return (u_t + u * u_x - 0.01 * u_xx).square().mean()


adam = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(3):
    adam.zero_grad()
    residual().backward()
    adam.step()
    mem(f"adam{step}")
lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=5, line_search_fn=None)


def closure():
    lbfgs.zero_grad()
    loss = residual()
    loss.backward()
    return loss


for step in range(2):
    lbfgs.step(closure)
    mem(f"lbfgs{step}")
wolfe = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=5, line_search_fn="strong_wolfe")
wolfe.step(closure)
mem("wolfe")
