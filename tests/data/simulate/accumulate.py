"""A transformer encoder with gradients accumulated over four micro batches, clipped, AdamW with a warm-up."""

import torch
from torch import nn

model = nn.Sequential(
    nn.Embedding(5000, 256),
    nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True), 4, enable_nested_tensor=False),
    nn.Linear(256, 5000),
).to("cuda")
model.train()
decay = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-4)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
accumulate = 4
for step in range(3):
    total = 0.0
    for micro in range(accumulate):
        tokens = torch.randint(0, 5000, (8, 129)).cuda(non_blocking=True)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / accumulate
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"loss {total:.3f} norm {norm:.3f}")
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
