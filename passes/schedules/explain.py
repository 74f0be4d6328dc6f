"""Explains the lower bound of a schedule, in the model's own names."""

from __future__ import annotations

from dataclasses import dataclass

from irscope.ir.graph import Value
from irscope.memory.ordering.cut import Cut
from irscope.memory.ordering.solve import Ordering
from irscope.passes.schedules.draft import Draft

USED_HERE = "read or made here"
WAITED_FOR = "made before, read later"
KEPT = "kept to the end"
INSIDE = "only exists while the node runs"


@dataclass(frozen=True)
class Held:
    """Bytes that are alive in every order, at the node where the bound is reached."""

    name: str
    size: int
    why: str


def reason(draft: Draft, ordering: Ordering) -> tuple[str, int, list[Held]]:
    """The node at which every order needs most, how much, and what is alive then; the bound is more where a search has proven more."""
    greediest = _greediest(draft)
    cut = ordering.witness
    if cut is None or (greediest is not None and greediest.bytes > cut.bytes):
        cut = greediest
    if cut is None:
        return "", 0, []
    return draft.nodes[cut.op].name, cut.bytes, _held(draft, cut)


def _greediest(draft: Draft) -> Cut | None:
    """The node that needs most by itself."""
    problem = draft.problem
    alone = [
        problem.base + room + sum(problem.storages[number].size for number in problem.touched[op])
        for op, room in enumerate(problem.workspace)
    ]
    return Cut(alone.index(max(alone)), max(alone), frozenset()) if alone else None


def _held(draft: Draft, cut: Cut) -> list[Held]:
    problem = draft.problem
    found: list[Held] = []
    for storage, value in zip(problem.storages, draft.values, strict=True):
        done = [op in cut.done for op in storage.touches]
        begun, over = storage.is_input or any(done), all(done) and not storage.is_output
        if cut.op in storage.touches:
            found.append(Held(label(value), storage.size, USED_HERE))
        elif begun and not over and cut.done:
            found.append(Held(label(value), storage.size, KEPT if all(done) else WAITED_FOR))
    if problem.workspace[cut.op]:
        found.append(Held("", problem.workspace[cut.op], INSIDE))
    return sorted(found, key=lambda one: (-one.size, one.name))


def label(value: Value) -> str:
    """How a storage is called."""
    return value.name or (value.node.name if value.node is not None else "")
