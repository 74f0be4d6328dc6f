"""A loaded model with its pass manager: what the command line, the UI and scripts work with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from irscope import diskcache
from irscope._version import __version__
from irscope.budget import Allowance, making, reading, telling
from irscope.devices.catalogue import DEFAULT_DEVICE, default_torch, find_device
from irscope.devices.profile import DeviceProfile
from irscope.devices.releases import ort_release
from irscope.diagnostics import Diagnostic, DiagnosticSink, Severity
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.detect import detect
from irscope.frontends.files.text import program_in
from irscope.frontends.load import load_program, path_of, settled
from irscope.frontends.zoo.names import is_function, is_name, parse_name
from irscope.ir.bind import bind_program, next_possible, runs_same_at, short_names, symbol_named, typed, usual_sizes
from irscope.ir.dims import bind, bounds
from irscope.ir.graph import Graph, Role, Value, paused_gc
from irscope.ir.program import Assumed, Program, Runtime, copied
from irscope.ir.types import Type
from irscope.ops.registry import default_registry
from irscope.passes.graph.transforms import Annotate
from irscope.passes.inference.shapes import Shapes, misstated, sizes_that_run, tied_sizes
from irscope.passes.weights.params import count_parameters
from irscope.passkit.instruments import Instrument
from irscope.passkit.manager import Manager, PassResult, Runnable
from irscope.passkit.registry import same_name
from irscope.passkit.settings import Settings
from irscope.report.card import ASSUMED_SIZE, EXAMPLE_SIZE, StatedSize
from irscope.report.report import Document, ModelInfo, Report

if TYPE_CHECKING:
    from torch import nn

_HASH_LIMIT = 256 << 20


class Results(Mapping[str, PassResult]):
    """Results of a pipeline by the name of the pass; `items_in_order` keeps passes that ran twice apart."""

    def __init__(self, items: Sequence[PassResult], settings: Settings) -> None:
        self.items_in_order = tuple(items)
        self.settings = settings
        """The target that they hold for."""
        self._by_name = {item.subject.name: item for item in items}

    def __getitem__(self, name: str) -> PassResult:
        if (ran := same_name(name, self._by_name)) is None:
            raise KeyError(f"{name}: not among the results, which are {', '.join(self._by_name) or 'none'}")
        return self._by_name[ran]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.items_in_order)) or "<no results>"

    def __str__(self) -> str:
        return "\n".join(map(str, self.items_in_order))

    def _repr_html_(self) -> str:
        return "".join(item._repr_html_() for item in self.items_in_order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def reports(self) -> tuple[Report, ...]:
        return tuple(item.report() for item in self.items_in_order)


@dataclass(repr=False)
class Model:
    """A program that was read, its types inferred; run passes over it."""

    manager: Manager
    diagnostics: tuple[Diagnostic, ...]
    """What the frontend had to say."""
    options: LoadOptions
    as_read: tuple[int, ...] = ()
    """Versions of the graphs when the model had just been opened."""

    @property
    def program(self) -> Program:
        return self.manager.program

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def run(self, passes: Runnable | Sequence[Runnable], settings: Settings | None = None) -> Results:
        """Run a pipeline, or passes as instances, classes or text; analyses that ran before and still hold are not run again.

        `settings` are the target of this run alone.
        """
        settings = settings or self.manager.settings
        with self.manager.using(settings):
            return Results(self.manager.run(passes), settings)

    def __repr__(self) -> str:
        return f"<Model {', '.join((self.program.path or 'without a name', *self._info().facts()))}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what the model is, from what is read already. `irscope.card(model)` has what it costs."""
        return Report("model", self.program.path or "a model without a name", headline=(", ".join(self._info().facts()),))._repr_html_()

    def as_session(self, level: str, settings: Settings) -> Model:
        """Return the same file as a session of ONNX Runtime has it after optimisations of a level, analysed anew for other settings."""
        return open_model(Path(self.program.path), replace(self.options, ort_level=level), settings=settings)

    def times_a_session(self, device: DeviceProfile) -> bool:
        """Return whether the graph that ONNX Runtime's optimisations make is to be timed: on a device where its kernels were measured."""
        return self.is_for_sessions and not self.program.traits.is_session and bool(device.sessions)

    @property
    def is_for_sessions(self) -> bool:
        """True for a file that sessions of ONNX Runtime are made of, so that `as_session` opens it."""
        program = self.program
        return program.traits.runtime is Runtime.ONNXRUNTIME and program.format == "onnx" and bool(program.path)

    def rebound(self, sizes: Mapping[str, int]) -> Model:
        """Return the same file read again with sizes for further symbols, and analysed again."""
        return self.bound_to({**self.options.bind, **sizes})

    def bound_to(self, sizes: Mapping[str, int]) -> Model:
        """Return the model with these sizes and no others, analysed again; what was read is taken again where that is the same."""
        return self._copy_bound_to(sizes) or self._opened_with(sizes)

    def read_again(self) -> Model:
        """Read the file as it is now, with the same sizes and options; nothing of what was read before is taken."""
        return self._opened_with(self.options.bind)

    def _opened_with(self, sizes: Mapping[str, int]) -> Model:
        path = self.program.path
        if not path or (self.program.format == "module" and not is_name(path)):
            raise UsageError("only a model that was read from a file can be bound again", code="IRS334")
        if self.program.training is not None and self.program.format == "module":
            raise UsageError(
                "a captured training step cannot be read again", code="IRS334", hint="start again with other sizes: `--bind batch=8`"
            )
        return open_model(Path(path), replace(self.options, bind=dict(sizes)), settings=self.manager.settings)

    def _copy_bound_to(self, sizes: Mapping[str, int]) -> Model | None:
        """A copy of what was read, bound further: of large models far less work. None where it may differ from the file read again."""
        known = self.options.bind
        if not self.is_as_read or any(sizes.get(name) != size for name, size in known.items()):
            return None
        return self._copy_with(sizes)

    def numbers_at(self, sizes: Mapping[str, int]) -> Model:
        """Return the model with further sizes for numbers alone: one captured with open sizes is not captured again where it is known to
        run the same kernels at these. Which views it takes may differ from a capture at these sizes; otherwise as `rebound`."""
        all_ = {**self.options.bind, **sizes}
        is_same = not self.options.bind and self._is_unchanged and runs_same_at(self.program, sizes)
        return (self._copy_with(all_) if is_same else None) or self.bound_to(all_)

    def _copy_with(self, sizes: Mapping[str, int]) -> Model | None:
        """A copy, bound further to sizes that are not bound yet; None where it cannot be copied."""
        program = copied(self.program)
        if program is None:
            return None
        bind_program(program, {name: size for name, size in sizes.items() if name not in self.options.bind})
        with paused_gc():
            types = Annotate()
            manager = Manager(program, settings=self.manager.settings, annotate=types)
            manager.apply(types)
        return _with_manager(Model(manager, self.diagnostics, replace(self.options, bind=dict(sizes)), as_read=_graph_versions(program)))

    @property
    def is_as_read(self) -> bool:
        """Return whether the graph of a file whose reader keeps declared types is as it was read, but for the types that were inferred."""
        return self.program.format == "onnx" and self._is_unchanged

    @property
    def _is_unchanged(self) -> bool:
        return self.as_read == _graph_versions(self.program)

    def marked(self, report: Report) -> Report:
        """Return a report that no pass made, its numbers as assumed ones where something about the run was guessed."""
        return report.assumed() if self.program.guesses else report

    def document(self, results: Results) -> Document:
        """Return the results as the document that renderers take."""
        return Document(__version__, self.info_with(results.reports, results.settings), results.reports)

    def info_with(self, reports: Sequence[Report], settings: Settings | None = None) -> ModelInfo:
        """Return what reports say about the model itself, and about the device and version that they are for where nobody named one."""
        info = self.info()
        return replace(info, assumed=(*info.assumed, *_target_by_default(reports, settings or self.manager.settings)))

    def info(self) -> ModelInfo:
        """Return what reports say about the model itself."""
        return replace(self._info(), digest=partial(file_digest, Path(self.program.path))) if self.program.path else self._info()

    def _info(self) -> ModelInfo:
        program = self.program
        totals = count_parameters(program)
        return ModelInfo(
            path=program.path,
            format=program.format,
            nodes=program.node_count if program.has_graph else None,
            parameters=totals.count if isinstance(totals.count, int) and not totals.uncounted else None,
            parameter_bytes=totals.bytes if isinstance(totals.bytes, int) and not totals.are_inputs else None,
            are_inputs=totals.are_inputs,
            bind=dict(self.options.bind),
            short_names={name: symbol for name, symbol in short_names(program).items() if symbol in program.symbols},
            assumed=tuple(program.assumed),
            diagnostics=self.diagnostics,
            unsized=sum(weight.role is Role.PARAMETER for weight in totals.unsized),
        )


