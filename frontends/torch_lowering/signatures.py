"""Signatures of ATen operators: names, kinds and defaults of arguments, and which overload a call means."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import TypeAlias

from irscope.frontends.torch_lowering.dtypes import C10_DTYPES
from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ops.schema import read_declaration, read_default, split_arguments

Argument: TypeAlias = object
"""A Value, a number (a Dim where it is an integer), a string, a DType, None, or a tuple of these."""

_MISSING = object()
_NOTE, _LENGTH = re.compile(r"\(.*?\)"), re.compile(r"\[\d+\]")

_REGIONS = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_OTHER_PACKAGES: dict[str, list[str]] = {
    "torchvision::nms": ["(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"],
    "torchvision::roi_align": [f"({_REGIONS}, int sampling_ratio, bool aligned) -> Tensor"],
    "torchvision::roi_pool": [f"({_REGIONS}) -> (Tensor, Tensor)"],
    "torchvision::ps_roi_align": [f"({_REGIONS}, int sampling_ratio) -> (Tensor, Tensor)"],
    "torchvision::deform_conv2d": [
        "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
        "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
    ],
    "_scaled_mm": [
        "(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, "
        "ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor"
    ],
    "irscope::packed_linear": ["(Tensor x, Tensor? bias, Tensor[] parts, int inputs, int outputs, ScalarType? dtype=None) -> Tensor"],
    "irscope::unpack_linear": ["(Tensor[] parts, int inputs, int outputs, ScalarType dtype) -> Tensor"],
    "transformers::grouped_mm_fallback": ["(Tensor input, Tensor weight, Tensor offs) -> Tensor"],
}


@immutable
class Param:
    """One argument of an operator."""

    name: str
    kind: str
    """Tensor, Tensor?, Tensor[], int, int[], float, Scalar, bool, str, ScalarType, Device, ...; `?` where None may be given."""
    default: object
    keyword_only: bool
    written: bool

    @property
    def required(self) -> bool:
        return self.default is _MISSING


@immutable
class Signature:
    """One overload of one operator."""

    name: str
    overload: str
    params: tuple[Param, ...]
    results: tuple[str, ...]
    """Kinds of the results: Tensor, Tensor[], int, ..."""

    @property
    def written(self) -> str | None:
        """Return the argument that the operator changes in place; None where it returns new tensors."""
        return next((param.name for param in self.params if param.written), None)

    def bind(
        self, positional: Sequence[Argument], named: Mapping[str, Argument], tensors_as_numbers: bool = False
    ) -> dict[str, Argument] | None:
        """Return the arguments by name with defaults filled in; None where the call does not fit."""
        bound: dict[str, Argument] = {}
        used = 0
        for index, param in enumerate(self.params):
            if index < len(positional) and not param.keyword_only:
                given = positional[index]
            elif param.name in named:
                given = named[param.name]
                used += 1
            elif param.required:
                return None
            else:
                bound[param.name] = param.default
                continue
            if not _fits_kind(given, param.kind) and not (
                tensors_as_numbers and isinstance(given, Value) and param.kind.rstrip("?") == "Scalar"
            ):
                return None
            bound[param.name] = given
        allowed = sum(not param.keyword_only for param in self.params)
        return bound if len(positional) <= allowed and used == len(named) else None


def _default(text: str | None) -> object:
    if text is None:
        return _MISSING
    try:
        return read_default(text)
    except ValueError:
        return text  # the name of a constant, such as contiguous_format


def parse_signature(name: str, text: str) -> Signature:
    """Return a signature from "overload(Tensor self, ...) -> Tensor"."""
    overload, _, tail = text.partition("(")
    end = _closing(tail)
    params: list[Param] = []
    keyword_only = False
    for part in split_arguments(tail[:end]):
        if part == "*":
            keyword_only = True
            continue
        declaration = read_declaration(part)
        if declaration is not None and declaration.name:
            kind = ("int" if declaration.kind == "SymInt" else declaration.kind) + _NOTE.sub("", _LENGTH.sub("[]", declaration.form))
            params.append(Param(declaration.name, kind, _default(declaration.default), keyword_only, "!" in declaration.alias))
    results = tail[end + 1 :].partition("->")[2].strip()
    inner = results[1:-1] if results.startswith("(") and results.endswith(")") else results
    return Signature(name, overload, tuple(params), tuple(_result_kind(part) for part in split_arguments(inner)))


def _closing(text: str) -> int:
    """Return where the parenthesis closes that was opened before the text."""
    depth = 1
    for position, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth == 0:
            return position
    return len(text)


def _result_kind(part: str) -> str:
    declaration = read_declaration(part)
    return declaration.kind + _NOTE.sub("", declaration.form) if declaration is not None else "any"


@functools.cache
def _texts() -> dict[str, list[str]]:
    text = resources.files("irscope.frontends.torch_lowering").joinpath("signatures.json").read_text("utf-8")
    found: dict[str, list[str]] = json.loads(text)
    return {**found, **_OTHER_PACKAGES}


@functools.cache
def overloads(name: str) -> tuple[Signature, ...]:
    """Return every known overload of an operator, in the order in which PyTorch tries them."""
    return tuple(parse_signature(name, text) for text in _texts().get(name, ()))


def find(name: str, overload: str) -> Signature | None:
    """Return the signature of one overload ("default" and "" are the same)."""
    wanted = "" if overload == "default" else overload
    return next((signature for signature in overloads(name) if signature.overload == wanted), None)


def resolve(name: str, positional: Sequence[Argument], named: Mapping[str, Argument]) -> tuple[Signature, dict[str, Argument]] | None:
    """Return the overload that a call without an overload name means, with its arguments.

    A tensor stands for the number in it only where no overload takes the tensor itself.
    """
    for tensors_as_numbers in (False, True):
        for signature in overloads(name):
            bound = signature.bind(positional, named, tensors_as_numbers)
            if bound is not None:
                return signature, bound
    return None


MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last", 3: "channels_last_3d"}


def complete(signature: Signature, named: Mapping[str, Argument]) -> dict[str, Argument]:
    """Return the arguments by name with defaults filled in, for a call whose overload is known."""
    defaults = {param.name: _filled_in(param) for param in signature.params if not param.required}
    return {**defaults, **named}


def _filled_in(param: Param) -> Argument:
    """Memory formats and element types stand in signatures as PyTorch's own numbers."""
    if param.kind.startswith("MemoryFormat") and isinstance(param.default, int):
        return MEMORY_FORMATS.get(param.default, "")
    if param.kind.startswith("ScalarType") and isinstance(param.default, int):
        return C10_DTYPES.get(param.default, DType.UNKNOWN)
    return param.default


