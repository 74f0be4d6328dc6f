"""Whether the weights in a folder are those of the model that its configuration describes, by names and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.files.folders import Tensors
from irscope.ir.dtypes import DType


def compare_weights(module: Any, tensors: Tensors, sink: DiagnosticSink) -> None:
    """Say what of a checkpoint is missing, left over, or has other sizes than the module that the configuration makes."""
    hint = "weights and configuration may be of different models"
    for message in _disagreements(module, tensors):
        sink.warn("IRS167", message, hint=hint, about="weights")


def _disagreements(module: Any, tensors: Tensors) -> Iterator[str]:
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict(keep_vars=True).items()}
    owners: dict[int, set[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        owners.setdefault(id(tensor), set()).add(name)
    stored = {name: shape for held in tensors.files.values() for name, (_, shape) in held.items()}
    places = _places_in_module(module, list(stored), wanted)
    if places is None:
        return
    reached = {place for place, _ in places.values()}
    # A tensor that has two names is stored under one of them.
    missing = [name for name in wanted if not any(one in reached for one in next(held for held in owners.values() if name in held))]
    lacking = [name for name in missing if not _is_one_of(module, "_keys_to_ignore_on_load_missing", name)]
    if lacking:
        yield f"the folder lacks {_tensors_text(lacking)} of the model that its configuration describes"
    left = [name for name, (place, _) in places.items() if place not in wanted]
    left = [name for name in left if not _is_one_of(module, "_keys_to_ignore_on_load_unexpected", places[name][0])]
    if left:
        yield f"the folder holds {_tensors_text(left)} that the model of its configuration does not have"
    for name, (place, is_whole) in places.items():
        if is_whole and place in wanted and stored[name] != wanted[place]:
            sizes = ("x".join(map(str, one)) or "a number" for one in (stored[name], wanted[place]))
            yield "{!r} is {} in the folder and {} by its configuration".format(name[:80], *sizes)
            return


def _tensors_text(names: list[str]) -> str:
    shown = repr(sorted(names)[0][:80])
    return f"the tensor {shown}" if len(names) == 1 else f"{len(names):,} tensors, such as {shown},"


def _is_one_of(module: Any, table: str, name: str) -> bool:
    import re

    return any(re.search(pattern, name) for pattern in getattr(module, table, None) or ())


def _places_in_module(module: Any, names: list[str], wanted: dict[str, tuple[int, ...]]) -> dict[str, tuple[str, bool]] | None:
    """The module's name of each stored tensor, and whether that is all of it; None where the package's rules are not to be had.

    Newer versions of transformers store some weights otherwise than they hold them, experts for one, and say how.
    """
    prefix = str(getattr(module, "base_model_prefix", "") or "") or None
    rename: Any = None
    renamings: list[Any] = []
    converters: list[Any] = []
    with suppress(ImportError):
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, rename_source_key

        rename = rename_source_key
        for one in get_model_conversion_mapping(module):
            (converters if isinstance(one, WeightConverter) else renamings).append(one)
    if rename is None:
        plain = all(name in wanted for name in names)
        return {name: (name, True) for name in names} if plain else None
    found: dict[str, tuple[str, bool]] = {}
    for name in names:
        place, pattern = rename(name, renamings, converters, prefix, wanted)
        if pattern is not None and place not in wanted:
            return None  # one stored tensor becomes several
        found[name] = (place, pattern is None)
    return found


def stored_dtype(tensors: Tensors | None) -> DType | None:
    """The element type that `from_pretrained` takes where a configuration says none: that of the first floating tensor."""
    floats = (dtype for held in (tensors.files.values() if tensors is not None else ()) for dtype, _ in held.values() if dtype.is_float)
    return next((dtype for dtype in floats if dtype in (DType.F16, DType.BF16, DType.F32, DType.F64)), None)
