"""Trains a small language model and runs out of memory after a while. docs/explain.md finds out why."""

import torch
import torch.nn.functional as F
from torch import nn

torch.cuda.memory._record_memory_history(stacks="python")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self, words: int = 32_000, width: int = 1024, depth: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.scores = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.scores(x)


def loss_of(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    history = []
    for _ in range(100):
        tokens = torch.randint(32_000, (64, 1025), device="cuda")
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()
        validation = loss_of(model, torch.randint(32_000, (64, 1025), device="cuda"))
        history.append(validation)


try:
    main()
except torch.OutOfMemoryError:
    torch.cuda.memory._dump_snapshot("oom.pickle")
    print("out of memory: oom.pickle says why")