# -- whether an argument can be of a kind ------------------------------------------------------------------------------


def _is_int(value: Argument) -> bool:
    return isinstance(value, SymDim) or (isinstance(value, int) and not isinstance(value, bool))


def _is_number(value: Argument) -> bool:
    return isinstance(value, int | float | complex | SymDim)


_TESTS: dict[str, Callable[[Argument], bool]] = {
    "Tensor": lambda value: isinstance(value, Value),
    "int": _is_int,
    "float": lambda value: isinstance(value, float) or _is_int(value),
    "Scalar": _is_number,
    "bool": lambda value: isinstance(value, bool | SymDim),
    "str": lambda value: isinstance(value, str),
    "ScalarType": lambda value: isinstance(value, DType) or _is_int(value),
    "Layout": _is_int,
    "MemoryFormat": lambda value: isinstance(value, str) or _is_int(value),
    "Device": lambda value: isinstance(value, str),
    "complex": _is_number,
}


def _fits_kind(value: Argument, kind: str) -> bool:
    if kind.endswith("?"):
        return value is None or _fits_kind(value, kind[:-1])
    if kind.endswith("[]"):
        if isinstance(value, tuple | list):
            return all(_fits_kind(item, kind[:-2]) for item in value)
        return kind == "int[]" and _is_int(value)
    test = _TESTS.get(kind)
    return test is None or test(value)


# -- operators that irscope has no record of ---------------------------------------------------------------------------


def foreign_attrs(args: Mapping[str, Argument]) -> tuple[list[Value | None], dict[str, Attr]]:
    """Return the operands and attributes of a call that is kept as it is."""
    inputs: list[Value | None] = []
    attrs: dict[str, Attr] = {}
    for name, value in args.items():
        if isinstance(value, Value):
            inputs.append(value)
        elif isinstance(value, tuple | list) and any(isinstance(item, Value) for item in value):
            inputs.extend(item for item in value if isinstance(item, Value))
        elif value is not None and is_attr(value):
            attrs[name] = tuple(value) if isinstance(value, list) else value
    return inputs, attrs


def is_attr(value: Argument) -> bool:
    """Return whether something can stand as an attribute."""
    if isinstance(value, tuple | list):
        return all(is_attr(item) for item in value)
    return value is None or isinstance(value, bool | int | float | complex | str | SymDim | DType)
