"""Kernels of the simulated device: shapes by torch's rules, temporary memory by irscope's, one plan for all calls that look alike."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode, UnsupportedOperatorException
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from irscope.frontends.eager.fakes import RULES
from irscope.frontends.eager.pretend import current
from irscope.frontends.eager.record import Kind, Op, Record, Storage, Tensor, dtype_of, lowered
from irscope.frontends.eager.routes import KERNELS as SHAPES
from irscope.frontends.simulation.known import CHECKS, ORDERS, OVERWRITES, ROUTES, Values, overload_of
from irscope.frontends.simulation.machine import FRESH, Machine, Piece
from irscope.frontends.simulation.scratch import NOTHING, SCRATCH, Asked
from irscope.frontends.simulation.storages import Form
from irscope.ir.graph import Role
from irscope.memory.tape import Ran
from irscope.ops.registry import find_op
from irscope.ops.spec import Drop, Gemm, MemoryEvent, OpCall, Result, Take, Workspace, memory_events

Kernel: TypeAlias = Callable[..., Any]
_CPU, _CUDA = torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA
_PYTHON, _SNAPSHOT = torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot
_EXPLICIT: Final = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_WHOLE: Final = ("convolution", "convolution_backward")
"""Operators that torch splits differently on each device; the rules for their memory see them whole."""
_IN_HOST_MEMORY: Final = ("aten::_scaled_dot_product_efficient_attention",)
"""Operators that leave results without dimensions (seed and offset) in the host's memory, except where a graph is captured, or
without dropout where the release leaves them on the device."""
_DROPOUT: Final = 5
"""The place of `dropout_p` among their arguments."""
_MINLENGTH: Final = 2
"""The place of `minlength` among the arguments of `bincount`."""
_TRIED: Final = 1 << 20
"""Bytes of operands up to which a kernel of the CPU is run as it is to see what an operator makes."""
_BEARABLE: Final = 1 << 26
"""Bytes of operands up to which it is run as it is where fewer elements do not tell."""
_FEW: Final = 4
"""Sizes up to this stay as they are where a kernel is tried on few elements; larger ones become little more than it."""
_MADE: Final = ("aten::empty", "aten::new_empty")
"""Operators that only allocate."""
_STEP: Final = re.compile(r"_foreach_|_fused_(adam|sgd|adagrad)")


# -- which operators have kernels of their own on a CUDA device ---------------------------------------------------------


def cuda_operators() -> list[str]:
    """Return the operators with a kernel for CUDA, from the list that ships with torch: "add.Tensor", "mm", ..."""
    path = Path(torch.__file__).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    own: set[str] = set()
    delegated: dict[str, str] = {}
    name = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("- func: "):
            name = line[8:].partition("(")[0]
        elif line.startswith("  structured_delegate: "):
            delegated[name] = line.partition(": ")[2].strip()
        elif line.startswith("  ufunc_inner_loop:"):  # its kernels for the CPU and CUDA are generated
            own.add(name)
        elif line.startswith("    ") and ":" in line:
            keys = line.strip().partition(":")[0].split(", ")
            if "CUDA" in keys:
                own.add(name)
    own.update(name for name, to in delegated.items() if to in own)
    return sorted(own)


def built_kernels() -> frozenset[str]:
    """Return the operators that have a compiled kernel for CUDA in this process: none in a build without CUDA."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    return frozenset(name.removeprefix("aten::") for name in names if name.startswith("aten::"))


# -- plans ---------------------------------------------------------------------------------------------------------------


class UnknownKernel(RuntimeError):
    """An operator whose kernel does not run here, so that nobody can tell what it makes."""


class Plan:
    """Plan of calls that look alike: what they allocate, in order, and what they return."""

    __slots__ = ("actions", "forms", "ran", "resizes", "results", "single", "unknown")

    def __init__(self) -> None:
        self.actions: list[tuple[str, Any, Any]] = []
        self.forms: list[Form] = []
        self.results: Any = None
        self.resizes: list[tuple[int, tuple[int, ...]]] = []
        """Operands that take another shape, by place among all tensors."""
        self.ran: Ran | None = None
        """Work that is queued; None where nothing runs on the device."""
        self.single = False
        """True where it allocates nothing but its only result."""
        self.unknown = False


