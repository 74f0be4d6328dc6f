"""Weights in few bits: schemes by name with the tensors that each makes of a matrix, what runs them, and how a checkpoint is recognised.

Tensors of a scheme are those that the package named beside it keeps on the device; tests hold them against what it writes. Checkpoints are
recognised by the names, types and shapes that serialisers write, whatever the model:

    bitsandbytes  weight u8, weight.absmax, weight.quant_map, weight.quant_state.bitsandbytes__nf4 (nf4, fp4); weight i8, SCB (8 bit)
    GPTQ          qweight i32 packed along the inputs, qzeros, scales, g_idx
    AWQ           qweight i32 packed along the outputs (gemm) or the inputs (gemv), qzeros, scales
    float8, int8  weight f8 or i8 with weight_scale, weight_scale_inv, weight_scales
    compressed-tensors  weight_packed i32 or u8, weight_scale, weight_shape
    MXFP4         *_blocks u8, *_scales u8
    torchao       _weight_qdata, _weight_scale, and the type's name in the file's metadata
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple, TypeAlias

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.program import PackedPart
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
        """Return the name of its family."""
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
        return tuple(_KINDS[self.name].parts(self, outputs, inputs))

    def bytes(self, outputs: int, inputs: int) -> int:
        """Return what they take."""
        return sum(part.bytes for part in self.parts(outputs, inputs))


def parse_scheme(text: str) -> Scheme:
    """Return the scheme that `--as` names, such as `nf4`, `int4{group=64}`; UsageError for others."""
    name, brace, rest = text.strip().partition("{")
    kind = _kind_named(name)
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
    return _scheme(name, options, **flags)


def _kind_named(name: str) -> _Kind:
    if name not in _KINDS:
        raise UsageError(f"there is no way to store weights called {name!r}", code="IRS432", hint=", ".join(_KINDS))
    return _KINDS[name]


def _scheme(name: str, given: Mapping[str, int], *, embeddings: bool = False, head: bool = False) -> Scheme:
    """Return a scheme with some settings, which are checked, and the usual ones."""
    kind = _kind_named(name)
    options = {**kind.options, **given}
    for key, allowed in kind.allowed.items():
        if options[key] not in allowed:
            said = ", ".join(map(str, allowed))
            raise UsageError(f"{name} has no {key}={options[key]}", code="IRS432", hint=f"{key} is one of {said}")
    return Scheme(name, options, embeddings, head)


def _example(name: str) -> str:
    options = _KINDS[name].options
    inner = " ".join(f"{key}={value}" for key, value in options.items() if value) or "head"
    return f"for example {name}{{{inner}}}"


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


@immutable(slots=False)
class _Kind:
    """A named scheme: one record makes one."""

    like: str
    family: str
    form: str
    """Of `irscope.weights.losses`; empty for integers of as many bits as are asked for."""
    parts: Callable[[Scheme, int, int], list[StoredPart]]
    options: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    packed: str = ""
    """The axis along which codes fill words of 32 bits that must be full."""


_GROUPS: Final = (16, 32, 64, 128, 256, 512, 1024)
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_BNB4: Final = {"block": 64, "double": 0}
_BNB4_ALLOWED: Final = {"block": _BLOCKS, "double": (0, 1)}
_GROUPED: Final = {"group": 128}
_GPTQ: Final = {"bits": 4, "group": 128}
_KINDS: Final[Mapping[str, _Kind]] = {
    "int8": _Kind("bitsandbytes 8 bit: a scale a row", "bitsandbytes", "int8", _int8),
    "nf4": _Kind("bitsandbytes 4 bit, normal float", "bitsandbytes", "nf4", _four_bit, _BNB4, _BNB4_ALLOWED),
    "fp4": _Kind("bitsandbytes 4 bit, float", "bitsandbytes", "fp4", _four_bit, _BNB4, _BNB4_ALLOWED),
    "fp8": _Kind("transformers' FP8: e4m3, a scale a block", "float8", "fp8_e4m3", _fp8, {"block": 128}, {"block": (64, 128, 256)}),
    "int4": _Kind("compressed-tensors packed: symmetric", "compressed-tensors", "int4", _int4, _GROUPED, {"group": _GROUPS}, "inputs"),
    "gptq": _Kind("GPTQ: zero points, order of inputs", "gptq", "", _gptq, _GPTQ, {"bits": (2, 3, 4, 8), "group": _GROUPS}, "both"),
    "awq": _Kind("AWQ for gemm: zero points", "awq", "int4", _awq, _GROUPED, {"group": _GROUPS}, "outputs"),
    "mxfp4": _Kind("MXFP4: groups of 32, scales of 8 bits", "mxfp4", "mxfp4", _mxfp4, {"group": 32}, {"group": (32,)}),
}  # fmt: skip
SCHEMES: Final = tuple(_KINDS)


@immutable
class Family:
    """Layouts that the same kernels run."""

    kernel: str
    """The kernels that run them when a language model generates: `irscope.frontends.generation.quantised` has them by these words."""
    besides: str = ""
    """Memory that a kernel takes besides its output, for those that have a scheme."""


_FUSED: Final = "no plain weight, as a fused kernel does; its own workspace is not counted"
FAMILIES: Final[Mapping[str, Family]] = {
    "bitsandbytes": Family(
        "bitsandbytes",
        "a plain copy of the largest layer's weight (4 bit), or codes and sums of 32 bits (8 bit), as bitsandbytes 0.50 does",
    ),
    "float8": Family("float8", "codes and scales of the activations"),
    "compressed-tensors": Family("unpacked", f"{_FUSED}; transformers itself makes plain weights of it for good"),
    "gptq": Family("fused", _FUSED),
    "awq": Family("fused", _FUSED),
    "mxfp4": Family("fused", _FUSED),
    "int8": Family("fused"),
    "torchao": Family("torchao"),
}
"""By the word that a weight of a checkpoint has for who writes it so."""


def scheme_in(config: Mapping[str, object]) -> Scheme | None:
    """Return the scheme that a `quantization_config` asks for, where there are no weights to see; None where it is none of these."""
    method = method_of(config)
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


# -- weights of a checkpoint, by what their tensors are called and shaped -------------------------------------------------------

Shaped: TypeAlias = "tuple[DType, tuple[int, ...]]"
"""Element type and shape of a tensor."""
Tensors: TypeAlias = "Mapping[str, Shaped]"


@immutable
class PackedWeight:
    """A weight in few bits."""

    name: str
    """Of the weight that it stands for."""
    scheme: str
    """Such as `nf4`, `gptq 4 bit`."""
    family: str
    """Who writes it so: one of `FAMILIES`."""
    count: int
    """Weights that it stands for."""
    shape: tuple[int, ...] | None
    """Outputs and inputs, where the tensors tell."""
    tensors: tuple[str, ...]
    """The tensors that store it, codes first."""
    group: int = 0
    """Neighbours that share a scale, where the tensors tell; 0 otherwise."""


@immutable(slots=False)
class Packed:
    """The weights in few bits of a checkpoint."""

    weights: tuple[PackedWeight, ...] = ()
    unknown: str = ""
    """Why the number of weights is not known; empty where it is."""
    method: str = ""
    """Method that the configuration names."""

    def parts(self) -> Iterator[tuple[str, PackedPart]]:
        """Yield every tensor that is one of them or a part of it, with the number of weights that it counts for."""
        for weight in self.weights:
            for place, tensor in enumerate(weight.tensors):
                yield tensor, PackedPart(weight.scheme, weight.name, 0 if place else weight.count)


class Disagreement(ValueError):
    """Tensors that a layout has, of shapes that it does not have."""


def read_packed(
    tensors: Tensors, config: Mapping[str, Any] | None = None, metadata: Mapping[str, str] | None = None, *, is_whole: bool = True
) -> Packed:
    """Return the weights in few bits among the tensors; `config` is the `quantization_config` beside them, `metadata` the file's own.

    Of a part of a checkpoint, such as one shard, it is no wonder that it has none.
    """
    config = config or {}
    method = method_of(config)
    look = _Look(tensors, config, metadata or {})
    weights: list[PackedWeight] = []
    taken: set[str] = set()
    problem = ""
    try:
        for name in tensors:
            if name in taken:
                continue
            one = look.weight(name)
            if one is not None:
                weights.append(one)
                taken.update(one.tensors)
        problem = _checked(weights, method, config)
    except Disagreement as error:
        return Packed((), str(error), method)
    if not problem:
        problem = _left_over(tensors, taken, method, bool(weights) or not is_whole)
    return Packed(tuple(weights), problem, method)


def method_of(config: Mapping[str, Any]) -> str:
    """Return what a `quantization_config` calls its method; empty without one."""
    if config.get("load_in_4bit") or config.get("load_in_8bit"):
        return "bitsandbytes"
    return str(config.get("quant_method") or "")[:40]


_WRITTEN_BY: Final[Mapping[str, frozenset[str]]] = {
    "bitsandbytes": frozenset({"bitsandbytes"}),
    "gptq": frozenset({"gptq"}),
    "awq": frozenset({"awq"}),
    "fp8": frozenset({"float8"}),
    "mxfp8": frozenset({"float8"}),
    "fbgemm_fp8": frozenset({"float8"}),
    "modelopt": frozenset({"float8", "compressed-tensors"}),
    "eetq": frozenset({"int8"}),
    "compressed-tensors": frozenset({"compressed-tensors", "float8", "int8"}),
    "mxfp4": frozenset({"mxfp4"}),
    "torchao": frozenset({"torchao"}),
    "auto-round": frozenset({"gptq", "awq"}),
    "intel/auto-round": frozenset({"gptq", "awq"}),
}
"""Families of tensors that each method writes; others are not known."""


def _checked(weights: list[PackedWeight], method: str, config: Mapping[str, Any]) -> str:
    """Return why configuration and tensors are of two schemes; empty where they agree."""
    expected = _WRITTEN_BY.get(method)
    strange = next((weight for weight in weights if expected is not None and weight.family not in expected), None)
    if strange is not None:
        return f"the configuration says {method}, and {strange.name!r} is stored as {strange.family} does ({strange.scheme})"
    bits = config.get("bits", config.get("w_bit"))
    if isinstance(bits, int) and method in ("gptq", "awq"):
        strange = next((weight for weight in weights if f" {bits} bit" not in weight.scheme), None)
        if strange is not None:
            return f"the configuration says {bits} bits, and {strange.name!r} is stored as {strange.scheme}"
    group = config.get("group_size", config.get("q_group_size"))
    if isinstance(group, int) and group > 0 and method in ("gptq", "awq"):
        strange = next((one for one in weights if one.group and one.shape is not None and one.group != min(group, one.shape[1])), None)
        if strange is not None:
            return f"the configuration says groups of {group}, and those of {strange.name!r} have {strange.group}"
    if method == "bitsandbytes" and weights:
        wanted = (
            "int8" if config.get("load_in_8bit") else str(config.get("bnb_4bit_quant_type") or "") if config.get("load_in_4bit") else ""
        )
        strange = next((weight for weight in weights if wanted and weight.scheme.split()[0] != wanted), None)
        if strange is not None:
            return f"the configuration says {wanted}, and {strange.name!r} is stored as {strange.scheme}"
    return ""


_CODES: Final = (DType.I8, DType.U8, DType.I32, DType.U4, DType.I4, DType.U32, DType.I16)
_PACKED_NAMES: Final = re.compile(r"(?:^|[._])(?:qweight|weight_packed|qdata|blocks)$")


def _left_over(tensors: Tensors, taken: set[str], method: str, found: bool) -> str:
    """Return why there may be more weights than are counted; empty where there are not."""
    open_ = [
        name
        for name, (dtype, shape) in tensors.items()
        if name not in taken and dtype in _CODES and len(shape) > 1 and (method or _PACKED_NAMES.search(name))
    ]
    if open_:
        said = f"the configuration says {method}" if method else "the configuration does not say how"
        return f"{len(open_):,} tensors of whole numbers are in no layout that is known, the first {open_[0]!r}; {said}"
    if method in _WRITTEN_BY and not found:
        return f"the configuration says {method}, and no tensor is stored so"
    return ""


# -- layouts -----------------------------------------------------------------------------------------------------------

_BNB_STATE: Final = re.compile(r"(?P<weight>.+)\.quant_state\.bitsandbytes__(?P<kind>nf4|fp4)")
_BNB_BLOCKS: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_BNB_NESTED: Final = 256
"""Scales that share one where they are quantised again."""
_SCALES: Final = ("weight_scale_inv", "weight_scale", "weight_scales", "scale", "SCB")
_BESIDE: Final = (
    "weight_zero_point", "weight_global_scale", "weight_g_idx", "input_scale", "input_zero_point", "input_global_scale", "activation_scale",
    "output_scale", "weight_format", "weight_shape",
)  # fmt: skip


@immutable(slots=False)
class _Look:
    tensors: Tensors
    config: Mapping[str, Any]
    metadata: Mapping[str, str]
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the name of a weight: the tensor of its quant state, and which of the two codes it is in."""

    def __post_init__(self) -> None:
        for name in self.tensors:
            if (match := _BNB_STATE.fullmatch(name)) is not None:
                self.states[match["weight"]] = name, match["kind"]

    def weight(self, name: str) -> PackedWeight | None:
        """Return the weight whose codes a tensor holds; None where it holds none."""
        stem, dot, last = name.rpartition(".")
        read = _READERS.get(last)
        if name in self.states:
            return self._bitsandbytes(name)
        if read is not None:
            return read(self, name, stem + dot)
        if last.endswith("_blocks"):
            return self._mxfp4(name)
        if last.startswith("_") and last.endswith("_qdata"):
            return self._torchao(name, stem + dot, last[1 : -len("_qdata")])
        if self.tensors[name][0] in _FLOAT8 and len(self.tensors[name][1]) > 1:
            return self._scaled(name, stem + dot, last)
        return None

    def among(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in self.tensors)

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Return the shape of a tensor that a layout has; Disagreement where there is none, or one of other axes."""
        if name not in self.tensors:
            raise Disagreement(f"{name!r} is missing, without which its layer is no whole")
        shape = self.tensors[name][1]
        if len(shape) != axes:
            raise Disagreement(f"{name!r} has {len(shape)} axes instead of {axes}")
        return shape

    # -- bitsandbytes

    def _bitsandbytes(self, name: str) -> PackedWeight:
        state, kind = self.states[name]
        dtype, shape = self.tensors[name]
        (scales,) = self.shape(f"{name}.absmax", 1)
        count = math.prod(shape) * (dtype.bits or 8) // 4
        block = next((block for block in _BNB_BLOCKS if -(-count // block) == scales), 0)
        if not block:
            raise Disagreement(f"{name!r} holds {count:,} weights, and {scales:,} scales fit no size of blocks")
        nested = f"{name}.nested_absmax"
        if nested in self.tensors and self.shape(nested, 1) != (-(-scales // _BNB_NESTED),):
            raise Disagreement(f"{nested!r} has {self.tensors[nested][1][0]:,} scales for {scales:,}")
        beside = self.among(f"{name}.absmax", f"{name}.quant_map", nested, f"{name}.nested_quant_map")
        return PackedWeight(
            name, f"{kind}{' double' if nested in self.tensors else ''}", "bitsandbytes", count, None, (name, *beside, state), block
        )

    # -- GPTQ and AWQ

    def _qweight(self, name: str, stem: str) -> PackedWeight | None:
        if self.tensors[name][0] is not DType.I32 or len(self.tensors[name][1]) != 2:
            return None
        first, second = self.tensors[name][1]
        scales, zeros, order = f"{stem}scales", f"{stem}qzeros", f"{stem}g_idx"
        if scales not in self.tensors or zeros not in self.tensors:
            return None  # other layouts, such as Marlin's, have no zero points
        groups, outputs = self.shape(scales, 2)
        zero_shape = self.shape(zeros, 2)
        parts = self.among(name, zeros, scales, order)
        if outputs == second:
            bits = _ratio(zero_shape[1] * 32, outputs, zeros)
            inputs = _ratio(first * 32, bits, name)
            if zero_shape[0] != groups:
                raise Disagreement(f"{zeros!r} has {zero_shape[0]:,} groups, {scales!r} {groups:,}")
            if order in self.tensors and self.shape(order, 1) != (inputs,):
                raise Disagreement(f"{order!r} is for {self.tensors[order][1][0]:,} inputs, {name!r} has {inputs:,} at {bits} bits")
            return self._grouped(stem, f"gptq {bits} bit", "gptq", outputs, inputs, groups, parts)
        if first == groups and outputs != second:
            # For gemv kernels scales and zero points are padded, so that groups cannot be told from them.
            group = self.config.get("group_size", self.config.get("q_group_size"))
            return PackedWeight(
                f"{stem}weight", "awq 4 bit", "awq", first * second * 8, (first, second * 8), parts, group if isinstance(group, int) else 0
            )
        bits = _ratio(second * 32, outputs, name)
        if zero_shape != (groups, second):
            raise Disagreement(f"{zeros!r} is of shape {list(zero_shape)} instead of {[groups, second]}")
        return self._grouped(stem, f"awq {bits} bit", "awq", outputs, first, groups, parts)

    def _grouped(self, stem: str, scheme: str, family: str, outputs: int, inputs: int, groups: int, parts: tuple[str, ...]) -> PackedWeight:
        group = -(-inputs // groups) if groups else 0
        said = self.config.get("group_size", self.config.get("q_group_size"))
        if isinstance(said, int) and said > 0 and -(-inputs // said) == groups:
            group = min(said, inputs)
        return PackedWeight(f"{stem}weight", scheme, family, outputs * inputs, (outputs, inputs), parts, group)

    # -- one code a weight, with scales

    def _weight(self, name: str, stem: str) -> PackedWeight | None:
        dtype, shape = self.tensors[name]
        return self._scaled(name, stem, "weight") if dtype in (DType.I8, *_FLOAT8) and len(shape) > 1 else None

    def _scaled(self, name: str, stem: str, last: str) -> PackedWeight | None:
        """Return a weight of which each element is a code, where a scale lies beside it."""
        dtype, shape = self.tensors[name]
        names = [f"{stem}{one}" for one in _SCALES] if last == "weight" else [f"{name}_scale_inv", f"{name}_scale"]
        scales = next((name for name in names if name in self.tensors), "")
        if not scales:
            return None
        held = self.tensors[scales][1]
        if len(held) > len(shape) or any(size > whole for size, whole in zip(held, shape, strict=False)):
            raise Disagreement(f"{scales!r} is of shape {list(held)}, its weight of {list(shape)}")
        family = "bitsandbytes" if scales.endswith("SCB") else "float8" if dtype.is_float else "int8"
        kind = dtype.text if dtype.is_float else "int8"
        beside = self.among(*(f"{stem}{one}" for one in _BESIDE)) if last == "weight" else ()
        return PackedWeight(name, f"{kind}{_scale_text(shape, held)}", family, math.prod(shape), shape, (name, scales, *beside))

    # -- compressed-tensors

    def _weight_packed(self, name: str, stem: str) -> PackedWeight | None:
        dtype, shape = self.tensors[name]
        scales = f"{stem}weight_scale"
        if scales not in self.tensors or len(shape) < 2:
            return None
        beside = self.among(scales, *(f"{stem}{one}" for one in _BESIDE))
        held = self.tensors[scales][1]
        if dtype is DType.U8:
            inputs, kind = shape[-1] * 2, "nvfp4" if self.tensors[scales][0].is_float else "mxfp4"
        else:
            bits, said = self._bits()
            if not bits or dtype is not DType.I32:
                return None
            inputs, kind = shape[-1] * 32 // bits, f"int{bits}"
            if 32 % bits:  # the last word of a row may not be full
                if not said or len(held) != len(shape):
                    return None
                inputs = min(inputs, held[-1] * said)
        groups = held[-1] if len(held) == len(shape) else 1
        if groups and inputs % groups and groups > inputs:
            raise Disagreement(f"{scales!r} has {groups:,} groups for {inputs:,} inputs")
        group = -(-inputs // groups) if groups > 1 else 0
        whole = (*shape[:-1], inputs)
        return PackedWeight(
            f"{stem}weight",
            f"{kind}{f' group {group}' if group else ''}",
            "compressed-tensors",
            math.prod(whole),
            whole,
            (name, *beside),
            group,
        )

    def _bits(self) -> tuple[int, int]:
        """Bits of a weight and size of a group, where all groups of the configuration have the same; 0 for what is not said."""
        groups = self.config.get("config_groups")
        found: list[tuple[int, int]] = []
        for one in groups.values() if isinstance(groups, dict) else ():
            weights = one.get("weights") if isinstance(one, dict) else None
            if isinstance(weights, dict):
                bits, group = weights.get("num_bits"), weights.get("group_size")
                found.append((bits if type(bits) is int and 0 < bits <= 8 else 0, group if type(group) is int and group > 0 else 0))
        return found[0] if found and found.count(found[0]) == len(found) else (0, 0)

    # -- MXFP4 as gpt-oss has it

    def _mxfp4(self, name: str) -> PackedWeight | None:
        dtype, shape = self.tensors[name]
        stem = name.removesuffix("_blocks")
        scales = f"{stem}_scales"
        if dtype is not DType.U8 or len(shape) < 3 or scales not in self.tensors:
            return None
        if self.tensors[scales][1] != shape[:-1]:
            raise Disagreement(f"{scales!r} is of shape {list(self.tensors[scales][1])} instead of {list(shape[:-1])}")
        group = 2 * shape[-1]
        return PackedWeight(stem, "mxfp4", "mxfp4", math.prod(shape) * 2, (*shape[:-2], shape[-2] * group), (name, scales), group)

    # -- torchao

    def _torchao(self, name: str, stem: str, weight: str) -> PackedWeight | None:
        dtype, shape = self.tensors[name]
        type_, data = self._torchao_type(f"{stem}{weight}")
        prefix = f"{stem}_{weight}_"
        beside = self.among(*(f"{prefix}{one}" for one in _TORCHAO_PARTS))
        if dtype in _FLOAT8 or (dtype is DType.I8 and not type_.startswith("Int4")):
            count, whole = math.prod(shape), shape
        elif type_.startswith(("Int4", "NVFP4")) or (type_ == "MXTensor" and "float4" in json.dumps(data)):
            count = math.prod(shape) * (dtype.bits or 8) // 4
            whole = (shape[0], count // shape[0]) if len(shape) == 2 and shape[0] else ()
        else:
            return None
        target = data.get("target_dtype")
        kind = str(target.get("_data")) if isinstance(target, dict) else _TORCHAO_KINDS.get(type_, "") or dtype.text
        block = data.get("block_size")
        group = block[-1] if isinstance(block, list) and block and isinstance(block[-1], int) else 0
        text = f" group {group}" if whole and 0 < group < whole[-1] else ""
        return PackedWeight(f"{stem}{weight}", f"{kind}{text}", "torchao", count, whole or None, (name, *beside), group)

    def _torchao_type(self, weight: str) -> tuple[str, Mapping[str, Any]]:
        """Return the class that the file's metadata names, and its settings."""
        try:
            found = json.loads(self.metadata.get(weight, ""))
        except (ValueError, RecursionError):
            return "", {}
        if not isinstance(found, dict):
            return "", {}
        data = found.get("_data")
        return str(found.get("_type", "")), data if isinstance(data, dict) else {}


