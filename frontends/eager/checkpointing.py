"""Plans of what to recompute in live modules: made from a recorded step, applied by `torch.utils.checkpoint`, and measured."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from irscope.errors import UsageError
from irscope.frontends.eager.record import Op, Record
from irscope.frontends.eager.running import bench
from irscope.immutable import immutable
from irscope.report.units import Kind, humanise
from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase
from irscope.solvers.checkpoint.simulate import Region, RegionSimulator
from irscope.solvers.checkpoint.solve import CheckpointPlanner

Occurrence = tuple[str, int]
"""An operator by name, and the how-manieth call of it within its region."""

_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
"""Operators that update running statistics, though their schemas do not say so."""
_STATISTICS = (3, 4)


@immutable(slots=False)
class RegionPolicy:
    """One module to be checkpointed: what is saved; everything else in it runs again in the backward."""

    module: str
    save: frozenset[Occurrence]


@contextmanager
def checkpointed(module: nn.Module, policies: Sequence[RegionPolicy]) -> Iterator[nn.Module]:
    """Let the module recompute by the policies within the context; it is the user's own module, and so are its parameters."""
    undo = apply_policies(module, policies)
    try:
        yield module
    finally:
        undo()


def apply_policies(module: nn.Module, policies: Sequence[RegionPolicy]) -> Callable[[], None]:
    """Make a module recompute as the policies say; what is returned undoes that."""
    inner = dict(module.named_modules())
    missing = [one.module for one in policies if one.module not in inner]
    if missing:
        raise UsageError(f"the module has no submodule {missing[0]!r}", code="IRS391", hint="the plan is for another model")
    before: list[tuple[nn.Module, bool, Any]] = []
    for policy in policies:
        target = inner[policy.module]
        before.append((target, "forward" in vars(target), vars(target).get("forward")))
        target.forward = partial(_run_checkpointed, target, target.forward, policy.save)

    def undo() -> None:
        for target, was_set, forward in reversed(before):
            if was_set:
                target.forward = forward
            else:
                del target.forward

    return undo


def _run_checkpointed(module: nn.Module, forward: Callable[..., Any], save: frozenset[Occurrence], *args: Any, **kwargs: Any) -> Any:
    if not (torch.is_grad_enabled() and module.training):
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, context_fn=partial(_contexts, module, save), **kwargs)


def _contexts(module: nn.Module, save: frozenset[Occurrence]) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    seen: Counter[str] = Counter()

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = str(operator)
        seen[name] += 1
        return CheckpointPolicy.MUST_SAVE if (name, seen[name] - 1) in save else CheckpointPolicy.PREFER_RECOMPUTE

    first, again = create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=True)
    states: dict[str, list[Any]] = defaultdict(list)
    return _nested_contexts(_Draws(save, states), first), _nested_contexts(_Replays(module, states), again)


