"""Folders as hubs have them: a configuration, weights in one file or several behind an index, adapters that go on top of another folder.

What a folder holds is data: configurations and the headers of weights are read and checked, no value of a weight is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint as checkpoints
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.graph import paused_gc
from irscope.ir.program import WEIGHTS, Assumed, Program
from irscope.ir.types import TensorType, tensor
from irscope.weights.schemes import Packed, read_packed
from irscope.weights.source import Forbidden, Malformed, ModelFolder

INDEX: Final = "model.safetensors.index.json"
_WEIGHTS: Final = (INDEX, "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
"""In the order in which `from_pretrained` looks for them."""


@immutable(slots=False)
class Tensors:
    """The tensors of a checkpoint by file, as stored."""

    files: Mapping[str, Mapping[str, tuple[DType, tuple[int, ...]]]]
    packed: Packed = field(default_factory=Packed)
    """Which of them are weights in few bits."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(stored_bytes(dtype, shape) for tensors in self.files.values() for dtype, shape in tensors.values())

    @property
    def by_dtype(self) -> dict[DType, int]:
        """Return the bytes by element type."""
        found: dict[DType, int] = {}
        for tensors in self.files.values():
            for dtype, shape in tensors.values():
                found[dtype] = found.get(dtype, 0) + stored_bytes(dtype, shape)
        return found


def stored_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    bits = dtype.bits or 8
    for size in shape:
        bits *= size
    return (bits + 7) // 8


def read_folder(folder: Path, sink: DiagnosticSink, *, weights: bool = True) -> tuple[dict[str, Any], Tensors | None]:
    """Return the configuration of a hub folder, and what its weights are, where it has any."""
    files = ModelFolder(folder)
    config = _json_of(files, folder, "config.json")
    if config is None:
        raise LoadError(
            "the folder has no config.json", code="IRS197", where=str(folder), hint="name the folder of a model with its config.json"
        )
    for name in _WEIGHTS if weights else ():
        if _find(files, folder, name) is not None:
            return config, _tensors_of(folder, name, sink)
    return config, None


def own_cache(folder: Path) -> tuple[str, str]:
    """Return the kind of cache that a folder's settings ask for, and the file that says it; empty where none does."""
    files = ModelFolder(folder)
    for name in ("generation_config.json", "config.json"):
        found = (_json_of(files, folder, name) or {}).get("cache_implementation")
        if isinstance(found, str):
            return found, name
    return "", ""


def own_lengths(folder: Path) -> tuple[int | None, int | None]:
    """Return how many new tokens a folder's settings ask for, and how many its model can hold; None where it does not say."""
    files = ModelFolder(folder)
    asked = (_json_of(files, folder, "generation_config.json") or {}).get("max_new_tokens")
    config = _json_of(files, folder, "config.json") or {}
    text = config.get("text_config")
    configs = (config, text if isinstance(text, dict) else {})
    context = next((size for each in configs for key in CONTEXTS if (size := each.get(key)) is not None), None)
    return _positive(asked), _positive(context)


_PROMPT, _NEW = 1024, 256
"""Tokens where nobody says how many, as benchmarks of serving have them."""


