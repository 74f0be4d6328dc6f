"""States of random number generators."""
import random
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


random.seed(0)
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
generator = torch.Generator(device="cuda").manual_seed(7)
x = torch.randn(100, 100, device="cuda", generator=generator)
y = torch.rand(10, device="cuda", generator=generator)
p = torch.randperm(1000, device="cuda", generator=generator)
state = torch.cuda.get_rng_state()
states = torch.cuda.get_rng_state_all()
print("STAT", state.shape[0], state.dtype, len(states), generator.device, generator.initial_seed(), torch.cuda.initial_seed())
torch.nn.functional.dropout(x, 0.5)
torch.cuda.set_rng_state(state)
torch.cuda.set_rng_state_all(states)
with torch.random.fork_rng():
    torch.manual_seed(3)
    z = torch.randn(1000, device="cuda")
saved = generator.get_state()
generator.set_state(saved)
other = torch.cuda.default_generators[0]
print("STAT", other.initial_seed(), saved.numel(), generator.get_offset() >= 0)
torch.cuda.seed_all()
mem("states")
layer = nn.Sequential(nn.Linear(100, 100), nn.Dropout(0.3), nn.AlphaDropout(0.1), nn.Dropout1d(0.2)).cuda()
out = checkpoint(layer, x.requires_grad_(), use_reentrant=False, preserve_rng_state=True)
out.sum().backward()
mem("checkpointed")
torch.save({"rng": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(), "model": layer.state_dict()}, "rng.pt")
loaded = torch.load("rng.pt", map_location="cpu")
torch.cuda.set_rng_state_all(loaded["cuda"])
layer.load_state_dict(loaded["model"])
mem("loaded")
