"""Small programs with weights given as arrays: some of their channels do nothing, and it is known which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.graph import Role
from irscope.ir.parser import parse_program
from irscope.ir.places import Blob
from irscope.ir.types import TensorType
from irscope.passes.cost.count import NodeCosts
from irscope.passes.pruning.prune_report import PruneReport, Pruning
from irscope.passkit.manager import Manager

Array = npt.NDArray[Any]


def program(body: str, inputs: str = "input %x: f32[2,8]", form: str = "pt2") -> Manager:
    """A program of text, without values of its weights."""
    return Manager(parse_program(f'irscope 1\nformat "{form}"\ngraph @main {{\n{inputs}\n{body}\n}}\n'))


def built(body: str, inputs: str, values: Mapping[str, Array] | None = None, seed: int = 3) -> Manager:
    """A program whose weights hold what is given, and normal numbers otherwise."""
    manager = program(body, inputs)
    graph, random = manager.program.graph, np.random.default_rng(seed)
    for weight in graph.weights:
        type_ = weight.type
        assert isinstance(type_, TensorType) and type_.is_static and type_.shape is not None
        if weight.role is not Role.CONSTANT:
            given = (values or {}).get(str(weight.name))
            array = random.standard_normal([size for size in type_.shape if isinstance(size, int)]) if given is None else given
            graph.set_data(weight, Blob(np.ascontiguousarray(array, np.float32).tobytes()))
    return manager


def normal(*shape: int, zero: Mapping[int, list[int]] | None = None) -> Array:
    """Normal numbers, with slices of zeros: by axis which ones."""
    made = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    for axis, places in (zero or {}).items():
        made[(slice(None),) * axis + (places,)] = 0
    return made


def pruned(manager: Manager) -> Pruning:
    """The answer of the pass."""
    return manager.get(PruneReport())


def shapes(result: Pruning) -> dict[str, tuple[object, ...]]:
    """What is left of each weight that gets smaller."""
    return {str(one.weight.name): tuple(one.type.shape or ()) for one in result.savings.weights}


def reasons(result: Pruning) -> dict[tuple[str, str], tuple[int, int, str]]:
    """By weight and axis: dead slices, how many can go, and what keeps the others."""
    return {(str(one.weight.name), one.axis): (one.dead, one.goes, one.why) for one in result.dead}


def check_costs(result: Pruning, before: Manager, after: Manager) -> None:
    """What is saved is what the smaller program, written by hand, costs less."""
    one, other = before.get(NodeCosts()).total, after.get(NodeCosts()).total
    for measure in ("flops", "read", "written"):
        assert result.savings.total(measure) == getattr(one, measure) - getattr(other, measure), measure
    assert result.savings.total("flops") != 0