_FLOAT8: Final = tuple(one for one in DType if one.kind is DTypeKind.FLOAT and one.bits == 8 and one is not DType.F8E8M0)
_TORCHAO_PARTS: Final = ("scale", "zero_point", "scale_and_zero", "per_tensor_scale", "act_pre_scale", "act_per_tensor_scale")
_TORCHAO_KINDS: Final = {
    "Int8Tensor": "int8",
    "Int4Tensor": "int4",
    "Int4TilePackedTo4dTensor": "int4 tiles",
    "Int4PlainInt32Tensor": "int4",
    "MXTensor": "mx",
    "NVFP4Tensor": "nvfp4",
}
_READERS: Final[Mapping[str, Callable[[_Look, str, str], PackedWeight | None]]] = {
    "qweight": _Look._qweight,
    "weight": _Look._weight,
    "weight_packed": _Look._weight_packed,
}


def _ratio(bits: int, each: int, name: str) -> int:
    if not each or bits % each or not bits:
        raise Disagreement(f"{name!r} has a size that no number of bits gives")
    return bits // each


def _scale_text(shape: tuple[int, ...], scales: tuple[int, ...]) -> str:
    """Return how scales are shared, in words; empty for one of all."""
    if math.prod(scales) == 1:
        return ""
    if len(scales) >= 2 and scales[-1] > 1 and scales[-2]:
        return f" blocks of {_next_power_of_two(-(-shape[-2] // scales[-2]))}x{_next_power_of_two(-(-shape[-1] // scales[-1]))}"
    return " by row"


def _next_power_of_two(size: int) -> int:
    """Return the next power of two: the last block of a side may be shorter."""
    return 1 << (size - 1).bit_length() if size else 0
