"""The dataflow IR: what frontends make of a file and passes read.

A `Program` has a `Graph` of `Node`s and `Value`s. A value's type is a `TensorType` and the like; its sizes are numbers or formulas over
symbols (`SymDim`). `print_program` and `parse_program` are its text form (`.irs`), `verify` checks the rules it keeps.

    from irscope.ir import DType, parse_program, tensor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope.ir.dims import Dim, SymDim, dim_max, dim_min, parse_dim, product, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.program import Assumed, Program
from irscope.ir.spelling import parse_type
from irscope.ir.splicing import copy_before, splice
from irscope.ir.types import UNKNOWN_TENSOR, OptionalType, ScalarType, SequenceType, TensorType, Type, UnknownType, tensor
from irscope.ir.verify import verify
from irscope.lazy import lazily

if TYPE_CHECKING:
    from irscope.ir.bind import bind_program
    from irscope.ir.parser import parse_program
    from irscope.ir.printer import print_node, print_program

__all__ = [
    "UNKNOWN_TENSOR",
    "Assumed",
    "DType",
    "Dim",
    "Facet",
    "Graph",
    "Node",
    "OptionalType",
    "Program",
    "Role",
    "ScalarType",
    "SequenceType",
    "SymDim",
    "TensorType",
    "Type",
    "UnknownType",
    "Value",
    "bind_program",
    "copy_before",
    "dim_max",
    "dim_min",
    "parse_dim",
    "parse_program",
    "parse_type",
    "print_node",
    "print_program",
    "product",
    "splice",
    "symbol",
    "tensor",
    "verify",
]

# What many programs do without.
__getattr__ = lazily(
    __name__,
    {
        "bind_program": "irscope.ir.bind",
        "parse_program": "irscope.ir.parser",
        "print_node": "irscope.ir.printer",
        "print_program": "irscope.ir.printer",
    },
)
