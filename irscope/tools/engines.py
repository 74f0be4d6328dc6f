"""A serving engine with a paged cache on a device: blocks of the cache, tokens and requests that fit.

The engine's own arithmetic, over parts that are exact (weights of each rank, bytes of a block), modelled (what a forward takes) or the
engine's own matter, which are intervals. vLLM: `Worker.determine_available_memory` of v1/worker/gpu_worker.py, `kv_cache_utils.py` and
`kv_cache_interface.py` of v1/core. SGLang: `profile_max_num_token` of model_executor/model_runner.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from irscope.diagnostics import Diagnostic, DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.immutable import immutable
from irscope.optiontext import OptionsError, read_options
from irscope.report.report import Document, ModelInfo, Report, diagnostic_json
from irscope.report.table import Table
from irscope.report.units import bytes_text
from irscope.report.values import Provenance, Quantity, largest, quantity
from irscope.tools.simulate import current_process, run_own
from irscope.tools.simulation import Options, target_for
from irscope.weights.schemes import parse_scheme

if TYPE_CHECKING:
    from irscope.devices.profile import DeviceProfile
    from irscope.frontends.generation.program import Wish
    from irscope.frontends.generation.serving import Served
    from irscope.tools.simulation import Simulation

SCHEMA: Final = "irscope.engine/1"
_GIB: Final = 1 << 30
_OUTSIDE_TORCH: Final = {
    (True, True): (0.02, 0.4),
    (True, False): (0.1, 1.0),
    (False, True): (0.03, 1.8),
    (False, False): (0.1, 3.6),
}
"""GiB, by whether the version is 0.8 or later and whether the rank is alone. Published start-up logs ("non_torch_memory takes", "GiB for
non-torch memory") have 0.02 to 0.35 on one card and 0.20 to 0.93 with NCCL since 0.8, which counts what profiling adds; before it the
context was counted too, up to 1.79 and 3.58."""
_GRAPHS: Final = {True: (0.3, 1.0), False: (0.15, 2.0)}
"""GiB by whether the rank is alone: "Estimated CUDA graph memory" of published logs, 0.37 to 0.84 on one card, 0.17 to 1.97 with NCCL."""
_COUNTS_CONTEXT_BEFORE: Final = (0, 8)
_COUNTS_GRAPHS_FROM: Final = (0, 21)
"""VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS is 1 by default from here on; before, graphs take what is left beside the share."""
_FORWARD: Final = (0.5, 1.5)
"""Of what transformers' own forward takes: fused kernels keep less, compiled graphs keep buffers longer. Published peaks lie within."""
_SAMPLER: Final = (4, 21)
"""Bytes of a logit besides itself: its copy in float32; at most sorted values, their places, a mask and probabilities too
(`apply_top_k_top_p` of v1/sample/ops/topk_topp_sampler.py)."""
_CROWDED: Final = 1.5
"""Kinds of layers whose numbers differ by less than this factor are padded to the larger (`_get_kv_cache_groups_uniform_page_size`)."""


@immutable(slots=False)
class Engine:
    """An engine and its settings."""

    name: str
    settings: Mapping[str, float]
    cache_dtype: str = "auto"
    given: frozenset[str] = frozenset()
    """Settings that the user named."""
    version: tuple[int, int] | None = None
    """Of vLLM, where it is not a late one."""

    def is_before(self, version: tuple[int, int]) -> bool:
        """Return whether the engine is an earlier one."""
        return self.version is not None and self.version < version

    def on(self, device: DeviceProfile) -> Engine:
        """Return the same with what the engine takes on a device where nobody says otherwise."""
        is_large = (device.memory_bytes or 0) >= _LARGE and "a100" not in device.name
        if self.name != "vllm" or not is_large:
            return self
        return replace(
            self, settings={key: value if key in self.given else _OF_LARGE.get(key, value) for key, value in self.settings.items()}
        )

    def __getitem__(self, key: str) -> float:
        return self.settings[key]

    def whole(self, key: str) -> int:
        """Return a setting that counts something."""
        return int(self.settings[key])

    def __str__(self) -> str:
        told = [f"{key}={value:g}" for key, value in self.settings.items()]
        version = [] if self.version is None else [f"version={self.version[0]}.{self.version[1]}"]
        return f"{self.name}{{{', '.join([*version, *told, f'kv={self.cache_dtype}'])}}}"


_DEFAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    "vllm": {"util": 0.92, "block": 16, "max_tokens": 2048, "max_seqs": 256, "tp": 1, "pp": 1, "graphs": 1},
    "sglang": {"mem_fraction_static": 0.9, "tp": 1, "max_tokens": 8192},
}
_EARLIER: Final[Mapping[str, float]] = {"util": 0.9}
"""Defaults of vLLM before it counted graphs (`gpu_memory_utilization` of config/cache.py)."""
_LARGE: Final = 70 * _GIB
_OF_LARGE: Final[Mapping[str, float]] = {"max_tokens": 8192, "max_seqs": 1024}
"""Defaults of `vllm serve` on devices from 70 GiB on, but for the A100, where large steps are slower (`EngineArgs.get_batch_defaults` of
engine/arg_utils.py).
"""
_MEASURED: Final = {"vllm": ("outside", "captured"), "sglang": ("outside",)}
"""GiB that a start-up log says: outside of torch, and of CUDA graphs."""
_WIDE: Final = 1.3
"""The answer says why where its ends are further apart than by this factor."""
_FRACTIONS: Final = frozenset(("util", "mem_fraction_static"))
_CACHE_DTYPES: Final = ("auto", "fp8")


