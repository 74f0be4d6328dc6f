"""How long operators of a step take: the roofline of a device, or what was recorded."""

from __future__ import annotations

from irscope.devices import DeviceProfile
from irscope.ir.dims import int_or_zero
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.spec import Family
from irscope.passes.cost.bounds import Rates, rate_name
from irscope.training import StepOp, Trace


class StepTimes:
    """Predicts times of operators, where none was measured; calls that look alike are worked out once."""

    def __init__(self, device: DeviceProfile, trace: Trace | None = None) -> None:
        """`trace` is that whose operators may have been measured."""
        self.device = device
        self.measured = trace.measured if trace is not None else {}
        self.measured_on = trace.measured_on if trace is not None else ""
        roofline = "calibrated roofline" if device.calibrated else "roofline"
        self._roofline = f"{roofline} of {device.name}"
        self.source = f"measured on {self.measured_on}" if self.measured else roofline
        self._rates = Rates(device)
        self._known: dict[int, tuple[object, float]] = {}

    @property
    def said(self) -> str:
        """Whose times these are, as tables of numbers say it."""
        return self.source if self.measured else self._roofline

    @property
    def note(self) -> str:
        """The same as a sentence."""
        if self.measured:
            return f"times were measured on {self.measured_on}; of operators without one they are bounds by the {self._roofline}"
        return f"times are bounds by the {self.source} of {self.device.title}, not measured"

    def said_of(self, op: StepOp) -> str:
        """The same for one operator: without a known cost only the bytes of its operands count."""
        if op.number in self.measured:
            return self.source
        is_counted = op.is_view or self.cost(op) is not None
        return self._roofline if is_counted else f"{self._roofline}, bytes alone"

    def of(self, op: StepOp) -> float:
        """Seconds of an operator: the slower of arithmetic and memory, and a launch. One without a known cost moves its operands."""
        measured = self.measured.get(op.number)
        if measured is not None:
            return measured
        if op.is_view or not any(piece.on_device for piece in (*op.reads, *op.writes)):
            return 0.0
        if op.call is None:
            return self._seconds(0.0, sum(piece.size for piece in (*op.reads, *op.writes)))
        found = self._known.get(id(op.call))
        if found is None:
            found = self._known[id(op.call)] = (op.call, self._timed(op))
        return found[1]

    def cost(self, op: StepOp) -> Cost | None:
        """Return what an operator computes and moves, where that is known."""
        return None if op.call is None or op.is_view else op.call.spec.cost_of(op.call)

    def _timed(self, op: StepOp) -> float:
        cost = self.cost(op)
        if cost is None:
            return self._seconds(0.0, sum(piece.size for piece in (*op.reads, *op.writes)))
        return self._seconds(self._arithmetic(op, cost), int_or_zero(cost.read) + int_or_zero(cost.written))

    def _seconds(self, arithmetic: float, moved: int) -> float:
        launch = self.device.launch.lo if self.device.launch is not None else 0.0
        memory = moved / self.device.bandwidth.hi if self.device.bandwidth is not None else 0.0
        return max(arithmetic, memory) + launch

    def _arithmetic(self, op: StepOp, cost: Cost) -> float:
        assert op.call is not None
        name = rate_name(_element_type(op))
        parts: list[float] = []
        if int_or_zero(cost.matmul):
            is_convolution = op.call.spec.family is Family.CONVOLUTION or OpRole.CONVOLUTION in op.call.spec.roles
            rate = self._rates.product(name, "convolution" if is_convolution else "")
            if rate is not None:
                parts.append(int_or_zero(cost.matmul) / rate[1].hi)
        for amount, speed in (
            (int_or_zero(cost.elementwise) + int_or_zero(cost.reduction), self._rates.vector(name)),
            (int_or_zero(cost.transcendental), self._rates.functions(name)),
        ):
            if amount and speed is not None:
                parts.append(amount / speed)
        return sum(parts) if self.device.kind == "cpu" else max(parts, default=0.0)


def _element_type(op: StepOp) -> DType:
    """The narrowest type with a fraction among operands and results."""
    assert op.call is not None
    floats = [
        type_.dtype for type_ in (*op.call.types, *op.call.results) if isinstance(type_, TensorType) and type_.dtype.kind is DTypeKind.FLOAT
    ]
    return min(floats, key=lambda dtype: dtype.bits or 64, default=DType.F32)
