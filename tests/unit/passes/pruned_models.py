"""Small programs with weights given as arrays, some rows and columns of which are zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.graph import Role
from irscope.ir.parser import parse_program
from irscope.ir.places import Blob
from irscope.ir.types import TensorType
from irscope.passkit.manager import Manager

Array = npt.NDArray[Any]
WIDE = "{kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1}"


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


def conv_bn_relu(c: int, d: int) -> tuple[str, str]:
    inputs = (
        f"input %x: f32[1,3,8,8]\nparam %w: f32[{c},3,3,3]\nparam %v: f32[{d},{c},3,3]\nparam %h: f32[10,{d}]\n"
        f"param %g: f32[{c}]\nparam %b: f32[{c}]\nbuffer %m: f32[{c}]\nbuffer %s: f32[{c}]"
    )
    body = (
        f"%c: f32[1,{c},8,8] = nn.conv(%x, %w, _) {WIDE}\n"
        f"%n: f32[1,{c},8,8] = nn.batch_norm(%c, %g, %b, %m, %s) {{training=false}}\n"
        f"%r: f32[1,{c},8,8] = nn.relu(%n)\n"
        f"%e: f32[1,{d},8,8] = nn.conv(%r, %v, _) {WIDE}\n"
        f"%q: f32[1,{d},8,8] = nn.relu(%e)\n"
        f"%a: f32[1,{d}] = reduce.mean(%q, _) {{axes=[2, 3], keepdims=false}}\n"
        f"%y: f32[1,10] = nn.linear(%a, %h, _)\nreturn %y"
    )
    return body, inputs


def mlp(hidden: int, act: str = "nn.relu", bias: bool = True) -> tuple[str, str]:
    inputs = f"input %x: f32[2,8]\nparam %w: f32[{hidden},8]\nparam %b: f32[{hidden}]\nparam %v: f32[6,{hidden}]"
    body = (
        f"%h: f32[2,{hidden}] = nn.linear(%x, %w, {'%b' if bias else '_'})\n"
        f"%a: f32[2,{hidden}] = {act}(%h)\n"
        "%y: f32[2,6] = nn.linear(%a, %v, _)\nreturn %y"
    )
    return body, inputs