def engine_of(text: str) -> Engine:
    """Return an engine from `vllm{util=0.9,block=16}`; settings that are not given are the engine's usual ones."""
    name, brace, rest = text.partition("{")
    if name not in _DEFAULTS:
        raise UsageError(f"there is no engine {name!r}", code="IRS698", hint=", ".join(_DEFAULTS))
    try:
        given, end = read_options(rest) if brace else ({}, 0)
    except OptionsError as error:
        raise UsageError(f"{text!r}: {error}", code="IRS698", hint="`vllm{util=0.9, block=16}`") from None
    if rest[end:].strip():
        raise UsageError(f"{text!r} continues after its settings", code="IRS698", hint="`vllm{util=0.9, block=16}`")
    cache_dtype = given.pop("kv", None) or "auto"
    if cache_dtype not in _CACHE_DTYPES:
        raise UsageError(f"kv={cache_dtype} is not a type of the cache", code="IRS698", hint=", ".join(_CACHE_DTYPES))
    version = _version(given.pop("version")) if name == "vllm" and "version" in given else None
    settings = dict(_DEFAULTS[name])
    if version is not None and version < _COUNTS_GRAPHS_FROM:
        settings.update(_EARLIER)
    for key, value in given.items():
        settings[key] = _setting(name, key, value)
    return Engine(name, settings, cache_dtype, frozenset(given), version)


def _version(text: str | None) -> tuple[int, int]:
    major, _, minor = (text or "").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise UsageError(f"version={text} is not a version of vLLM", code="IRS698", hint="version=0.20")
    return int(major), int(minor)


def _setting(engine: str, key: str, value: str | None) -> float:
    known = _DEFAULTS[engine]
    if key not in known and key not in _MEASURED[engine]:
        raise UsageError(
            f"{engine} has no setting {key!r} here",
            code="IRS698",
            hint=", ".join([*known, *_MEASURED[engine], "kv", *(["version"] if engine == "vllm" else [])]),
        )
    try:
        number = float(value or "")
    except ValueError:
        number = math.nan
    if key in _MEASURED[engine]:
        if not 0 <= number < math.inf:
            raise UsageError(f"{key} is GiB of a start-up log, not {value}", code="IRS698", hint=f"{key}=0.6")
        return number
    if key in _FRACTIONS:
        if not 0 < number <= 1:
            raise UsageError(f"{key} is a share of the memory, not {value}", code="IRS698", hint=f"{key}=0.9")
        return number
    if number != number or number != int(number) or number < (0 if key == "graphs" else 1):
        raise UsageError(f"{key} is a whole number from 1 on, not {value}", code="IRS698", hint=f"{key}={known[key]:g}")
    return number


@immutable(slots=False)
class Group:
    """Layers whose blocks have one number."""

    layers: Sequence[int]
    window: int | None
    page: int
    """Bytes of a block in one layer."""