def _target_by_default(reports: Sequence[Report], settings: Settings) -> Iterator[Assumed]:
    device = find_device(settings.device or DEFAULT_DEVICE)
    taken, why = default_torch()
    version = ".".join(map(str, taken))
    # A pass may have a device of its own, as in roofline{device=a100}.
    shown = [report.summary.get("device") for report in reports if "device=" not in report.options]
    if (settings.chosen or not settings.device) and any(name in shown for name in (device.name, device.title)):
        yield Assumed("device", device.name, f"{settings.chosen or 'default'}; --device NAME", is_guess=False)
    if not settings.torch and any(report.summary.get("torch") == version for report in reports):
        yield Assumed("torch", version, f"{why}; --torch VERSION", is_guess=False)


def open_model(
    path: Path,
    options: LoadOptions | None = None,
    *,
    settings: Settings | None = None,
    instruments: Sequence[Instrument] = (),
    verify_each: bool = False,
    reproducers: bool = False,
    text: str | None = None,
) -> Model:
    """Read a model and infer its types; `text` is in the text form, and then `path` only names it."""
    options = options or LoadOptions()
    settings = settings or Settings()
    check_target(settings)
    path = path_of(str(path)) if text is None else path
    sink = DiagnosticSink()

    def tell(what: str) -> None:
        for instrument in instruments:
            instrument.progress(None, 0, None, what)

    budget = _budget_of(path, options) if text is None else reading(str(path), len(text), options.allowance)
    with paused_gc(), telling(tell), budget:
        program = _read(path, options, sink, settings) if text is None else settled(program_in(text, str(path)), options)
        types = Annotate()
        manager = Manager(
            program, settings=settings, instruments=instruments, verify_each=verify_each, reproducers=reproducers, annotate=types
        )
        is_text = text is not None or (not is_name(str(path)) and detect(path).name == "irs")
        stated = _stated_types(program) if is_text and not options.inputs else {}
        manager.apply(types)
        program.misstated = tuple(misstated(stated, manager.get(Shapes)))
    for name, only in program.only_sizes.items():
        hint = "" if only.size is None else typed(f"--bind {name}={only.size}")
        sink.add(Diagnostic(Severity.WARNING, "IRS203", only.text(name), hint=hint), about=name)
    for name, (size, why) in program.table_sizes.items():
        hint = typed(f"--bind {name}={size}")
        sink.add(Diagnostic(Severity.WARNING, "IRS203", f"{name} can only be 1 or {size}: {why}", hint=hint), about=name)
    found = (*sink, *program.misstated, *default_registry().problems)
    return _with_manager(Model(manager, found, options, _graph_versions(program)))


