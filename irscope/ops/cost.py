"""What one use of an operator costs: FLOPs by class and bytes. One convention: a multiply-add is 2 FLOPs."""

from __future__ import annotations

from irscope.immutable import immutable
from irscope.ir.dims import Dim

FLOP_CLASSES = ("matmul", "elementwise", "transcendental", "reduction", "move")


@immutable
class Cost:
    """Sums that may be symbolic. Fields are FLOPs by class, multiply-adds among them, and bytes touched."""

    matmul: Dim = 0
    """Matrix products and convolutions."""
    elementwise: Dim = 0
    transcendental: Dim = 0
    """Elements through exp, log, tanh, sqrt and the like, one each."""
    reduction: Dim = 0
    move: Dim = 0
    """Data movement; its FLOPs are zero, the class exists so that every operator has one."""
    macs: Dim = 0
    masked: Dim = 0
    """The part of `matmul` spent on pairs of query and key that a causal mask then throws away."""
    read: Dim | None = None
    """Bytes read; None in a rule's answer means "every operand once"."""
    written: Dim | None = None
    """Bytes written; None in a rule's answer means "every result once"."""

    @property
    def flops(self) -> Dim:
        return self.matmul + self.elementwise + self.transcendental + self.reduction + self.move

    def __add__(self, other: Cost) -> Cost:
        read = None if self.read is None or other.read is None else self.read + other.read
        written = None if self.written is None or other.written is None else self.written + other.written
        return Cost(
            self.matmul + other.matmul,
            self.elementwise + other.elementwise,
            self.transcendental + other.transcendental,
            self.reduction + other.reduction,
            self.move + other.move,
            self.macs + other.macs,
            self.masked + other.masked,
            read,
            written,
        )

    def times(self, count: Dim) -> Cost:
        """Return the cost of doing it `count` times."""
        read = None if self.read is None else self.read * count
        written = None if self.written is None else self.written * count
        return Cost(
            self.matmul * count,
            self.elementwise * count,
            self.transcendental * count,
            self.reduction * count,
            self.move * count,
            self.macs * count,
            self.masked * count,
            read,
            written,
        )


FREE = Cost(read=0, written=0)
"""Nothing is computed or moved: views, shape queries."""
