"""Named ways to store matrices in few bits: which tensors each makes of one matrix, and how its rounding is measured.

Tensors are those that the package named beside each scheme keeps on the device; tests hold them against what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.optiontext import OptionsError, read_options


class StoredPart(NamedTuple):
    """One of the tensors that a matrix is stored as."""

    name: str
    """As the serialiser calls it, behind the name of the layer."""
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Exact, also for types of fewer than 8 bits."""
        return (math.prod(self.shape) * (self.dtype.bits or 8) + 7) // 8


@immutable(slots=False)
class Scheme:
    """A way to store matrices, with its settings."""

    name: str
    options: Mapping[str, int] = field(default_factory=dict)
    embeddings: bool = False
    """True where tables of embeddings are stored so too; usually they are left as they are."""
    head: bool = False
    """True where the layer that gives the logits is stored so too."""

    @property
    def text(self) -> str:
        """Return the text as a user writes it, settings that differ from the usual ones alone."""
        usual = _KINDS[self.name].options
        given = [f"{key}={value}" for key, value in self.options.items() if value != usual[key]]
        given = [key.removesuffix("=1") if usual[key.partition("=")[0]] == 0 and key.endswith("=1") else key for key in given]
        given += [name for name in ("embeddings", "head") if getattr(self, name)]
        return f"{self.name}{{{' '.join(given)}}}" if given else self.name

    @property
    def like(self) -> str:
        """Whose layout it is."""
        return _KINDS[self.name].like

    @property
    def family(self) -> str:
        """Return which family of kernels runs it, by the words of `irscope.weights.packed`."""
        return _KINDS[self.name].family

    @property
    def measured(self) -> tuple[str, str]:
        """Format and granularity of the rounding whose error is measured."""
        group = self.options.get("group", self.options.get("block", 0))
        form = _KINDS[self.name].form or f"int{self.options.get('bits', 4)}"
        return form, f"g{group}" if group else "channel"

    @property
    def has_experts(self) -> bool:
        """Return whether matrices of experts in one tensor of three axes are stored so; bitsandbytes takes linear layers alone."""
        return self.family != "bitsandbytes"

    def refuses(self, outputs: int, inputs: int) -> str:
        """Return why a matrix cannot be stored so; empty where it can."""
        if not outputs or not inputs:
            return "it is empty"
        group, packed = self.options.get("group", 0), _KINDS[self.name].packed
        if group and inputs % min(group, inputs if self.name != "mxfp4" else group):
            return f"groups of {group:,} do not divide {inputs:,} inputs"
        if packed in ("inputs", "both") and inputs * self._bits % 32:
            return f"{inputs:,} inputs of {self._bits} bits do not fill words of 32"
        if packed in ("outputs", "both") and outputs * self._bits % 32:
            return f"{outputs:,} outputs of {self._bits} bits do not fill words of 32"
        return ""

    @property
    def _bits(self) -> int:
        return self.options.get("bits", 4)

    def parts(self, outputs: int, inputs: int) -> tuple[StoredPart, ...]:
        """Return the tensors of a matrix, codes first."""
        return tuple(_MAKERS[self.name](self, outputs, inputs))

    def bytes(self, outputs: int, inputs: int) -> int:
        """Return what they take."""
        return sum(part.bytes for part in self.parts(outputs, inputs))