def _stated_types(program: Program) -> dict[Value, Type]:
    """Return the types that a text states for results, which hold for the inputs that it declares."""
    return {output: output.type for body in program.bodies() for node in body for output in node.outputs}


def _with_manager(model: Model) -> Model:
    """Return the model, whose passes can ask for it with other sizes."""
    model.manager.reopened = lambda sizes: model.rebound(sizes).manager
    return model


def _graph_versions(program: Program) -> tuple[int, ...]:
    return tuple(version for graph in (program.graph, *program.functions.values()) for version in graph.versions)


def _budget_of(path: Path, options: LoadOptions) -> AbstractContextManager[object]:
    """Return the budget for reading a file or what is made of a folder's configuration; what a user names or writes may take its time."""
    try:
        if is_name(str(path)):
            return making(parse_name(str(path)).model, options.allowance or Allowance())
        return reading(str(path), path.stat().st_size, options.allowance)
    except (OSError, ValueError):  # the reader says what is wrong with it
        return nullcontext()


def _read(path: Path, options: LoadOptions, sink: DiagnosticSink, settings: Settings) -> Program:
    """Return the program in a file, or of a model that is named."""
    text = str(path)
    if options.compile is not False and not is_name(text):
        raise UsageError(
            "--compile is about a model by name or a script's: a file has no module that torch.compile could compile",
            code="IRS396",
            where=text,
            hint="torchvision:resnet50, or ./train.py:build",
        )
    if is_function(text):
        if options.compile is not False:
            raise UsageError(
                "--compile is about modules of PyTorch", code="IRS396", where=text, hint="leave it out: XLA compiles the program"
            )
        from irscope.frontends.stablehlo.capture import load_function

        return load_function(text, options, sink)
    if is_name(text):
        from irscope.frontends.zoo.packages import check_installed

        check_installed(text)
        # What torch.compile makes depends on compilers and kernels on disk, at which nobody looks again.
        if options.use_cache and not options.compile and not diskcache.is_off():
            from irscope.frontends.zoo.kept import load_kept

            return load_kept(text, options, sink, settings)
        from irscope.frontends.zoo.load import load_named

        return load_named(text, options, sink, settings)
    if options.ort_level != "off" and detect(path).frontend == "onnx":
        options = replace(options, file_types=_file_types(path, options), ort_device=settings.device, ort=settings.ort)
    return load_program(path, options, sink)