class _New:
    """A result with a storage of its own."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Operand:
    """A result that is an operand, or a view of one."""

    __slots__ = ("geometry", "place")

    def __init__(self, place: int, geometry: Any = None) -> None:
        self.place = place
        self.geometry = geometry


class _Host:
    """A result in the host's memory."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype


class Listener(Protocol):
    """Told of every kernel that runs."""

    def following(self, op: Any, kernel: Kernel) -> Kernel:
        """Return a wrapper that runs in place of a kernel and calls it."""
        ...

    def modelled(self, piece: Piece, asked: Workspace) -> None:
        """Note memory that a library is given, whose size is modelled."""
        ...


class Kernels:
    """Registers kernels for the simulated device and runs them."""

    def __init__(
        self,
        machine: Machine,
        buffers: Callable[[Any], Sequence[Any]],
        values: Values,
        number: Callable[[bool], int],
        listener: Listener | None = None,
    ) -> None:
        self.machine = machine
        self.listener = listener
        self._buffers = buffers
        # Where torch has no shape function it would run a kernel on real tensors, which is the one that asks.
        self._mode = FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        self._library: Any = None
        self._fallback: Any = None
        self._made: dict[Any, Kernel] = {}
        self.special: dict[str, Kernel] = {}
        """Kernels that are no plans, by name of the operator."""
        self.values = values
        """Known values on the device."""
        self.allow_unknown = False
        """True where operators of a program's own are counted if their kernels for the device do not run here."""
        self.number = number
        """Returns how many elements hold where nobody computes them; called each time that a program asks, with whether there is a most."""
        self._computed: Any = None
        """The results that the host computes of an operator in such a call; None where its operands are not known."""
        self._number = 0
        """Number of elements that hold in the call for which a plan is made."""
        self.unknown: dict[str, int] = {}
        """Operators whose kernels' own memory is not known, with the number of calls."""

    def install(self) -> None:
        """Register everything; the kernels hold for the rest of the process."""
        library = self._library = torch.library.Library("aten", "IMPL")
        self._fallback = torch.library.Library("_", "IMPL")
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        real = built_kernels()
        names = {*cuda_operators(), *_WHOLE, *real, *(name.removeprefix("aten::") for name in self.special)}
        for name in sorted(names):
            full = f"aten::{name}"
            try:
                composite = any(has(full, key) for key in _EXPLICIT)
                implicit = has(full, "CompositeImplicitAutograd")
            except RuntimeError:  # an operator of another version of torch
                continue
            if composite or full in self.special or implicit or name in real:
                packet, _, overload = name.partition(".")
                op = getattr(getattr(torch.ops.aten, packet), overload or "default")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that kernels for CUDA are replaced
                    library.impl(name, self.kernel_of(op), "CUDA", allow_override=True)
        self._fallback.fallback(self._any, "CUDA")

    def register_all(self) -> None:
        """Register the operators that the fallback serves each by itself: where a mode of dispatch is active torch looks for a kernel
        by the operator's name, and finds no fallback."""
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        for name in cuda_operators():
            try:
                if has(f"aten::{name}", "CUDA"):
                    continue
            except RuntimeError:  # an operator of another version of torch
                continue
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            self._library.impl(name, self.kernel_of(op), "CUDA", allow_override=True)

    def _any(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._made.get(op)
        if found is None:
            found = self.kernel_of(op)
        return found(*args, **kwargs)

    def kernel_of(self, op: Any) -> Kernel:
        """Return the kernel that an operator has on the simulated device."""
        found = self._made.get(op)
        if found is None:
            found = self.special.get(op.name()) or (_viewing(op) if _is_view(op) else self.planned(op))
            self._made[op] = found = found if self.listener is None else self.listener.following(op, found)
        return found

    # -- kernels by plan -------------------------------------------------------------------------------------------

    def planned(self, op: Any) -> Kernel:
        """Return the kernel that does what the plans of its calls say."""
        plans: dict[Any, Plan] = {}
        floats = torch.Tag.pointwise not in op.tags and not _STEP.search(op.name())
        captures = op.name() in _IN_HOST_MEMORY
        written = [(place, one.name) for place, one in enumerate(op._schema.arguments) if _is_written(one)]
        counts = torch.Tag.dynamic_output_shape in op.tags or op.name().partition(".")[0] in RULES
        forget = self.machine.forget
        lists = any("[]" in str(one.type) for one in op._schema.arguments if _is_written(one))
        follows = (
            not lists
            and len(written) <= 1
            and torch.Tag.nondeterministic_seeded not in op.tags
            and op.name().partition(".")[0] not in _MADE
        )
        is_out = bool(written) and all(op._schema.arguments[place].is_out for place, _ in written)
        blind = is_out or op.name().partition(".")[0] in OVERWRITES
        run, make, lock = self._run, self._plan, self.machine.lock
        default_dtype = torch.get_default_dtype

        def kernel(*args: Any, **kwargs: Any) -> Any:
            tensors: list[torch.Tensor] = []
            key: list[Any] = [default_dtype()]  # what is not said a type gets, and whole numbers that become fractions
            for one in args:
                _look(one, tensors, key, floats)
            for name, one in kwargs.items():
                key.append(name)
                _look(one, tensors, key, floats)
            if captures:
                key.append(torch.cuda.is_current_stream_capturing())
            with lock:
                changed: Any = None
                values, computed = self.values, None
                for place, name in written:
                    changed = args[place] if place < len(args) else kwargs.get(name)
                if follows and values.may_compute(tensors, changed, blind):
                    computed = values.computed(op, args, kwargs, changed, blind)
                if counts:
                    if computed is not None and values.assumed:
                        values.note_assumed(values.assumed)
                    self._computed = computed
                    self._number = self._count(op.name(), args, kwargs) if computed is None else 0
                    key += [self._number, *(tuple(one.shape) for one in tree_flatten(computed)[0] if isinstance(one, torch.Tensor))]
                known = tuple(key)
                plan = plans.get(known)
                if plan is None:
                    plan = make(op, args, kwargs, tensors)
                    plans[known] = plan
                for place, name in written if computed is None else ():
                    forget(args[place] if place < len(args) else kwargs.get(name))
                made = run(plan, tensors, op)
            if computed is not None:
                values.keep(made, computed)
            return made

        return self._choosing(op.name(), kernel) if op.name() in (*ROUTES, *ORDERS, *CHECKS) else kernel

    def _choosing(self, name: str, kernel: Kernel) -> Kernel:
        def choosing(*args: Any, **kwargs: Any) -> Any:
            made = kernel(*args, **kwargs)
            if self.values.routing is not None:
                self.values.choose(name, args, kwargs, made)
            return made

        return choosing

    def _count(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Return how many results an operator will have that has as many as elements hold: by a known mask, or as nobody computes."""
        if kwargs.get("output_size") is not None or (name == "aten::bincount" and len(args) > _MINLENGTH):
            return 0  # the program says how many
        values, masks, shape = self.values, [args[0]], tuple(args[0].shape)
        if name.startswith("aten::index"):
            masks = [one for one in args[1] if one is not None and one.dtype in (torch.bool, torch.uint8)]
            shape = tuple(masks[0].shape) if masks else ()
        elif name.startswith("aten::masked_select"):
            masks, shape = [args[1]], tuple(torch.broadcast_shapes(args[0].shape, args[1].shape))
        is_mask = name.startswith(("aten::index", "aten::masked_select", "aten::nonzero"))
        known = values.holding(masks[0], shape) if is_mask and len(masks) == 1 else None
        return self.number(name.partition(".")[0] in RULES) if known is None and masks else known or 0

    def _run(self, plan: Plan, tensors: list[torch.Tensor], op: Any) -> Any:
        machine = self.machine
        if plan.unknown:
            self.tell_unknown(op.name())
        if plan.ran is not None:
            machine.queue(plan.ran)
        if plan.single:
            return machine.empty(plan.forms[0], op.name(), "tensor" if tensors else FRESH)
        made: list[Any] = [None] * len(plan.forms)
        held: dict[str, Piece] = {}
        label = op.name()
        try:
            for verb, what, size in plan.actions:
                if verb == "make":
                    made[what] = machine.empty(plan.forms[what], label)
                elif verb == "take":
                    held[what] = machine.take(size, "temporary", what)
                elif verb == "drop":
                    machine.free(held.pop(what))
                elif verb == "multiply":
                    machine.multiply(what)
                else:
                    piece = machine.take(size.size, "workspace", what)
                    if self.listener is not None:
                        self.listener.modelled(piece, size)
                    machine.free(piece)
        finally:
            for piece in held.values():
                machine.free(piece)
        for place, shape in plan.resizes:
            resize_tensor(machine, tensors[place], shape)
        return _returned(plan.results, made, tensors)

    def tell_unknown(self, name: str) -> None:
        """Count a call that takes an unknown amount of memory."""
        self.unknown[name] = self.unknown.get(name, 0) + 1

    # -- making plans ----------------------------------------------------------------------------------------------

    def _plan(self, op: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Plan:
        """Return the plan for a call; dispatch to Python is on here where torch switches it off, as it makes tensors from numbers."""
        excluded = torch._C._dispatch_tls_local_exclude_set().remove(_PYTHON).remove(_SNAPSHOT)
        with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded), torch.no_grad():
            return self._plan_anew(op, args, kwargs, tensors)

    def _has_seeds_on_device(self, args: Any) -> bool:
        dropout = args[_DROPOUT] if len(args) > _DROPOUT else 0
        return torch.cuda.is_current_stream_capturing() or (self.machine.target.release.seeds_on_device and not dropout)

    def _plan_anew(self, op: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Plan:
        fakes = [self._fake(one) for one in tensors]
        before = [tuple(one.shape) for one in fakes]
        found = iter(fakes)
        given, named = tree_map(lambda one: next(found) if isinstance(one, torch.Tensor) else one, (tuple(args), dict(kwargs)))
        result = _wanted(op, given, named, self._shapes(op, given, named))
        if op.name() in _IN_HOST_MEMORY and not self._has_seeds_on_device(args):
            result = tuple(self._fake(one, "cpu") if not one.dim() else one for one in result)
        plan = Plan()
        storages: dict[int, int] = {one.untyped_storage()._cdata: place for place, one in enumerate(fakes)}
        identities = {id(one): place for place, one in enumerate(fakes)}
        own: list[FakeTensor] = []

        plan.results = self._all_described(result, (plan, storages, identities, own))
        plan.resizes = [
            (place, tuple(one.shape)) for place, (one, was) in enumerate(zip(fakes, before, strict=True)) if tuple(one.shape) != was
        ]
        flat, _ = tree_flatten(result)
        call = operator_call(op, given, named, flat, {id(fake): real for fake, real in zip(fakes, tensors, strict=True)})
        self._ask(plan, op, given, named, flat, (call, own))
        plan.ran = _ran(op, call, tensors, plan)
        plan.single = isinstance(plan.results, _New) and plan.actions == [("make", 0, 0)] and not plan.resizes
        return plan

    def _shapes(self, op: Any, given: Any, named: Any) -> Any:
        """Return the results without values; what only writes into its operands, such as fused SGD, needs no shape function."""
        if self._computed is not None and torch.Tag.dynamic_output_shape in op.tags:
            return tree_map(lambda one: self._fake(one, "cuda") if isinstance(one, torch.Tensor) else one, self._computed)
        if not op._schema.returns:
            if "_fused_" in op.name():
                return None
            if "_foreach_" in op.name():
                given, named = _one_of_each(given, named)
        route = SHAPES.get(op.name())
        try:
            with self._mode:
                routed = NotImplemented if route is None else route(self.machine.target, given, named)
                return overload_of(op, given)(*given, **named) if routed is NotImplemented else routed
        except DynamicOutputShapeException:
            rule = RULES.get(op.name().partition(".")[0])
            if rule is not None:
                with self._mode:
                    return rule(self._number, *given, **named)
            return self._tried(op, given, named)
        except (UnsupportedOperatorException, NotImplementedError):
            return self._tried(op, given, named)

    def _tried(self, op: Any, given: Any, named: Any) -> Any:
        """Results of an operator that has no shape function: by the one of its form that returns what it makes, or else by the CPU's kernel
        on zeros; on few of them where the operands are large."""
        functional = _functional(op)
        if functional is not None:
            return self._into_operands(op, functional, given, named)
        if op.namespace != "aten" and not self.allow_unknown:
            raise UnknownKernel(
                f"operator {op} has no rule for what it makes (torch.library.register_fake gives it one), and its kernels do not run here"
            )
        operands = [one for one in tree_flatten((tuple(given), dict(named)))[0] if isinstance(one, torch.Tensor)]
        size = sum(one.numel() * one.element_size() for one in operands)
        whole: list[Mapping[int, int]] = [{}]
        ways = [whole] if size <= _TRIED or self.allow_unknown else [_sizes_to_try(operands), *[whole] * (size <= _BEARABLE)]
        for tries in ways:
            try:
                return self._on_zeros(op, given, named, tries)
            except (NotImplementedError, RuntimeError, IndexError, ValueError) as error:
                reason: Exception = error
        hint = "; --allow-unknown-kernels lets it run on the host with zeros, at full size"
        raise UnknownKernel(
            f"operator {op} has no rule for what it makes, and its kernel does not run here"
            + (hint if whole not in ways and not isinstance(reason, NotImplementedError) else "")
        ) from reason

    def _into_operands(self, op: Any, functional: Any, given: Any, named: Any) -> Any:
        """Resize an operator's operands for its results (`out=`) to the shapes of the results, and return them."""
        values = dict(zip((one.name for one in op._schema.arguments), given, strict=False)) | dict(named)
        written = [one.name for one in op._schema.arguments if _is_written(one)]
        plain = [one.name for one in functional._schema.arguments if not one.kwarg_only]
        keywords = {one.name: values[one.name] for one in functional._schema.arguments if one.kwarg_only and one.name in values}
        made = self._shapes(functional, tuple(values[name] for name in plain if name in values), keywords)
        results = [values[name] for name in written]
        for result, like in zip(results, [made] if isinstance(made, torch.Tensor) else made, strict=False):
            if isinstance(like, torch.Tensor) and result.shape != like.shape:
                with self._mode:
                    result.resize_(like.shape)
        return results[0] if len(results) == 1 else tuple(results)

    def _on_zeros(self, op: Any, given: Any, named: Any, tries: Sequence[Mapping[int, int]]) -> Any:
        """Results by the CPU's kernel, with other sizes in place of some; what is the same at each try is at the sizes that are wanted."""
        operands: list[Any] = []
        runs: list[tuple[list[torch.Tensor], Any]] = []
        for sizes in tries:
            operands = []
            zeros: list[torch.Tensor] = []

            def zero(one: Any, sizes: Mapping[int, int] = sizes, operands: list[Any] = operands, zeros: list[Any] = zeros) -> Any:
                if isinstance(one, torch.Generator) or (isinstance(one, torch.device) and one.type == "cuda"):
                    return None if isinstance(one, torch.Generator) else torch.device("cpu")
                if not isinstance(one, torch.Tensor):
                    return sizes.get(one, one) if type(one) is int else one
                operands.append(one)
                shape = tuple(sizes.get(size, size) for size in one.shape)
                strides = one.stride() if not sizes else _dense_strides(shape, one.stride())
                zeros.append(torch.empty_strided(shape, strides, dtype=one.dtype, device="cpu").zero_())
                return zeros[-1]

            plain, options = tree_map(zero, (tuple(given), dict(named)))
            result = op(*plain, **options)
            runs.append((zeros, result))
        for place, operand in enumerate(operands):
            shape = _wanted_shape([tuple(zeros[place].shape) for zeros, _ in runs], tries)
            if tuple(operand.shape) != shape:
                with self._mode:
                    operand.resize_(shape)
        flat = [tree_flatten(result)[0] for _, result in runs]
        _, spec = tree_flatten(runs[0][1])
        return tree_unflatten([self._as_wanted(alike, operands, runs, tries) for alike in zip(*flat, strict=True)], spec)

    def _as_wanted(self, alike: Sequence[Any], operands: list[Any], runs: Any, tries: Sequence[Mapping[int, int]]) -> Any:
        first = alike[0]
        if not isinstance(first, torch.Tensor):
            return first
        place = next((place for place, known in enumerate(runs[0][0]) if known is first), None)
        if place is not None:
            return operands[place]
        shape = _wanted_shape([tuple(one.shape) for one in alike], tries)
        strides = first.stride() if not tries[0] else _dense_strides(shape, first.stride())
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            like = torch.empty_strided(shape, strides, dtype=first.dtype, device="meta")
            return FakeTensor(self._mode, like, torch.device("cuda", current.device))

    def _fake(self, one: torch.Tensor, device: Any = None) -> Any:
        # Made by hand: dispatched by the mode, torch.empty_strided takes several times as long.
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            like = torch.empty_strided(tuple(one.shape), one.stride(), dtype=one.dtype, device="meta")
            return FakeTensor(self._mode, like, torch.device(device or one.device))

    def _all_described(self, item: Any, found: tuple[Any, ...]) -> Any:
        if isinstance(item, torch.Tensor):
            return self._described(item, *found)
        if isinstance(item, list):
            return [self._all_described(one, found) for one in item]
        return tuple(self._all_described(one, found) for one in item) if isinstance(item, tuple) else item

    def _described(self, item: Any, plan: Plan, storages: dict[int, int], identities: dict[int, int], own: list[Any]) -> Any:
        place = identities.get(id(item))
        if place is not None:
            return _Operand(place)
        shape, strides = tuple(item.shape), tuple(item.stride())
        if item.device.type != "cuda":
            return _Host(shape, item.dtype)
        cdata = item.untyped_storage()._cdata
        place = storages.get(cdata)
        if place is not None:
            return _Operand(place, (shape, strides, item.storage_offset()))
        index = len(plan.forms)
        plan.forms.append(Form(shape, strides, item.dtype, item.untyped_storage().nbytes()))
        own.append(item)
        return _New(index)

    def _ask(self, plan: Plan, op: Any, args: Any, kwargs: Any, flat: list[Any], known: tuple[OpCall | None, list[Any]]) -> None:
        """Plan what the operator's kernels allocate, in order; `known`: the call as its record sees it, and the results' own storages."""
        call, own = known
        places = {id(one): index for index, one in enumerate(own)}
        results = [places.get(id(one)) for one in flat]
        events = self._events(op, args, kwargs, flat, call, plan)
        waiting = [index for index in results if index is not None]
        actions = plan.actions
        open_: list[str] = []
        for event in events:
            if isinstance(event, Result):
                index = results[event.index] if event.index < len(results) else None
                if index is not None and index in waiting:
                    waiting.remove(index)
                    if isinstance(event.size, int) and op.name() not in _IN_HOST_MEMORY:
                        form = plan.forms[index]
                        plan.forms[index] = Form(form.shape, form.strides, form.dtype, event.size)
                    actions.append(("make", index, 0))
            elif isinstance(event, Take):
                open_.append(event.label)
                actions.append(("take", event.label, event.size))
            elif isinstance(event, Drop):
                open_.remove(event.label)
                actions.append(("drop", event.label, 0))
            elif isinstance(event, Gemm):
                actions.append(("multiply", self._buffers(event.path), 0))
            elif isinstance(event, Workspace):
                actions.append(("work", event.label, event))
            else:
                plan.unknown = True
                open_.append(event.label)
                actions.append(("take", event.label, event.low))
        actions.extend(("make", index, 0) for index in waiting)

    def _events(self, op: Any, args: Any, kwargs: Any, flat: list[Any], call: OpCall | None, plan: Plan) -> Sequence[MemoryEvent]:
        rule = SCRATCH.get(op.name())
        if rule is not None:
            return rule(Asked(dict(zip((one.name for one in op._schema.arguments), args, strict=False)) | dict(kwargs), flat))
        if call is None:
            plan.unknown = op.namespace != "aten" or (bool(plan.forms) and op.name() not in NOTHING and torch.Tag.pointwise not in op.tags)
            return ()
        return memory_events(call, self.machine.target)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _functional(op: Any) -> Any:
    """Return the overload that returns what this one writes into operands that it is given for that."""
    arguments = op._schema.arguments
    read = {one.name for one in arguments if not _is_written(one)}
    if len(read) == len(arguments) or not all(one.is_out for one in arguments if _is_written(one)):
        return None
    for name in op.overloadpacket.overloads():
        other = getattr(op.overloadpacket, name)
        if {one.name for one in other._schema.arguments} == read and not any(map(_is_written, other._schema.arguments)):
            return other
    return None


def _sizes_to_try(operands: Sequence[torch.Tensor]) -> list[Mapping[int, int]]:
    """Smaller sizes for those that are large. They lie differently far apart each time: a size that is another one and a number more, as
    of convolutions, is not taken for a third one."""
    large = sorted({size for one in operands for size in one.shape if size > _FEW})
    return [{size: _FEW + 2 + apart * (place + 1) for place, size in enumerate(large)} for apart in (2, 3, 5)]


def _wanted_shape(shapes: Sequence[tuple[int, ...]], tries: Sequence[Mapping[int, int]]) -> tuple[int, ...]:
    """Return the shape at the wanted sizes, by those at the sizes that were tried. ValueError where it is not one of them, nor fixed."""
    if not tries[0]:
        return shapes[0]
    if len({len(shape) for shape in shapes}) != 1:
        raise ValueError("the number of dimensions depends on sizes")
    found = []
    for sizes in zip(*shapes, strict=True):
        same = [size for size in tries[0] if all(one[size] == made for one, made in zip(tries, sizes, strict=True))]
        if not same and len(set(sizes)) != 1:
            raise ValueError("a size is computed from others")
        found.append(same[0] if same else sizes[0])
    return tuple(found)


def _dense_strides(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Strides in the order of others, without gaps; what is the same along a dimension stays so."""
    strides, step = [0] * len(shape), 1
    for place in sorted(range(len(shape)), key=lambda place: (like[place], -place)):
        if like[place]:
            strides[place] = step
            step *= max(shape[place], 1)
    return tuple(strides)


def _ran(op: Any, call: OpCall | None, tensors: Sequence[torch.Tensor], plan: Plan) -> Ran | None:
    """Return what is queued for a call: nothing where a tensor is only made."""
    name = op.name()
    if name.startswith(_MADE):
        return None
    moved = sum(one.numel() * one.element_size() for one in tensors if one.is_cuda) + sum(form.bytes for form in plan.forms)
    # What has neither a record nor a rule for its memory is an operator of which nothing is known.
    return Ran(name, call, moved, is_known=call is not None or not plan.unknown)


def _one_of_each(given: Sequence[Any], named: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The operands of an operator that changes the elements of its lists, each by itself, with one of all elements that look alike."""
    operands = [*given, *named.values()]
    lists = [one for one in operands if isinstance(one, list | tuple)]
    if len({len(one) for one in lists}) != 1 or any(isinstance(one, torch.Tensor) and one.dim() for one in operands):
        return given, named  # not of one length, or with a vector of a number for each element
    first_alike: dict[tuple[Any, ...], int] = {}
    for place, elements in enumerate(zip(*lists, strict=True)):
        key: list[Any] = []
        for one in elements:
            _look(one, [], key, floats=False)
        first_alike.setdefault(tuple(key), place)

    def chosen(one: Any) -> Any:
        return [one[place] for place in first_alike.values()] if isinstance(one, list | tuple) else one

    return [chosen(one) for one in given], {name: chosen(one) for name, one in named.items()}


def _wanted(op: Any, given: Sequence[Any], named: Mapping[str, Any], result: Any) -> Any:
    """Gradients without those that a mask says nobody wants, which not every shape function leaves out."""
    names = [one.name for one in op._schema.arguments]
    mask = named.get("output_mask")
    if mask is None and "output_mask" in names and names.index("output_mask") < len(given):
        mask = given[names.index("output_mask")]
    if mask is None or not isinstance(result, tuple) or len(mask) != len(result):
        return result
    return tuple(one if wants else None for one, wants in zip(result, mask, strict=True))


class _Notes:
    """Records of the tensors of one call."""

    def __init__(self, real: Mapping[int, torch.Tensor]) -> None:
        self.record = Record(device="cuda:0", grad=True)
        self._real = real
        self._seen: dict[int, Tensor] = {}
        self._storages: dict[int, Storage] = {}

    def of(self, item: Any) -> Any:
        """Return an argument or result in which `Tensor` stands for each tensor."""
        if isinstance(item, torch.Tensor):
            found = self._seen.get(id(item))
            return self._tensor(item) if found is None else found
        return tuple(self.of(one) for one in item) if isinstance(item, tuple | list) else item

    def _tensor(self, item: torch.Tensor) -> Tensor:
        whole, device = item.untyped_storage(), str(item.device)
        storage = self._storages.setdefault(whole._cdata, Storage(len(self._storages), int(whole.nbytes()), device, None))
        is_parameter = isinstance(self._real.get(id(item)), torch.nn.Parameter)
        kind: Kind = "parameter" if is_parameter else "input" if id(item) in self._real else "result"
        made = Tensor(len(self._seen), storage, dtype_of(item), tuple(item.shape), tuple(item.stride()), 0, device, kind)
        self._seen[id(item)] = made
        self.record.tensors.append(made)
        return made


def operator_call(op: Any, args: Any, kwargs: Any, flat: Sequence[Any], real: Mapping[int, torch.Tensor]) -> OpCall | None:
    """Return the call as the rules of an operator see it; `real` has the tensors behind fake ones."""
    notes = _Notes(real)
    record = notes.record
    made = Op(0, op, notes.of(tuple(args)), {name: notes.of(one) for name, one in kwargs.items()}, (), record.root, None, "forward")
    made.results = tuple(notes.of(one) for one in flat)
    record.ops.append(made)
    try:
        program, starts = lowered(record)
    except Exception:  # an operator that no frontend knows, with arguments of a kind that files cannot hold
        return None
    nodes = list(program.graph)
    if starts[1] <= starts[0]:
        return None
    node = nodes[starts[0]]
    spec = find_op(node.op)
    if spec is None:
        return None
    operands = [None if value is None else value.type for value in node.inputs]
    parameters = frozenset(place for place, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
    return OpCall(spec, operands, node.attrs, (), [output.type for output in node.outputs], source=node.source, parameters=parameters)


def _look(item: Any, tensors: list[torch.Tensor], key: list[Any], floats: bool) -> None:
    """Add what a plan may depend on."""
    if isinstance(item, torch.Tensor):
        tensors.append(item)
        key.append((item.dtype, item.shape, item.stride(), item.is_cuda, type(item) is torch.nn.Parameter))
    elif isinstance(item, list | tuple):
        key.append(len(item))
        for one in item:
            _look(one, tensors, key, floats)
    elif isinstance(item, bool) or item is None:
        key.append(item)
    elif isinstance(item, float | complex):
        key.append((item, "float") if floats else "float")
    elif isinstance(item, torch.Generator):
        key.append("generator")
    else:
        key.append(item)


def _returned(item: Any, made: list[Any], tensors: list[torch.Tensor]) -> Any:
    if isinstance(item, _New):
        return made[item.index]
    if isinstance(item, _Operand):
        found = tensors[item.place]
        if item.geometry is not None:
            shape, strides, offset = item.geometry
            return found.as_strided(shape, strides, offset)
        return found
    if isinstance(item, _Host):
        return torch.zeros(item.shape, dtype=item.dtype, device="cpu")
    if isinstance(item, list):
        return [_returned(one, made, tensors) for one in item]
    if isinstance(item, tuple):
        return tuple(_returned(one, made, tensors) for one in item)
    return item


# -- views and sizes -----------------------------------------------------------------------------------------------------


def _is_view(op: Any) -> bool:
    """Return whether it returns a view of an operand and writes nothing."""
    returns = op._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _viewing(op: Any) -> Kernel:
    """Return the CPU's kernel: views are made in the same way for all devices."""
    below = op._op_dk

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return below(_CPU, *args, **kwargs)

    return kernel


def resize_tensor(machine: Machine, tensor: torch.Tensor, shape: Sequence[int]) -> None:
    """Resize a tensor as `Tensor.resize_` does: a larger storage where it is needed."""
    count = math.prod(shape)
    needed = (count + int(tensor.storage_offset())) * tensor.element_size() if count else 0
    piece = machine.piece_under(tensor)
    if needed > (tensor.untyped_storage().nbytes() if piece is None else piece.bytes):
        machine.resize(tensor.untyped_storage(), needed)
    torch.ops.aten.resize_.default._op_dk(_CPU, tensor, tuple(shape))