def parse_scheme(text: str) -> Scheme:
    """Return the scheme that `--as` names, such as `nf4`, `int4{group=64}`; UsageError for others."""
    name, brace, rest = text.strip().partition("{")
    kind = _KINDS.get(name)
    if kind is None:
        raise UsageError(f"there is no way to store weights called {name!r}", code="IRS432", hint=", ".join(_KINDS))
    try:
        given, end = read_options(rest) if brace else ({}, 0)
    except OptionsError as error:
        raise UsageError(f"--as {text}: {error}", code="IRS432", hint=_example(name)) from None
    if brace and rest[end:].strip():
        raise UsageError(f"--as {text}: {rest[end:]!r} follows the brace", code="IRS432", hint=_example(name))
    options = dict(kind.options)
    flags: dict[str, bool] = {}
    for key, value in given.items():
        if key in ("embeddings", "head") and value in (None, "true", "false"):
            flags[key] = value != "false"
        elif key in options and value is None and kind.options[key] == 0:
            options[key] = 1
        elif key in options and value is not None and value.lower() in ("true", "false"):
            options[key] = int(value.lower() == "true")
        elif key in options and value is not None and value.isdecimal() and len(value) < 10:
            options[key] = int(value)
        else:
            known = ", ".join((*options, "embeddings", "head"))
            wrong = f"{key}={value}" if key in options else key
            raise UsageError(f"{name} has no setting {wrong!r}", code="IRS432", hint=f"it has {known}")
    _check_options(name, kind, options)
    return Scheme(name, options, **flags)


def _check_options(name: str, kind: _Kind, options: Mapping[str, int]) -> None:
    for key, allowed in kind.allowed.items():
        if options[key] not in allowed:
            said = ", ".join(map(str, allowed))
            raise UsageError(f"{name} has no {key}={options[key]}", code="IRS432", hint=f"{key} is one of {said}")


def _example(name: str) -> str:
    options = _KINDS[name].options
    inner = " ".join(f"{key}={value}" for key, value in options.items() if value) or "head"
    return f"for example {name}{{{inner}}}"


@immutable(slots=False)
class _Kind:
    like: str
    family: str
    form: str
    """Of `irscope.weights.losses`; empty for integers of as many bits as are asked for."""
    options: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    packed: str = ""
    """The axis along which codes fill words of 32 bits that must be full."""


_GROUPS: Final = (16, 32, 64, 128, 256, 512, 1024)
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_BNB4: Final = {"block": 64, "double": 0}
_BNB4_ALLOWED: Final = {"block": _BLOCKS, "double": (0, 1)}
_GPTQ: Final = {"bits": 4, "group": 128}
_KINDS: Final[Mapping[str, _Kind]] = {
    "int8": _Kind("bitsandbytes 8 bit: a scale a row", "bitsandbytes", "int8"),
    "nf4": _Kind("bitsandbytes 4 bit, normal float", "bitsandbytes", "nf4", _BNB4, _BNB4_ALLOWED),
    "fp4": _Kind("bitsandbytes 4 bit, float", "bitsandbytes", "fp4", _BNB4, _BNB4_ALLOWED),
    "fp8": _Kind("transformers' FP8: e4m3, a scale a block", "float8", "fp8_e4m3", {"block": 128}, {"block": (64, 128, 256)}),
    "int4": _Kind("compressed-tensors packed: symmetric", "compressed-tensors", "int4", {"group": 128}, {"group": _GROUPS}, "inputs"),
    "gptq": _Kind("GPTQ: zero points, order of inputs", "gptq", "", _GPTQ, {"bits": (2, 3, 4, 8), "group": _GROUPS}, "both"),
    "awq": _Kind("AWQ for gemm: zero points", "awq", "int4", {"group": 128}, {"group": _GROUPS}, "outputs"),
    "mxfp4": _Kind("MXFP4: groups of 32, scales of 8 bits", "mxfp4", "mxfp4", {"group": 32}, {"group": (32,)}),
}  # fmt: skip
SCHEMES: Final = tuple(_KINDS)