@dataclass
class Stage:
    """Memory of the ranks of one pipeline stage."""

    layers: range
    parts: list[tuple[str, Quantity, str]] = field(default_factory=list)
    """Parts that the budget is spent on, with their amounts and the origin of each."""
    left: Quantity = field(default_factory=lambda: quantity(0))
    block_bytes: int = 0
    """Of a block in all layers of the stage."""

    @property
    def blocks(self) -> tuple[int, int]:
        """Return the fewest and the most blocks that the rest holds."""
        low, high = self.left.ends
        assert low is not None  # all parts have two ends
        assert high is not None
        return max(0, int(low // self.block_bytes)), max(0, int(high // self.block_bytes))


@dataclass
class Serving:
    """An engine's use of a device."""

    wish: Wish
    engine: Engine
    simulation: Simulation
    served: Served
    memory: int
    stages: Sequence[Stage]
    groups: Sequence[Group]

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self.engine.whole("block") if self.engine.name == "vllm" else 1

    @property
    def blocks(self) -> tuple[int, int]:
        """Return the fewest and the most blocks: all stages have as many as the stage that has fewest."""
        low, high = zip(*(stage.blocks for stage in self.stages), strict=True)
        return min(low), min(high)

    @property
    def blocks_of_a_request(self) -> int:
        """Return the blocks of a request of the given length."""
        length = self.wish.prompt + self.wish.new
        return sum(_blocks(group, length, self.block, self.engine) for group in self.groups)

    @property
    def tokens(self) -> tuple[int, int]:
        """Return the tokens of requests of that length, together."""
        low, high = self.requests
        length = self.wish.prompt + self.wish.new
        return int(low * length), int(high * length)

    @property
    def requests(self) -> tuple[float, float]:
        """Return how many of that length fit at once."""
        low, high = self.blocks
        return low / self.blocks_of_a_request, high / self.blocks_of_a_request

    @property
    def fits(self) -> bool:
        """Return whether one request surely does."""
        return self.requests[0] >= 1

    @property
    def verdict(self) -> str:
        """Return how many requests fit."""
        low, high = self.requests
        length, device = self.wish.prompt + self.wish.new, self.simulation.target.device.title
        if high < 1:
            return f"does not hold one request of {length:,} tokens on {device}"
        if low < 1:
            return f"may not hold one request of {length:,} tokens on {device}: at most {high:,.2f}"
        return f"holds {_span(low, high, '.1f')} requests of {length:,} tokens at once on {device}"

    @property
    def why_wide(self) -> str:
        """Return the parts that keep the ends of the answer apart; empty where they are near."""
        low, high = self.blocks
        if high <= _WIDE * low:
            return ""
        stage = min(self.stages, key=lambda stage: stage.blocks[0])
        spread = [
            (most - least, what, -most, -least)
            for what, value, _ in stage.parts[:-1]
            for least, most in [value.ends]
            if least is not None and most is not None
        ]
        said = [f"{what} {bytes_text(few)} to {bytes_text(many)}" for apart, what, few, many in sorted(spread, reverse=True)[:2] if apart]
        hint = "`outside=0.6, captured=0.5` are GiB of its start-up log, `graphs=0` is --enforce-eager, `version=0.20` an earlier one"
        return f"by {' and '.join(said)}, the engine's own matter: {hint}"

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return what is to be said about the forward."""
        return [diagnostic for diagnostic in self.simulation.diagnostics if diagnostic.code != "IRS646"]

    def report(self) -> Report:
        """Return the same as tables."""
        wish, engine, served = self.wish, self.engine, self.served
        summary: dict[str, Any] = {"verdict": self.verdict, "model": wish.model, "engine": str(engine)}
        low, high = self.blocks
        summary["cache_blocks"] = f"{_span(low, high)} of {self.block} tokens, {bytes_text(self.stages[0].block_bytes)} each" + (
            f" ({len(self.stages)} stages, the least counts)" if len(self.stages) > 1 else ""
        )
        if self.why_wide:
            summary["wide"] = self.why_wide
        if all(group.window is None for group in self.groups):
            summary["cache_tokens"] = _span(low * self.block, high * self.block)
        summary["a_request"] = f"{self.blocks_of_a_request:,} blocks for {wish.prompt:,} + {wish.new:,} tokens"
        summary["weights"] = f"{bytes_text(served.whole_bytes)} in {served.dtype}, all ranks together without what several of them hold"
        summary["for"] = f"{self.simulation.target.text}, {bytes_text(self.memory)} in all" + (
            f" on each of {engine.whole('tp') * len(self.stages)} ranks" if engine["tp"] * len(self.stages) > 1 else ""
        )
        return Report("engine", summary=summary, tables=tuple(self._tables()), diagnostics=tuple(self.diagnostics))

    def _tables(self) -> Iterator[Table]:
        for number, stage in enumerate(self.stages):
            where = f" of a rank of stage {number}: layers {stage.layers[0]}-{stage.layers[-1]}" if len(self.stages) > 1 else " of a rank"
            parts = [(what, *value.ends, value.provenance.value, why) for what, value, why in stage.parts]
            yield Table.of(parts, ["part", "least:bytes", "most:bytes", "is", "by"], f"the memory{where}")
        rows = [
            (
                _ranges(group.layers),
                len(group.layers),
                "all" if group.window is None else f"{group.window:,}",
                group.page,
                _blocks(group, self.wish.prompt + self.wish.new, self.block, self.engine),
            )
            for group in self.groups
        ]
        columns = ["layers", "number:count", "looks back on", "a block in a layer:bytes", "blocks of a request:count"]
        yield Table.of(rows, columns, "groups of layers that share numbers of blocks")

    def document(self) -> Document:
        """Return the report alone."""
        return Document("", ModelInfo("", ""), (self.report(),))

    def to_json(self) -> dict[str, Any]:
        """Return the document of `--format json`."""
        return {
            "schema": SCHEMA,
            "model": self.wish.model,
            "engine": self.engine.name,
            "settings": {**self.engine.settings, "kv": self.engine.cache_dtype, "version": self.engine.version},
            "device": self.simulation.options.device or self.simulation.target.device.name,
            "memory_bytes": self.memory,
            "prompt": self.wish.prompt,
            "new": self.wish.new,
            "verdict": self.verdict,
            "weight_bytes": self.served.whole_bytes,
            "blocks": list(self.blocks),
            "block_tokens": self.block,
            "requests": list(self.requests),
            "why_wide": self.why_wide,
            "blocks_of_a_request": self.blocks_of_a_request,
            "stages": [
                {
                    "layers": [stage.layers[0], stage.layers[-1]],
                    "block_bytes": stage.block_bytes,
                    "blocks": list(stage.blocks),
                    "parts": [
                        {
                            "part": what,
                            "bytes": value.value,
                            "least": value.ends[0],
                            "most": value.ends[1],
                            "is": value.provenance.value,
                            "by": why,
                        }
                        for what, value, why in stage.parts
                    ],
                }
                for stage in self.stages
            ],
            "groups": [{"layers": list(group.layers), "window": group.window, "page_bytes": group.page} for group in self.groups],
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }


def serve(
    model: str,
    engine: str,
    *,
    prompt: int,
    new: int,
    attention: str = "",
    dtype: str = "",
    store_as: str = "",
    base: str = "",
    device: str = "",
    torch: str = "",
    alloc_conf: str = "",
) -> Serving:
    """Return what an engine such as "vllm{util=0.9}" makes of a device with a model: the number of requests of so many tokens it holds."""
    from irscope.frontends.generation.program import Wish
    from irscope.frontends.zoo.recipes import GENERATING, weights_dtype

    if min(prompt, new) < 1:
        raise UsageError("prompt and new tokens are at least 1", code="IRS696")
    chosen = engine_of(engine)
    scheme = parse_scheme(store_as) if store_as else None
    wish = Wish(model, prompt, new, attention=attention, dtype=weights_dtype(dtype, model, GENERATING), base=base, scheme=scheme)
    return _serve(wish, chosen, Options(device, torch, alloc_conf))


def _serve(wish: Wish, engine: Engine, options: Options) -> Serving:
    from irscope.frontends.generation import serving

    engine = engine.on(target_for(options).device)
    found: list[Served] = []

    def program() -> None:
        found.append(serving.serve(current_process(), wish, engine.whole("max_tokens"), engine.whole("tp"), DiagnosticSink()))

    simulation = run_own(program, wish.model, options)
    if not found:
        raise LoadError(f"it does not run: {simulation.error}", code="IRS697", where=simulation.line or wish.model)
    memory = simulation.target.device.memory_bytes
    if memory is None:
        raise UsageError("the memory of the device is not known", code="IRS698", hint="`--device h200`")
    (served,) = found
    groups = _groups(served, engine, wish.model)
    stages = [_stage(served, engine, memory, layers, groups) for layers in _partition(served.layers, int(engine.settings.get("pp", 1)))]
    return Serving(wish, engine, simulation, served, memory, stages, groups)


def _partition(layers: int, stages: int) -> list[range]:
    """Return the layers of pipeline stages: those that are left over go to the last stages but the very last (`get_pp_indices` of vLLM)."""
    if stages > layers:
        raise UsageError(f"{layers} layers are fewer than pp={stages} stages", code="IRS698")
    sizes = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        sizes[-back] += 1
    ends = [sum(sizes[: number + 1]) for number in range(stages)]
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _groups(served: Served, engine: Engine, where: str) -> list[Group]:
    """Return the layers that keep the same, in groups of equal numbers where there are several kinds."""
    block = engine.whole("block") if engine.name == "vllm" else 1
    element = 1 if engine.cache_dtype == "fp8" else served.element
    kinds: dict[tuple[int | None, int], list[int]] = {}
    for one in served.kept:
        kinds.setdefault((one.window, block * one.values * element), []).append(one.layer)
    windows = {window for window, _ in kinds}
    if engine.name == "sglang" and windows != {None}:
        raise UsageError("SGLang gives layers with windows a pool of their own, which is not modelled", code="IRS698", where=where)
    if len(windows) == 1:
        (window,) = windows
        return [
            Group(
                [one.layer for one in served.kept],
                window,
                sum(page * len(layers) for (_, page), layers in kinds.items()) // len(served.kept),
            )
        ]
    if len({page for _, page in kinds}) > 1:
        raise UsageError("its kinds of layers have blocks of different sizes, which is not modelled", code="IRS698", where=where)
    few, many = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = many if many < few * _CROWDED else few
    groups = []
    for (window, page), layers in kinds.items():
        number = -(-len(layers) // size)
        groups += [Group(layers[first::number], window, page) for first in range(number)]
    return groups


def _blocks(group: Group, length: int, block: int, engine: Engine) -> int:
    """Return the number of blocks of a request in a group; in a window there is room for what one step reads as well."""
    if group.window is None:
        return -(-length // block)
    return -(-min(group.window - 1 + engine.whole("max_tokens"), length) // block) + 1


def _stage(served: Served, engine: Engine, memory: int, layers: range, groups: Sequence[Group]) -> Stage:
    is_first, is_last = layers.start == 0, layers.stop == served.layers
    before, behind = (set(names) for names in served.ends)
    weights = 0
    for one in served.shares:
        here = one.layer in layers if one.layer is not None else (one.name in before and is_first) or (one.name in behind and is_last)
        again = served.is_tied and is_last and not is_first and one.name in before and one.name.endswith("weight")
        weights += one.bytes if here or again else 0
    stage = Stage(layers)
    stage.block_bytes = max(len([layer for layer in group.layers if layer in layers]) for group in groups) * groups[0].page
    alone = engine["tp"] * engine.settings.get("pp", 1) == 1
    budget = memory * (engine["util"] if engine.name == "vllm" else engine["mem_fraction_static"])
    share = "util" if engine.name == "vllm" else "mem_fraction_static"
    stage.parts = [
        ("may be used", Quantity(math.ceil(budget)), f"{share} of {bytes_text(memory)}"),
        ("weights", Quantity(-weights), "the parameters of this rank"),
    ]
    if engine.name == "vllm":
        if served.rotary:
            stage.parts.append(("table of angles", Quantity(-served.rotary * served.element), "positions times the head's size"))
        forward = served.forward_peak
        peak = Quantity(forward, Provenance.MODELLED, lo=int(_FORWARD[0] * forward), hi=int(_FORWARD[1] * forward))
        why = f"the model's own forward over {engine.whole('max_tokens'):,} tokens"
        if is_last:
            logits = min(engine.whole("max_seqs"), engine.whole("max_tokens")) * served.vocabulary
            few, many = (logits * (served.element + one) for one in _SAMPLER)
            peak = largest([peak, Quantity(few, Provenance.MODELLED, lo=few, hi=many)])
            why += f", or logits of {min(engine.whole('max_seqs'), engine.whole('max_tokens')):,}"
        stage.parts.append(("activations", -peak, why))
        if engine["graphs"]:
            said = engine.settings.get("captured")
            usual = (0.0, 0.0) if engine.is_before(_COUNTS_GRAPHS_FROM) else _GRAPHS[alone]
            why = "the engine's estimate, not counted before 0.21" if said is None else "captured=, as said"
            stage.parts.append(("CUDA graphs", _engine(*(usual if said is None else (said, said))), why))
    said = engine.settings.get("outside")
    why = "the engine's: NCCL, modules of kernels" if said is None else "outside=, as said"
    usual = _OUTSIDE_TORCH[engine.name == "vllm" and not engine.is_before(_COUNTS_CONTEXT_BEFORE), alone]
    stage.parts.append(("outside of torch", _engine(*(usual if said is None else (said, said))), why))
    stage.left = sum((value for _, value, _ in stage.parts), quantity(0))
    stage.parts.append(("left for the cache", stage.left, f"{bytes_text(stage.block_bytes)} a block"))
    return stage


def _engine(few: float, many: float) -> Quantity:
    """Return what belongs to the engine, in GiB; it is taken away."""
    return Quantity(-int(few * _GIB), Provenance.ASSUMED, lo=-int(many * _GIB), hi=-int(few * _GIB))


def _span(low: float, high: float, form: str = "d") -> str:
    few, many = (f"{one:,{form}}" if form != "d" else f"{one:,}" for one in (low, high))
    return few if few == many else f"{few} to {many}"


def _ranges(numbers: Sequence[int]) -> str:
    from irscope.report.names import ranks_text

    return ranks_text(list(numbers))
