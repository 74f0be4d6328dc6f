"""bf16 autocast around everything, optimizers with foreach, norms of all kinds, and value clipping."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Sequential(nn.Linear(512, 2048), nn.SiLU(), nn.Linear(2048, 512), nn.LayerNorm(512), nn.Linear(512, 1000)).cuda()
for name, make in {
    "adamw": lambda p: torch.optim.AdamW(p, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
}.items():
    opt = make(model.parameters())
    for step in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            x = torch.randn(64, 512, device="cuda")
            h = model(x)
            loss = nn.functional.cross_entropy(h, torch.zeros(64, dtype=torch.long, device="cuda")) + h.norm() * 0.1
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0 if step else float("inf"), foreach=True)
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
            opt.step()
            opt.zero_grad()
        mem(f"{name}{step}")
with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
    a = [p * 1.0 for p in model.parameters()]
    torch._foreach_add_(a, a, alpha=0.5)
    b = torch._foreach_mul(a, 2.0)
    c = torch._foreach_norm(b, 1)
    d = torch._foreach_lerp(a, b, 0.5)
    torch._foreach_addcmul_(a, a, b, value=0.1)
    torch._foreach_copy_(a, [x.bfloat16() for x in b])
    mem("foreach")
    e = torch._foreach_norm([x.bfloat16() for x in a], 2)
    e = torch._foreach_norm([x.double() for x in a], float("inf"))
    e = torch._foreach_max(a)
    mem("norms")