def usual_lengths(model: str) -> tuple[int, int, bool]:
    """Return a usual prompt and number of new tokens of a language model, within its context; and whether its folder says the second."""
    new, context = own_lengths(Path(model)) if Path(model).is_dir() else (None, None)
    chosen = new or min(_NEW, max(1, (context or _NEW * 2) // 2))
    return min(_PROMPT, max(1, context - chosen)) if context else _PROMPT, chosen, new is not None


def _positive(size: object) -> int | None:
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


CONTEXTS: Final = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
"""Keys by which configurations name the longest sequence."""


def own_code(folder: Path) -> dict[str, str]:
    """Return what the configuration in a folder says of code beside it: the classes that stand for those of transformers."""
    config = _json_of(ModelFolder(folder), folder, "config.json") or {}
    found = config.get("auto_map")
    return {str(key): value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _find(files: ModelFolder, folder: Path, name: str) -> Path | None:
    try:
        found = files.find(name)
    except Forbidden as error:
        raise LoadError(f"{name!r} {error}", code="IRS197", where=str(folder), hint=error.hint) from None
    return None if found is None else Path(found.path)


def _json_of(files: ModelFolder, folder: Path, name: str) -> dict[str, Any] | None:
    try:
        return files.settings(name)
    except Forbidden as error:
        raise LoadError(f"{name!r} {error}", code="IRS197", where=str(folder), hint=error.hint) from None
    except Malformed as error:
        raise LoadError(str(error), code="IRS197", where=str(folder / name), hint=error.hint) from None


def _tensors_of(folder: Path, name: str, sink: DiagnosticSink) -> Tensors:
    program = checkpoints.load(folder / name, LoadOptions(), sink)
    files: dict[str, dict[str, tuple[DType, tuple[int, ...]]]] = {}
    for weight in program.graph.weights:
        type_ = weight.type
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        place = getattr(program.graph.data.get(weight), "path", "")
        shape = tuple(size for size in type_.shape if isinstance(size, int))
        files.setdefault(Path(place).name or name, {})[str(weight.name)] = (type_.dtype, shape)
    every = {name: one for of_file in files.values() for name, one in of_file.items()}
    return Tensors(files, read_packed(every, checkpoints.quantization_beside(folder), program.metadata))


ADAPTER: Final = "adapter_config.json"
_ADAPTER_WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin")
_LARGEST_RANK: Final = 1 << 20
_PART: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[^\s]+)\.lora_(?P<part>A|B|embedding_A|embedding_B)(?:\.[^.]+)?(?:\.weight)?"
)
"""Names that peft gives the two matrices of a module; older versions put the adapter's own name between."""


@immutable(slots=False)
class Pair:
    """The two matrices that an adapter puts beside a module: `down` is [rank, inputs], `up` [outputs, rank]."""

    down: TensorType
    up: TensorType

    @property
    def rank(self) -> int:
        """Return what lies between the two."""
        return stored_sizes(self.down)[0]


@immutable(slots=False)
class Adapter:
    """A LoRA adapter: what its adapter_config.json says, and what its weights are."""

    folder: Path
    base: str
    """The folder of the model that it goes on top of, or its name, as `base_from` says it."""
    base_from: str
    rank: int
    alpha: float
    targets: tuple[str, ...] | str
    """Ends of the names of modules that have a pair of matrices; "all-linear", or a regular expression, where it is a text."""
    settings: Mapping[str, Any]
    """All of adapter_config.json."""
    tensors: Tensors | None
    """As stored; None where the folder has no weights."""

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """Return the matrices in the file by the module of the base that they are beside; empty without a file."""
        found: dict[str, dict[str, TensorType]] = {}
        for name, type_ in self._stored():
            if (match := _PART.fullmatch(name)) is not None and type_.rank == 2:
                found.setdefault(match["module"], {})[match["part"]] = type_
        pairs: dict[str, Pair] = {}
        for module, parts in found.items():
            down, up = parts.get("A", parts.get("embedding_A")), parts.get("B", parts.get("embedding_B"))
            if down is None or up is None or stored_sizes(down)[0] != stored_sizes(up)[1]:
                what = f"the two matrices of {module[:80]!r} do not belong together"
                raise LoadError(what, code="IRS168", where=str(self.folder), hint="save the adapter again")
            pairs[module] = Pair(down, up)
        return pairs

    @cached_property
    def further(self) -> dict[str, TensorType]:
        """Stored tensors besides these matrices, by their names in the base: whole copies of modules, biases, magnitudes."""
        return {name.removeprefix("base_model.model."): type_ for name, type_ in self._stored() if _PART.fullmatch(name) is None}

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """Return what the header of a report says: the base, and what is not in the folder."""
        found = [Assumed("base", self.base, self.base_from, is_guess=False)]
        if self.tensors is None:
            found.append(Assumed("adapter", f"rank {self.rank} in f32", "the folder has no adapter_model.safetensors", is_guess=False))
        if self.settings.get("use_dora"):
            found.append(Assumed(WEIGHTS, "an adapter without magnitudes", "use_dora, whose further operators are not analysed"))
        return tuple(found)

    def _stored(self) -> Iterator[tuple[str, TensorType]]:
        for tensors in self.tensors.files.values() if self.tensors is not None else ():
            for name, (dtype, shape) in tensors.items():
                yield name, tensor(dtype, shape)

    def rank_of(self, module: str) -> int:
        """Return the rank beside a module, of which adapter_config.json may say another than the usual one."""
        said = _by_ending(self.settings.get("rank_pattern"), module)
        return said if isinstance(said, int) and 0 < said <= _LARGEST_RANK else self.rank

    def scaling_of(self, module: str) -> float:
        """Return what the product of the two matrices is multiplied by."""
        said = _by_ending(self.settings.get("alpha_pattern"), module)
        alpha = said if isinstance(said, int | float) else self.alpha
        rank = self.rank_of(module)
        return alpha / (rank**0.5 if self.settings.get("use_rslora") else rank)

    def is_beside(self, module: str) -> bool:
        """Return whether a module has a pair of matrices: the stored ones say it, else the names in adapter_config.json do."""
        if self.tensors is not None:
            return module in self.pairs
        if isinstance(self.targets, str) or _ends_with(module, self.settings.get("exclude_modules")):
            return False
        return _ends_with(module, self.targets)


def stored_sizes(type_: TensorType) -> tuple[int, ...]:
    """Return the sizes of a stored tensor, which are all numbers."""
    return tuple(size for size in type_.shape or () if isinstance(size, int))


def _ends_with(module: str, names: object) -> bool:
    """Return whether a module is called so, or its name ends in one of these after a point: peft's rule for a list of names."""
    found = [names] if isinstance(names, str) else names if isinstance(names, list | tuple) else []
    return any(module == name or module.endswith(f".{name}") for name in found)


def _by_ending(table: object, module: str) -> object:
    """Return an entry of a table by ends of names, of which the first that fits holds. Regular expressions of a file are not run."""
    entries = table.items() if isinstance(table, dict) else ()
    return next((value for name, value in entries if _ends_with(module, str(name).removeprefix("^"))), None)


def read_adapter(folder: Path, base: str = "", sink: DiagnosticSink | None = None) -> Adapter | None:
    """Return the adapter in a folder, on top of a base that a user or else its configuration names; None where it has none.

    LoadError where it is no LoRA adapter, and where its base is not on this machine.
    """
    files = ModelFolder(folder)
    settings = _json_of(files, folder, ADAPTER)
    if settings is None:
        return None
    where = str(folder / ADAPTER)
    kind = settings.get("peft_type")
    if kind != "LORA":
        raise LoadError(f"its peft_type is {str(kind)[:40]!r}", code="IRS168", where=where, hint="adapters of LoRA are read")
    rank, alpha, targets = settings.get("r"), settings.get("lora_alpha", 8), settings.get("target_modules")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 < rank <= _LARGEST_RANK:
        raise LoadError(f"its rank r is {str(rank)[:40]}", code="IRS168", where=where, hint="save the adapter again")
    if isinstance(targets, list):
        targets = tuple(str(target) for target in targets)
    named = next((name for name in _ADAPTER_WEIGHTS if _find(files, folder, name) is not None), "")
    stored = _tensors_of(folder, named, DiagnosticSink() if sink is None else sink) if named else None
    if stored is None and not (isinstance(targets, tuple) and targets):
        message = "the folder has no adapter_model.safetensors, and which modules it is beside is not a list of names"
        raise LoadError(message, code="IRS168", where=where, hint="put its weights beside it")
    found, found_from = _base_of(folder, settings, base)
    return Adapter(
        folder,
        found,
        found_from,
        rank,
        float(alpha) if isinstance(alpha, int | float) else 8.0,
        targets if isinstance(targets, tuple | str) else (),
        settings,
        stored,
    )


def _base_of(folder: Path, settings: Mapping[str, Any], given: str) -> tuple[str, str]:
    """Return the base of an adapter, and who says so: the user, the adapter, or the folder itself, which holds both."""
    if given:
        return given, "--base"
    named = settings.get("base_model_name_or_path")
    named = named if isinstance(named, str) and "\0" not in named else ""
    for path in (folder / named, Path(named)) if named else ():
        if os.path.isdir(path) and not path.samefile(folder):  # isdir: of a name that no file can have it is False
            return os.path.normpath(path), ADAPTER
    if (folder / "config.json").is_file():
        return str(folder), "the same folder"
    message = (
        f"it is an adapter of {named[:120]!r}, which is not a folder here" if named else "it is an adapter, and does not say of which model"
    )
    raise LoadError(message, code="IRS168", where=str(folder), hint="--base FOLDER names the model that it goes on top of")


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the weights of an adapter and of its base, by the path of adapter_config.json, as a program whose graph has no nodes."""
    adapter = read_adapter(path.parent, options.base, sink)
    if adapter is None:
        raise LoadError("the folder has no adapter_config.json", code="IRS168", where=str(path))
    base = Path(adapter.base)
    if not base.is_dir():
        message = f"its base is {adapter.base[:120]!r}, a model by name"
        raise LoadError(
            message, code="IRS195", where=str(path), hint="pip install torch transformers, or name a folder with weights: --base FOLDER"
        )
    table = checkpoints.WeightTable(path, sink)
    files = ModelFolder(base)
    named = next((name for name in _WEIGHTS if _find(files, base, name) is not None), "")
    if not named:
        hint = "with transformers installed, its configuration says what they are: pip install torch transformers"
        raise LoadError("its base has no weights", code="IRS168", where=str(base), hint=hint)
    with paused_gc():
        checkpoints.read_weights(base / named, table)
        shapes = table.shapes()
        for module, pair in adapter.pairs.items():
            _check_pair(adapter, module, pair, shapes)
        if adapter.tensors is not None:
            for name in adapter.tensors.files:
                checkpoints.read_weights(path.parent / name, table)
        else:
            _add_assumed(adapter, shapes, table)
    program = table.program()
    checkpoints.mark_packed(program, base / named, sink)
    program.assumed += adapter.assumed
    return program


def _check_pair(adapter: Adapter, module: str, pair: Pair, shapes: Mapping[str, TensorType]) -> None:
    """Check that an adapter fits the module beside it. Weights of a quantised base have other shapes than their modules."""
    base = shapes.get(f"{module}.weight")
    if base is None and not any(name.startswith(f"{module}.") for name in shapes):
        message = f"it is beside {module[:80]!r}, which its base {adapter.base[:80]!r} does not have"
        raise LoadError(message, code="IRS168", where=str(adapter.folder), hint="--base FOLDER names another base")
    if base is None or base.rank != 2 or not base.dtype.is_float or (base.dtype.bits or 0) < 16:
        return
    across = {stored_sizes(pair.up)[0], stored_sizes(pair.down)[1]}
    if across != set(stored_sizes(base)):
        sizes = "x".join(map(str, stored_sizes(base)))
        message = f"its matrices beside {module[:80]!r} are {pair.down} and {pair.up}, the base's weight is {sizes}"
        raise LoadError(message, code="IRS168", where=str(adapter.folder), hint="--base FOLDER names another base")


def _add_assumed(adapter: Adapter, shapes: Mapping[str, TensorType], table: checkpoints.WeightTable) -> None:
    """Add the weights that peft would make where a folder has no weights: f32, beside matrices with the names that it lists."""
    beside = {name.removesuffix(".weight"): type_ for name, type_ in shapes.items() if name.endswith(".weight") and type_.rank == 2}
    found = {module: stored_sizes(type_) for module, type_ in beside.items() if adapter.is_beside(module)}
    for module, (outputs, inputs) in found.items():
        rank = adapter.rank_of(module)
        table.add(f"{module}.lora_A.weight", tensor(DType.F32, (rank, inputs)), None)
        table.add(f"{module}.lora_B.weight", tensor(DType.F32, (outputs, rank)), None)
    if not found:
        message = f"no weight of {adapter.base[:80]!r} is called as its target_modules say"
        raise LoadError(message, code="IRS168", where=str(adapter.folder), hint="--base FOLDER names another base")
