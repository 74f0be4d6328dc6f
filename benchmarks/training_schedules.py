"""How little memory training steps need: `python -m benchmarks.training_schedules [SECONDS] [NAME ...]`.

Forward, backward and the optimizer's update become one graph with make_fx over fake tensors; nothing is computed. Weights and the
optimizer's state are there from the start to the end; a gradient may go as soon as its weight is updated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.adam import adam
from torch.optim.sgd import sgd
from torch.utils._pytree import tree_iter

import irscope
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.solve import INDUCTOR_ORDERS, SIMPLE_ORDERS, best_order
from irscope.training import Piece, Trace

Optimizer: TypeAlias = Literal["sgd", "adam"]


class Block(nn.Module):
    """A layer of a transformer, pre-norm, with attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(parts[0] @ parts[1].transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((scores @ parts[2]).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """Tokens to logits."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 32_000) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits.flatten(0, 1)


def perceptron(layers: int = 8, width: int = 1024) -> nn.Module:
    """Linear layers with ReLU between them."""
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())))


@dataclass(frozen=True)
class Step:
    """One training step; the loss is the cross entropy."""

    model: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    targets: int
    optimizer: Optimizer
    tokens: bool = True


def steps() -> dict[str, Step]:
    """Steps by name."""
    found: dict[str, Step] = {}
    optimizers: tuple[Optimizer, ...] = ("sgd", "adam")
    for optimizer in optimizers:
        for batch, length in ((1, 128), (8, 512)):
            found[f"transformer, 12 layers, batch {batch} of {length}, {optimizer}"] = Step(
                Transformer, (batch, length), batch * length, optimizer
            )
        found[f"perceptron, 8 layers, batch 32, {optimizer}"] = Step(perceptron, (32, 1024), 32, optimizer, tokens=False)
    return found


def capture(step: Step) -> tuple[fx.GraphModule, int]:
    """The graph of a step, and how many of its inputs, at the start, stay: weights and the optimizer's state."""
    with FakeTensorMode():
        model = step.model()
        names = [name for name, _ in model.named_parameters()]
        weights = [weight.detach() for _, weight in model.named_parameters()]
        moments = [torch.zeros_like(weight) for weight in weights * 2] if step.optimizer == "adam" else []
        counts = [torch.zeros(()) for _ in weights] if step.optimizer == "adam" else []
        given = torch.zeros(step.inputs, dtype=torch.long) if step.tokens else torch.zeros(step.inputs)
        targets = torch.zeros(step.targets, dtype=torch.long)

        def run(weights: list[Tensor], moments: list[Tensor], counts: list[Tensor], given: Tensor, targets: Tensor) -> Tensor:
            leaves = [weight.detach().requires_grad_() for weight in weights]
            logits = functional_call(model, dict(zip(names, leaves, strict=True)), (given,))
            loss = nn.functional.cross_entropy(logits, targets)
            gradients = list(torch.autograd.grad(loss, leaves))
            with torch.no_grad():
                _update(step.optimizer, weights, gradients, moments, counts)
            return loss.detach()

        # Else Adam would ask each count of steps for its value, or refuse to count on a CPU.
        torch.compiler._is_compiling_flag = True
        try:
            graph = make_fx(run)(weights, moments, counts, given, targets)
        finally:
            torch.compiler._is_compiling_flag = False
    return graph, len(weights) + len(moments) + len(counts)


def _update(optimizer: Optimizer, weights: list[Tensor], gradients: list[Tensor], moments: list[Tensor], counts: list[Tensor]) -> None:
    if optimizer == "sgd":
        nothing: list[Tensor | None] = [None] * len(weights)
        sgd(weights, gradients, nothing, foreach=False, weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False, maximize=False)
        return
    first, second = moments[: len(weights)], moments[len(weights) :]
    adam(
        weights, gradients, first, second, [], counts, foreach=False, capturable=True,
        amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-3, weight_decay=0, eps=1e-8, maximize=False,
    )  # fmt: skip


def problem_of(graph: fx.GraphModule, kept: int) -> OrderProblem:
    """What is to be ordered: storages as the fake tensors have them, with readers before those that write over them."""
    nodes = list(graph.graph.nodes)
    ops = [node for node in nodes if node.op == "call_function"]
    number = {node: at for at, node in enumerate(ops)}
    inputs = [node for node in nodes if node.op == "placeholder"]
    sizes: dict[int, int] = {}
    touches: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    writer: dict[int, int] = {}
    before: list[set[int]] = []
    for node in inputs:
        for key, size in _storages(node):
            sizes[key] = size
            touches.setdefault(key, [])
    for at, node in enumerate(ops):
        before.append({number[node] for node in node.all_input_nodes if node in number})
        written = set(_written(node))
        used = {key: None for node in node.all_input_nodes for key, _ in _storages(node)}
        for key in used:
            if key in writer:
                before[at].add(writer[key])
            if key in written:
                before[at].update(readers.pop(key, ()))
                writer[key] = at
            else:
                readers.setdefault(key, []).append(at)
        for key, size in _storages(node):
            sizes[key] = max(size, sizes.get(key, 0))
            used[key] = None
        for key in used:
            touches.setdefault(key, []).append(at)
        before[at].discard(at)
    stays = {key for node in inputs[:kept] for key, _ in _storages(node)}
    given = {key for node in inputs for key, _ in _storages(node)}
    returned = {key for node in graph.graph.find_nodes(op="output")[0].all_input_nodes for key, _ in _storages(node)}
    storages = [
        Storage(size, tuple(dict.fromkeys(touches[key])), is_input=key in given, is_output=key in returned or key in stays)
        for key, size in sizes.items()
    ]
    return order_problem(before, storages)


def _storages(node: fx.Node) -> Iterator[tuple[int, int]]:
    for value in tree_iter(node.meta.get("val")):
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            yield storage._cdata, int(storage.nbytes())


def _written(node: fx.Node) -> Iterator[int]:
    """Storages that an operator writes over."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    given: Sequence[Any] = node.args
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = given[place] if place < len(given) else node.kwargs.get(argument.name)
            for one in tree_iter(value):
                if isinstance(one, fx.Node):
                    yield from (key for key, _ in _storages(one))


def problem_of_trace(trace: Trace) -> OrderProblem:
    """The last step of a capture as irscope has it. What was there before it stays, but for inputs; gradients go after their last use."""
    ops = list(trace.in_step(trace.steady))
    touches: dict[Piece, list[int]] = {}
    readers: dict[Piece, list[int]] = {}
    writer: dict[Piece, int] = {}
    before: list[set[int]] = []
    drawn = -1
    for at, op in enumerate(ops):
        before.append({drawn} - {-1} if op.is_random else set())
        drawn = at if op.is_random else drawn
        for piece in dict.fromkeys((*op.reads, *op.writes)):
            touches.setdefault(piece, []).append(at)
            if piece in writer:
                before[at].add(writer[piece])
            if piece in op.writes:
                before[at].update(readers.pop(piece, ()))
                writer[piece] = at
            else:
                readers.setdefault(piece, []).append(at)
        before[at].discard(at)
    storages = []
    for piece, users in touches.items():
        there = piece.born is None or piece.born < ops[0].number
        storages.append(Storage(piece.size, tuple(users), is_input=there, is_output=there and piece.category != "input"))
    return order_problem(before, storages)


def captured(step: Step) -> OrderProblem:
    """The same step as irscope's own capture of training has it."""
    given = torch.zeros(step.inputs, dtype=torch.long) if step.tokens else torch.zeros(step.inputs)

    def loss(out: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out, torch.zeros(step.targets, dtype=torch.long, device=out.device))

    model = irscope.capture_training(step.model(), (given,), loss=loss, optimizer=step.optimizer, optimizer_options={"foreach": False})
    trace = model.program.training
    assert trace is not None
    return problem_of_trace(trace)


def main() -> None:
    """Print a table; nothing here passes or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=5)
    parser.add_argument("--captured", action="store_true", help="by irscope's own capture of training steps")
    parser.add_argument("names", nargs="*", help="parts of names")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| training step | operators | as written | Inductor's set | found | bound | below written | s |\n|---|---|---|---|---|---|---|---|"
    )
    for name, step in steps().items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        problem = captured(step) if chosen.captured else problem_of(*capture(step))
        began = time.process_time()
        found = best_order(problem, chosen.seconds)
        taken = time.process_time() - began
        inductor = min(problem.peak(SIMPLE_ORDERS[one](problem)) if one in SIMPLE_ORDERS else found.as_written for one in INDUCTOR_ORDERS)
        sizes = " | ".join(f"{size / 2**20:.1f}" for size in (found.as_written, inductor, found.peak))
        bound = "proven" if found.proven else f"{found.bound / 2**20:.1f} (gap {found.peak / found.bound - 1:.2%})"
        print(f"| {name} | {len(problem)} | {sizes} | {bound} | {1 - found.peak / found.as_written:.1%} | {taken:.2f} |", flush=True)


if __name__ == "__main__":
    main()
