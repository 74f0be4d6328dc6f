"""Training steps of compiled modules as programs: run on the simulated device in a process of their own, and recorded kernel by kernel."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.eager.record import Phase, Record
from irscope.frontends.eager.steps import OWN, Auto, Recorded, maker_of, objective_of, train_once
from irscope.frontends.eager.steptrace import steps_as_program
from irscope.frontends.simulation.captured import (
    Ran,
    Run,
    Settings,
    as_compiled,
    explained_run,
    note_deaths,
    on_device,
    run_apart,
    step_starts,
)
from irscope.frontends.simulation.process import may_differentiate
from irscope.ir.program import Assumed, Program
from irscope.memory.run import kinds_by_life
from irscope.memory.tape import DeviceRun, Span, Tape
from irscope.training import CATEGORIES, TUNING, StepSetup

_KNOWN: Final = frozenset({*CATEGORIES, TUNING})


def compiled_training(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: StepSetup,
    settings: Settings | None,
    target: Target,
    sink: DiagnosticSink,
    name: str = "",
) -> Program:
    """Return the first steps of a module that is compiled, or with `settings` is to be; the graph is that of the last one.

    Memory is what the program asked for on the device, in each step; the first has all that compiling takes.
    """

    def trained() -> Trained:
        return _Steps(module, settings, target, plan).train(args, kwargs)

    found = run_apart(module, args, kwargs, settings, sink, grad=True, work=trained)
    record = found.record
    storages = record.storages
    recorded = Recorded(
        record,
        found.starts,
        {storages[number]: text for number, text in found.gradients.items()},
        {storages[number]: text for number, text in found.states.items()},
        [storages[number] for number in found.resident],
        found.optimizer,
        has_scopes=True,
    )
    program, trace = steps_as_program(recorded, name or found.name, plan)
    pieces = {piece.number: piece for piece in trace.pieces}
    owners = {slot: pieces[number] for slot, number in found.owners.items()}
    tape = replace(found.tape, owners=owners)
    for slot, piece in owners.items():
        tape.kinds[slot], tape.labels[slot] = piece.category, piece.name
    trace.requests = DeviceRun(tape, target.device.name, target.torch, found.compiled)
    return as_compiled(program, found.name, found.said)


@dataclass(kw_only=True)
class Trained(Ran):
    """Findings of all steps; storages are numbers."""

    optimizer: str
    starts: list[tuple[int, int]]
    """For each step its first operator and how many storages had been freed before it; the end comes last."""
    resident: list[int]
    gradients: dict[int, str]
    states: dict[int, str]


@dataclass
class _Noted:
    """Gradients, states, steps and phases, noted while the steps run."""

    gradients: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    begins: list[tuple[int, int]] = field(default_factory=list)
    """Of each step the first operator, and the requests before it; the end comes last."""
    phases: list[tuple[int, Phase]] = field(default_factory=list)


class _Steps(Run):
    """A module that is trained on the simulated device, in a process that ends with it."""

    def __init__(self, module: nn.Module, settings: Settings | None, target: Target, plan: StepSetup) -> None:
        may_differentiate()
        super().__init__(module, settings, target, hidden=(__file__,))
        self._plan = plan
        self._objective = objective_of(plan.loss)
        self._noted = _Noted()
        self._names: dict[int, str] = {}

    def train(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trained:
        """Load it, and make the steps."""
        machine, recorder, noted = self._process.machine, self._recorder, self._noted
        self._watch.begins_below(sys._getframe())
        with machine.without_limit(), explained_run(self._watch):
            self._load()
            given, named = self._given(args, kwargs)
            self._move_what_is_held(self._plan.loss)
            optimizer = self._optimizer()
            self._names = {id(one): name for name, one in self._whole.named_parameters()}
            self._module.train()
            called: Any = self._module if self._settings is None else torch.compile(self._module, **self._settings)
            before = machine.settled_gpu.tape.cut()
            recorder.begin()
            resident = [one.number for one in recorder.found.storages.values()]
            self._note_states(optimizer)
            for _ in range(self._plan.steps):
                noted.begins.append((len(recorder.found.record.ops), machine.settled_gpu.tape.cut()))
                train_once(
                    self._plan,
                    lambda: called(*given, **named),
                    self._objective,
                    optimizer,
                    "cuda",
                    lambda phase: self._enter(phase, optimizer),
                )
                self._note_states(optimizer)
            noted.begins.append((len(recorder.found.record.ops), machine.settled_gpu.tape.cut()))
            recorder.end(None)
        self._watch.close()
        return self._trained(before, resident, type(optimizer).__name__)

    def _enter(self, phase: Phase, optimizer: torch.optim.Optimizer) -> None:
        self._recorder.phase = phase
        self._noted.phases.append((self._process.machine.settled_gpu.tape.cut(), phase))
        for parameter in (one for group in optimizer.param_groups for one in group["params"] if phase == "optimizer"):
            if parameter.grad is not None:
                self._note(self._noted.gradients, parameter.grad, f"gradient of {self._names.get(id(parameter), '')}")

    # -- what is there before --------------------------------------------------------------------------------------

    def _optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer over what is on the device; one that is given is changed, since this process ends with it."""
        given = self._plan.optimizer
        if not isinstance(given, torch.optim.Optimizer):
            return maker_of(given, None, dict(self._plan.options))(self._whole.parameters())
        self._originals += [one for group in given.param_groups for one in group["params"]]
        moves: list[tuple[Any, Any]] = []
        for group in given.param_groups:
            on_host = () if group.get("capturable") or group.get("fused") else ("step",)
            for one in group["params"]:
                state = given.state.get(one, {})
                moves.append((self._at_device(one), {key: item if key in on_host else self._all(item) for key, item in state.items()}))
            group["params"] = [self._at_device(one) for one in group["params"]]
        given.state = defaultdict(dict, {parameter: state for parameter, state in moves if state})
        return given

    def _at_device(self, one: torch.Tensor) -> torch.Tensor:
        return self._moved[id(one)] if id(one) in self._moved else on_device(one)

    def _all(self, item: Any) -> Any:
        return tree_map_only(torch.Tensor, self._at_device, item)

    def _move_what_is_held(self, loss: Any) -> None:
        """Move the targets and weights that the user's loss holds to the device, where they are when it runs."""
        function = getattr(loss, "__func__", loss)
        if isinstance(loss, nn.Module):
            loss.to("cuda")
            for name, one in (*loss.named_parameters(), *loss.named_buffers()):
                self._recorder.declare(one, "input", f"loss.{name}")
        code = getattr(function, "__code__", None)
        if code is None:
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            cell.cell_contents = self._held(name, cell.cell_contents)
        for name in code.co_names:
            if name in function.__globals__:
                function.__globals__[name] = self._held(name, function.__globals__[name])
        if function.__defaults__:
            function.__defaults__ = tuple(self._held("loss", one) for one in function.__defaults__)

    def _held(self, name: str, item: Any) -> Any:
        leaves = [one for one in tree_leaves(item) if isinstance(one, torch.Tensor)]
        if not leaves:
            return item
        self._originals += leaves
        moved = self._all(item)
        for one in tree_leaves(moved):
            if isinstance(one, torch.Tensor):
                self._recorder.declare(one, "input", name)
        return moved

    def _note_states(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self._note(self._noted.states, value, f"{key} of {self._names.get(id(parameter), '')}")

    def _note(self, where: dict[int, str], tensor: torch.Tensor, name: str) -> None:
        storage = self._recorder.storage_of(tensor)
        if storage is not None:
            where.setdefault(storage.number, name)

    # -- what it did -----------------------------------------------------------------------------------------------

    def _trained(self, before: int, resident: list[int], optimizer: str) -> Trained:
        process, recording, noted = self._process, self._recorder.found, self._noted
        record = recording.record
        bounds = noted.begins
        for (first, _), (end, _) in pairwise(bounds):
            if first == end:
                said = "a step replays CUDA graphs and runs nothing else, so its kernels are not seen"
                raise LoadError(said, code="IRS395", hint="`irscope simulate` counts its memory")
        source = process.machine.tape()
        _note_births(source, before, recording.slots, record, recording.ends)
        note_deaths(source, recording)
        ends = [place for slot, place in source.given_back().items() if slot in recording.slots]
        starts = [(first, bisect_right(ends, at - 1)) for first, at in bounds]
        return Trained(
            tape=self._taped(source, before),
            owners=dict(recording.slots),
            optimizer=optimizer,
            starts=starts,
            resident=resident,
            gradients=noted.gradients,
            states=noted.states,
            **self._ran(recording),
        )

    def _assumed(self) -> dict[Assumed, str]:
        assumed = super()._assumed()
        for line, answer in self._watch.answers.items():
            why = f"{line} reads a value of the device, which is not computed"
            assumed[Assumed("values of tensors", repr(answer.value), why)] = "IRS199"
        if isinstance(self._objective, Auto) and self._objective.taken not in ("", OWN):
            assumed[Assumed("loss", self._objective.taken, "default; --loss NAME", is_guess=False)] = ""
        if self._has_pools():
            why = "later steps replay them: their kernels are those of the step in which they were recorded, and no nodes of the last one"
            assumed[Assumed("CUDA graphs", "replayed", why, is_guess=False)] = "IRS199"
        return assumed

    def _taped(self, source: Tape[Any], before: int) -> Tape[Any]:
        """Return the tape with a step for each operator of all training steps."""
        noted = self._noted
        end = noted.begins[-1][1]
        found = source.section(before, end)
        kinds = ["temporary" if kind not in _KNOWN else kind for kind in source.kinds]
        phases: list[tuple[int, str]] = [(at - before, phase) for at, phase in noted.phases]
        spans = [
            Span(name, first, last) for name, ((first, _), (last, _)) in zip(_names(self._plan.steps), pairwise(noted.begins), strict=True)
        ]
        return replace(
            found,
            kinds=kinds_by_life(kinds, found.events, phases),
            spreads=dict(self._recorder.spreads),
            phases=phases,
            starts=[at - before for at in (*step_starts(source, self._recorder.found, dict(noted.begins[:-1])), end)],
            spans=spans,
        )


def _names(count: int) -> list[str]:
    return [*("first", "second", "third")[:count], *(str(number + 1) for number in range(3, count))]


def _note_births(tape: Tape[Any], before: int, slots: Mapping[int, int], record: Record, ends: Sequence[int]) -> None:
    """Note the birth of storages that were first seen as operands: they were made before the operator that reads them."""
    for place, slot, is_taken in tape.requests(before):
        number = slots.get(slot) if is_taken else None
        if number is not None and record.storages[number].born is None:
            record.storages[number].born = min(bisect_right(ends, place), len(ends) - 1)