def _file_types(path: Path, options: LoadOptions) -> dict[str, Type]:
    """Return the types of all values by name as the file alone says them: what a session knows when it optimises."""
    plain = load_program(path, replace(options, ort_level="off", inputs={}, bind={}), DiagnosticSink())
    found = Manager(plain).get(Shapes())
    given = {value: found.type_of(value) for body in plain.bodies() for value in body.inputs}
    return {value.name: type_ for value, type_ in {**given, **found.types}.items() if value.name}


def capture_model(
    module: nn.Module,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    device: str = "cuda",
    compile: bool | Mapping[str, object] = False,
    settings: Settings | None = None,
    path: str = "",
) -> Model:
    """Run a module once on a pretended device, without data, and make a model of what ran.

    With `compile`, which may be arguments of torch.compile, it is compiled first, as is what the module holds that is compiled.
    `device` is "cuda", "cpu", or a device that irscope knows; `path` is what the model is called, where it has a name.
    """
    from irscope.devices import target_of
    from irscope.frontends.simulation import capture_module

    settings = settings or Settings()
    if device.partition(":")[0] not in ("cuda", "cpu"):
        settings, device = replace(settings, device=device), "cuda"
    check_target(settings)
    sink = DiagnosticSink()
    program = capture_module(module, args, kwargs or {}, device=device, compile=compile, target=target_of(settings), sink=sink)
    program.path = path or type(module).__name__
    if settings.device:
        program.metadata["target"] = settings.device
    with paused_gc():
        types = Annotate()
        manager = Manager(program, settings=settings, annotate=types)
        manager.apply(types)
    return Model(manager, (*sink, *default_registry().problems), LoadOptions())


def model_without_graph(path: str, format: str) -> Model:
    """Return a model of which nothing but its path is known, for screens over a model that show a run."""
    return Model(Manager(Program(Graph(), format=format, path=path, has_graph=False)), (), LoadOptions())


def kind_of(path: Path) -> str:
    """Return what kind of file it is, such as onnx; LoadError for what is not a model."""
    return detect(path).name


def stated_sizes(program: Program, bind: Mapping[str, int]) -> Iterator[StatedSize]:
    """Yield every size that is not in the file, and who stated it; `bind` are those that it was opened with."""
    for bound, size in bind.items():
        yield StatedSize(bound, size, "--bind")
    for assumption in program.assumed:
        if not assumption.is_guess and assumption.value.isdecimal():
            yield StatedSize(assumption.what, int(assumption.value), "default")
    short = {symbol: name for name, symbol in short_names(program).items()}
    roles = {named: role for role in ("seq", "batch") if (named := symbol_named(program, role)) is not None}
    sizes: dict[str, int] = {}
    from_file: set[str] = set()
    certain = {**{name: size for name, (size, _) in program.table_sizes.items()}, **program.only_numbers}
    for name, symbol in program.symbols.items():
        low, high = bounds(symbol)
        example = program.examples.get(name)
        is_possible = example is not None and (low or 1) <= example and (high is None or example <= high)
        sizes[name] = certain.get(name, example if example is not None and is_possible else next_possible(program, name, max(1, low or 1)))
        if is_possible:
            from_file.add(name)
    growing = [name for name in sizes if name not in from_file and roles.get(name) != "batch"]
    usual = {name: size for name, size in usual_sizes(program).items() if name in growing and name not in certain}
    for name, size in _tied(program, sizes_that_run(program, sizes, growing, usual), growing).items():
        yield StatedSize(name, size, EXAMPLE_SIZE if name in from_file else ASSUMED_SIZE, roles.get(name, ""), short.get(name, ""))


def _tied(program: Program, sizes: Mapping[str, int], growing: Sequence[str]) -> dict[str, int]:
    """Return the sizes, with those that the graph ties to others by what these are."""
    found = dict(sizes)
    for name, formula in tied_sizes(program).items():
        size = bind(formula, sizes)
        low, high = bounds(program.symbols[name])
        if name in growing and isinstance(size, int) and size >= (low or 1) and (high is None or size <= high):
            found[name] = size
    return found


def check_target(settings: Settings) -> None:
    """Raise UsageError where the device, the version of torch or an option of its allocator is none that irscope knows."""
    if settings.ort:
        ort_release(settings.ort)
    if not (settings.device or settings.torch or settings.alloc_conf):
        return
    from irscope.devices import target_of
    from irscope.memory.caching.conf import parse_alloc_conf

    target = target_of(settings)
    parse_alloc_conf(target.alloc_conf, target.release)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, empty where it is gone or so large that hashing would dominate the run."""
    try:
        status = path.stat()
        return "" if status.st_size > _HASH_LIMIT else _file_digest(path, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=64)
def _file_digest(path: Path, inode: int, size: int, modified: int) -> str:
    """SHA-256 of a file as it is now, which its inode, size and time tell from what it was before."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
