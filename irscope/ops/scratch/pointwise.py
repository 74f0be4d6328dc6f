"""Functions of single elements that PyTorch puts together from other functions."""

from __future__ import annotations

from irscope.ops.scratch.recorder import Scratch, count, nbytes, rule

_SCALAR = 8
"""Bytes of a number that is made a tensor."""


@rule
def is_inf_rule(scratch: Scratch) -> None:
    """Magnitudes are compared; integers are finite without a look."""
    x = scratch.call.tensor("x")
    magnitudes = scratch.take("magnitudes", nbytes(x)) if x.dtype.is_float and scratch.source == "isinf" else ""
    scratch.result()
    scratch.drop(magnitudes)


@rule
def is_finite_rule(scratch: Scratch) -> None:
    """Elements that are equal to themselves and not infinite."""
    x = scratch.call.tensor("x")
    if not x.dtype.is_float:
        scratch.result()
        return
    magnitudes = scratch.take("magnitudes", nbytes(x))
    bounded, ordered = scratch.take("not infinite", count(x)), scratch.take("equal to itself", count(x))
    scratch.result()
    scratch.drop(ordered, bounded, magnitudes)


@rule
def power_rule(scratch: Scratch) -> None:
    """A number that is raised to the power of a tensor becomes a tensor first; any power of one is one."""
    scratch.result()
    base = scratch.call.attr("value")
    if scratch.call.attr("reverse") and isinstance(base, int | float) and base != 1:
        scratch.passing("base", _SCALAR)