@contextmanager
def _nested_contexts(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        yield


class _Draws(TorchDispatchMode):
    """In the forward: remembers the generator's state before each random operator that will run again.

    Those that are saved do not run again, so that a generator set once for the whole region would go out of step.
    """

    def __init__(self, save: frozenset[Occurrence], states: dict[str, list[Any]]) -> None:
        begin: Any = super().__init__
        begin()
        self.save = save
        self.states = states
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            name = str(func)
            if (name, self.seen[name]) not in self.save:
                self.states[name].append(_generator_state(args))
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


class _Replays(TorchDispatchMode):
    """Second runs of a region: random numbers are drawn as before, and buffers are not updated a second time."""

    def __init__(self, module: nn.Module, states: dict[str, list[Any]]) -> None:
        begin: Any = super().__init__
        begin()
        self.buffers = {id(one) for one in module.buffers()}
        self.states = states
        self.seen: Counter[str] = Counter()
        self.before: dict[torch.device, Any] = {}
        """States of generators when the region began to run again, to be put back."""

    def __exit__(self, *details: Any) -> None:
        for state in self.before.items():
            _set_generator(state)
        end: Any = super().__exit__
        end(*details)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        name = str(func)
        if torch.Tag.nondeterministic_seeded in func.tags:
            state = self.states[name][self.seen[name]]
            if state is not None:
                self.before.setdefault(*_state_of(state[0]))
                _set_generator(state)
            self.seen[name] += 1
        written = {at for at, one in enumerate(func._schema.arguments) if one.alias_info is not None and one.alias_info.is_write}
        if func._schema.name.partition("::")[2] in _NORMS:
            written.update(_STATISTICS)
        if written:
            args = tuple(one.clone() if at in written and id(one) in self.buffers else one for at, one in enumerate(args))
        return func(*args, **(kwargs or {}))


def _generator_state(args: Sequence[Any]) -> tuple[torch.device, Any] | None:
    """Return the state of the generator for an operator; tensors without data have none."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    if any(isinstance(one, FakeTensor) for one in given):
        return None
    return _state_of(given[0].device if given else torch.device("cpu"))


def _state_of(device: torch.device) -> tuple[torch.device, Any]:
    with torch.utils._python_dispatch._disable_current_modes():
        return device, torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_generator(state: tuple[torch.device, Any]) -> None:
    device, numbers = state
    with torch.utils._python_dispatch._disable_current_modes():
        if device.type == "cuda":
            torch.cuda.set_rng_state(numbers, device)
        else:
            torch.set_rng_state(numbers)


# -- recorded steps as a problem ---------------------------------------------------------------------------------------


_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
"""Classes that say nothing about what is inside."""
_SEVERAL = 3
"""Calls of modules of one class that make it a kind of block."""


@immutable(slots=False)
class RecordedStep:
    """The problem, and the recorded operators that its own stand for."""

    problem: CheckpointProblem
    ops: list[Op]
    """The recorded operator of each operator of the problem; views are left out."""
    record: Record


def divisions(step: RecordedStep) -> list[list[Region]]:
    """Ways to divide a module into regions: blocks that occur several times, and modules that hold shares of what is kept."""
    calls = _Calls(step)
    found: list[list[Region]] = []
    for accepts in (calls.is_block, calls.holds_at_most(0.5), calls.holds_at_most(0.2)):
        regions = [one for path in calls.outermost(accepts) if (one := _region(step, path, calls.inside[path])) is not None]
        if regions and all([one.module for one in regions] != [other.module for other in known] for known in found):
            found.append(regions)
    return found


class _Calls:
    """Modules that were called in the forward, with their operators and what the backward keeps of them."""

    def __init__(self, step: RecordedStep) -> None:
        problem = step.problem
        saved = set(problem.saved)
        self.total = sum(problem.storages[one].size for one in saved)
        self.held: dict[str, int] = {}
        self.inside: dict[str, list[int]] = {}
        self.classes: dict[str, str] = {}
        self._calls: dict[str, set[str]] = {}
        self._children: dict[str, dict[str, None]] = {}
        for at, (op, operator) in enumerate(zip(step.ops, problem.operators, strict=True)):
            if operator.phase is Phase.FORWARD:
                self._note(at, op, sum(problem.storages[one].size for one in operator.writes if one in saved))
        counts = Counter(self.classes[path] for path in self.classes if self._children.get(path))
        self._repeated = {name for name, count in counts.items() if count >= _SEVERAL and name not in _CONTAINERS}

    def _note(self, at: int, op: Op, size: int) -> None:
        above = ""
        for scope in op.scope.chain:
            path = scope.module
            self.held[path] = self.held.get(path, 0) + size
            self.inside.setdefault(path, []).append(at)
            self.classes.setdefault(path, scope.cls)
            self._calls.setdefault(path, set()).add(scope.path)
            self._children.setdefault(above, {}).setdefault(path)
            above = path

    def outermost(self, accepts: Callable[[str], bool]) -> list[str]:
        """Return the outermost modules that are accepted; only such as are called once and keep something."""
        chosen: list[str] = []
        pending = list(self._children.get("", ()))
        while pending:
            path = pending.pop(0)
            if len(self._calls[path]) == 1 and self.held[path] and accepts(path):
                chosen.append(path)
            else:
                pending = [*self._children.get(path, ()), *pending]
        return chosen

    def is_block(self, path: str) -> bool:
        """Return whether a module is of a kind that occurs several times and holds others, or is small beside those."""
        return self.classes[path] in self._repeated or not self._children.get(path)

    def holds_at_most(self, share: float) -> Callable[[str], bool]:
        """Return whether a module holds at most a share of what is kept."""
        return lambda path: self.held[path] <= share * self.total


def _region(step: RecordedStep, path: str, operators: list[int]) -> Region | None:
    """Return the region of a module's operators; None where the backward needs nothing of it."""
    problem = step.problem
    prefix = f"{path}."
    numbers = {op.sequence: op.number for op in step.record.ops if op.phase == "forward" and (f"{op.scope.module}.").startswith(prefix)}
    first, last = min(operators), max(operators)
    own = {step.ops[at].number: at for at in operators}
    trigger, end = -1, first
    for at in range(last + 1, len(problem)):
        op = problem.operators[at]
        made_by = numbers.get(step.ops[at].sequence) if op.phase is Phase.BACKWARD else None
        before = [one for one in op.reads if problem.first_touch[one] <= last]
        if made_by is None or not before:
            continue
        trigger = at if trigger < 0 else trigger
        maker = own.get(made_by)
        if maker is None:
            # A view: what it shows is made by what ran before it.
            maker = max((one for number, one in own.items() if number < made_by), default=first)
            end = max(end, maker + 1)
        else:
            end = max(end, maker + 1 if set(problem.operators[maker].writes) & set(before) else maker)
    return Region(path, tuple(operators), trigger, end) if trigger >= 0 else None


def recorded_peak(record: Record) -> int:
    """Most bytes of tensors alive at once that were made while a step ran."""
    count = len(record.ops)
    change = [0] * (count + 1)
    for one in record.storages:
        if one.born is not None:
            change[one.born] += one.bytes
            if one.died is not None and one.died <= count:
                change[max(one.died, one.born + 1)] -= one.bytes
    live = peak = 0
    for amount in change[:count]:
        live += amount
        peak = max(peak, live)
    return peak


# -- plans -------------------------------------------------------------------------------------------------------------


Loss = Callable[[Any], torch.Tensor]
"""From what the module returns to a number."""

_ROUNDS = 4
"""Times that the budget of the search is lowered when the step that was checked needs more than was simulated."""


@immutable(slots=False)
class ModulePlan:
    """Plan of what to save and what to recompute in a module's step, and its cost."""

    policies: tuple[RegionPolicy, ...]
    budget: int
    kept_peak: int
    """Peak of what the step makes when nothing is recomputed."""
    peak: int
    """The same under the plan: found by running the checkpointed step on tensors without data."""
    simulated: int
    """The same as the search saw it."""
    step_seconds: float
    """Time of the step when nothing is recomputed."""
    seconds: float
    """Extra time, by the same."""
    bound: float | None
    """Extra time that every plan needs, also those that no policy can express."""

    @property
    def met(self) -> bool:
        """Return whether the plan is within the budget."""
        return self.peak <= self.budget

    def document(self) -> dict[str, object]:
        """Return the plan as it goes into JSON."""
        return {
            "format": "irscope-checkpoint-plan",
            "version": 1,
            "budget_bytes": self.budget,
            "peak_bytes": self.peak,
            "kept_peak_bytes": self.kept_peak,
            "step_seconds": self.step_seconds,
            "extra_seconds": self.seconds,
            "regions": [{"module": one.module, "save": [list(pair) for pair in sorted(one.save)]} for one in self.policies],
        }


def policies_of(document: Mapping[str, Any]) -> tuple[RegionPolicy, ...]:
    """Return the policies in a plan's JSON."""
    try:
        if document["format"] != "irscope-checkpoint-plan":
            raise KeyError("format")
        return tuple(
            RegionPolicy(str(one["module"]), frozenset((str(name), int(count)) for name, count in one["save"]))
            for one in document["regions"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            "this is not a checkpoint plan", code="IRS392", hint="irscope.plan_checkpoints(...).document() gives one"
        ) from error


def plan_module(
    module: nn.Module,
    args: Sequence[Any],
    loss: Loss,
    budget: int | Callable[[int], int],
    kwargs: Mapping[str, Any] | None = None,
    *,
    problem_of: Callable[[Record], RecordedStep],
    seconds: float = 10.0,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> ModulePlan:
    """A plan under which what the step makes stays within a budget of bytes, gradients included, parameters and inputs not.

    The budget may be a function of the peak when everything is kept; `problem_of` makes the problem of a record.
    Regions are modules, each run again as a whole except for what is saved, as `torch.utils.checkpoint` does.
    """
    return _ModulePlanner(module, args, kwargs or {}, loss, problem_of, device).plan(budget, seconds, steps, seed)


class _ModulePlanner:
    def __init__(
        self,
        module: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        loss: Loss,
        problem_of: Callable[[Record], RecordedStep],
        device: str,
    ) -> None:
        self.module, self.args, self.kwargs, self.loss, self.device = module, args, kwargs, loss, device
        record = self._recorded(())
        self.kept_peak, self.step = recorded_peak(record), problem_of(record)
        problem = self.step.problem
        self.resident = sum(one.size for one in problem.storages if one.is_input)
        self.planners = [CheckpointPlanner(problem, simulator=RegionSimulator(problem, regions)) for regions in divisions(self.step)]

    def plan(self, asked: int | Callable[[int], int], seconds: float, steps: int | None, seed: int) -> ModulePlan:
        """Search, check on tensors without data, and search again with less where the check needs more."""
        budget = asked if isinstance(asked, int) else asked(self.kept_peak)
        deadline = time.monotonic() + seconds
        if budget >= self.kept_peak or not self.planners:
            return self._planned((), budget, self.kept_peak, self.kept_peak, 0.0, 0.0)
        floor = self.planners[0].bounds.floor.bytes - self.resident
        if budget < floor:
            raise UsageError(
                f"no plan needs less than {humanise(floor, Kind.BYTES)} beyond parameters and inputs: "
                f"a budget of {humanise(budget, Kind.BYTES)} cannot be met",
                code="IRS390",
                hint="a smaller batch needs less; so does a lower precision",
            )
        target, best = budget, None
        for left in range(_ROUNDS, 0, -1):
            spare = max(0.0, deadline - time.monotonic()) / left
            found = replace(self._search(target, spare, steps, seed), budget=budget)
            if best is None or (found.met, -found.seconds if found.met else -found.peak) > (
                best.met,
                -best.seconds if best.met else -best.peak,
            ):
                best = found
            if found.met:
                break
            target -= (found.peak - budget) * 5 // 4 + 1
            if target < floor:
                break
        assert best is not None
        return best

    def _search(self, target: int, seconds: float, steps: int | None, seed: int) -> ModulePlan:
        """Return the best plan among all ways to divide the module into regions."""
        wanted = target + self.resident
        # Where some divisions reach the budget at once, the others are not worth the time.
        able = [one for one in self.planners if one.plan(wanted, seconds=0, steps=0).met] or self.planners
        found = []
        for planner in able:
            planner.seed = seed
            planned = planner.plan(wanted, seconds=seconds / len(able), steps=steps)
            found.append((not planned.met, planned.seconds if planned.met else planned.peak, planner, planned))
        _, _, planner, planned = min(found, key=lambda one: one[:2])
        assert isinstance(planner.simulator, RegionSimulator)
        policies = policies_for(self.step, planner.simulator, list(planned.plan))
        peak = recorded_peak(self._recorded(policies))
        return self._planned(policies, target, peak, planned.peak - self.resident, planned.seconds, planned.bound)

    def _planned(
        self, policies: tuple[RegionPolicy, ...], budget: int, peak: int, simulated: int, seconds: float, bound: float | None
    ) -> ModulePlan:
        return ModulePlan(policies, budget, self.kept_peak, peak, simulated, self.step.problem.seconds, seconds, bound)

    def _recorded(self, policies: Sequence[RegionPolicy]) -> Record:
        """Return the step on tensors without data."""
        with bench(self.module, self.args, self.kwargs, grad=True, device=self.device) as ready, checkpointed(ready.module, policies):
            ready.module.train()
            return ready.record(lambda: self.loss(ready.forward()).backward())


def policies_for(step: RecordedStep, simulator: RegionSimulator, plan: list[int]) -> tuple[RegionPolicy, ...]:
    """Return the policies that carry out a plan of regions."""
    chains = simulator.chains(plan)
    found: list[RegionPolicy] = []
    for region in simulator.regions:
        if region.trigger not in chains or all(simulator.is_saved(plan, op) for op in region.operators):
            continue
        saved = {step.ops[op].number for op in region.operators if simulator.is_saved(plan, op)}
        counts: Counter[str] = Counter()
        save: set[Occurrence] = set()
        prefix = f"{region.module}."
        for op in step.record.ops:
            if op.phase == "forward" and f"{op.scope.module}.".startswith(prefix):
                name = str(op.func)
                if op.number in saved:
                    save.add((name, counts[name]))
                counts[name] += 1
        found.append(RegionPolicy(region.module, frozenset(save)))
    return tuple(found)