def _int8(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    return [StoredPart("weight", DType.I8, (outputs, inputs)), StoredPart("SCB", DType.F32, (outputs,))]


_NESTED: Final = 256
"""Scales that share one in bitsandbytes' nested quantisation."""


def _four_bit(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    count = outputs * inputs
    scales = -(-count // scheme.options["block"])
    parts = [StoredPart("weight", DType.U8, ((count + 1) // 2, 1))]
    if not scheme.options["double"]:
        return [*parts, StoredPart("weight.absmax", DType.F32, (scales,)), StoredPart("weight.quant_map", DType.F32, (16,))]
    return [
        *parts,
        StoredPart("weight.absmax", DType.U8, (scales,)),
        StoredPart("weight.quant_map", DType.F32, (16,)),
        StoredPart("weight.nested_absmax", DType.F32, (-(-scales // _NESTED),)),
        StoredPart("weight.nested_quant_map", DType.F32, (256,)),
    ]


def _fp8(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    block = scheme.options["block"]
    scales = StoredPart("weight_scale_inv", DType.F32, (-(-outputs // block), -(-inputs // block)))
    return [StoredPart("weight", DType.F8E4M3FN, (outputs, inputs)), scales]


def _int4(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    groups = -(-inputs // scheme.options["group"])
    return [
        StoredPart("weight_packed", DType.I32, (outputs, inputs * 4 // 32)),
        StoredPart("weight_scale", DType.BF16, (outputs, groups)),
        StoredPart("weight_shape", DType.I64, (2,)),
    ]


def _gptq(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    bits, groups = scheme.options["bits"], -(-inputs // scheme.options["group"])
    return [
        StoredPart("qweight", DType.I32, (-(-inputs * bits // 32), outputs)),
        StoredPart("qzeros", DType.I32, (groups, -(-outputs * bits // 32))),
        StoredPart("scales", DType.F16, (groups, outputs)),
        StoredPart("g_idx", DType.I32, (inputs,)),
    ]


def _awq(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    groups = -(-inputs // scheme.options["group"])
    return [
        StoredPart("qweight", DType.I32, (inputs, outputs // 8)),
        StoredPart("qzeros", DType.I32, (groups, outputs // 8)),
        StoredPart("scales", DType.F16, (groups, outputs)),
    ]


def _mxfp4(scheme: Scheme, outputs: int, inputs: int) -> list[StoredPart]:
    groups = inputs // 32
    return [StoredPart("weight_blocks", DType.U8, (outputs, groups, 16)), StoredPart("weight_scales", DType.U8, (outputs, groups))]


_MAKERS: Final = {
    "int8": _int8, "nf4": _four_bit, "fp4": _four_bit, "fp8": _fp8, "int4": _int4, "gptq": _gptq, "awq": _awq, "mxfp4": _mxfp4,
}  # fmt: skip


def scheme_in(config: Mapping[str, object]) -> Scheme | None:
    """Return the scheme that a `quantization_config` asks for, where there are no weights to see; None where it is none of these."""
    method = "bitsandbytes" if config.get("load_in_4bit") or config.get("load_in_8bit") else config.get("quant_method")
    group, bits = (config.get(key) for key in ("group_size", "bits"))
    try:
        if method == "bitsandbytes":
            name = "int8" if config.get("load_in_8bit") else str(config.get("bnb_4bit_quant_type") or "fp4")
            double = {"double": 1} if config.get("bnb_4bit_use_double_quant") and name != "int8" else {}
            return _scheme(name, double)
        if method == "gptq" and isinstance(bits, int) and isinstance(group, int):
            return _scheme("gptq", {"bits": bits, "group": group})
        if method == "awq" and bits == 4 and isinstance(group, int) and config.get("version", "gemm") == "gemm":
            return _scheme("awq", {"group": group})
        if method == "fp8":
            block = config.get("weight_block_size")
            return _scheme("fp8", {"block": block[0]} if isinstance(block, list | tuple) and block else {})
    except UsageError:
        return None
    return None


def _scheme(name: str, options: Mapping[str, int]) -> Scheme:
    kind = _KINDS.get(name)
    if kind is None:
        raise UsageError(f"there is no way to store weights called {name!r}", code="IRS432")
    found = {**kind.options, **options}
    _check_options(name, kind, found)
    return Scheme(name, found)
