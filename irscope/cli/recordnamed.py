"""Named models for the process that records them: made there, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.load import make_named
from irscope.ir.spelling import parse_type


def make(name: str, inputs: Mapping[str, str], bind: Mapping[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """The module, its arguments by position and by name, and what the inputs are called."""
    types = {key: parse_type(text) for key, text in inputs.items()}
    made = make_named(name, LoadOptions(inputs=types, bind=dict(bind)), hollow=False)
    arguments, keywords = made.arguments(real=True)
    return made.module, arguments, keywords, tuple(one.name for one in made.chosen.inputs)
