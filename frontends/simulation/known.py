"""Values on the device that are known: what came from the host, and what is computed with that in whole numbers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import torch
from torch.utils._pytree import tree_leaves, tree_map

from irscope.frontends.simulation.machine import Machine

_SMALL: Final = 1 << 20
"""Most bytes of numbers of other types that are kept."""
_MOST_NUMBERS: Final = 1 << 22
"""Most whole numbers, or truth values, of a tensor that are kept, and with which the host computes too: labels and masks of a batch."""
_FEW: Final = 64
"""Most numbers of other types with which it computes."""
_EXPERTS: Final = 512
"""Most columns among which rows are taken to be distributed: experts. What is chosen among more are tokens, or boxes."""
_ROWS: Final = 4
"""Rows for each column from which on the largest one alone is a choice of experts, and not the next tokens of a few sequences."""
ROUTES: Final = {"aten::topk": 2, "aten::max.dim": 1, "aten::argmax": 1}
"""Operators that choose columns of each row, with the place of the dimension among their arguments."""
ORDERS: Final = {"aten::sort": 1, "aten::sort.stable": 2, "aten::randperm.generator_out": 0, "aten::randperm.out": 0}
"""Operators that put numbers in another order, with the place of the dimension among their arguments."""
Routing = Literal["balanced", "skewed"]
IN_PLACE: Final = "in place"
"""Text for numbers that were assumed to be in order already, as any order leaves as many of each as there were."""
FINITE: Final = "finite"
"""Text for numbers that nobody computes and that are assumed to be neither infinite nor NaN, as a run that goes on has them."""
CHECKS: Final = ("aten::isnan", "aten::eq.Scalar", "aten::ne.Scalar", "aten::eq.Tensor", "aten::ne.Tensor")
"""Operators by which programs look for others: of these `isinf` and `isfinite` are made."""
OVERWRITES: Final = frozenset({"aten::fill_", "aten::zero_", "aten::arange", "aten::eye"})
"""Operators that do not look at what they write to."""


class Values:
    """Keep what was copied to the device, and computed with it in whole numbers: what is read of it, or brought by a collective, is known.

    Of a piece they are bytes by where they begin; ranks are taken to send what this one does.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.routing: Routing | None = None
        """The columns that unknown rows are assumed to choose among few: all evenly, or always the first ones."""
        self.assumed = ""
        """By which assumption what was read last follows from that, or from how numbers were taken to be ordered; empty where by none."""
        self.note_assumed: Callable[[str], None] = lambda assumption: None
        """Called where the program goes on with such values."""

    def to_device(self, into: torch.Tensor, source: torch.Tensor, assumed: str = "") -> None:
        """Note the values of a copy from the host."""
        self._write(into, source.detach() if _may_keep(into) else None, assumed)

    def choose(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> None:
        """Take what unknown numbers decide to be known: an order, and the columns that were chosen of each row, as by a router of experts.
        Of several all are different."""
        chosen = made if isinstance(made, torch.Tensor) else made[1]
        if name in CHECKS:
            passed = _if_finite(name, args)
            if passed is not None and chosen.numel() and _may_compute(chosen) and self._read(chosen) is None:
                self.to_device(chosen, torch.tensor(passed, device="cpu").expand(chosen.shape), FINITE)
            return
        source = args[0] if isinstance(args[0], torch.Tensor) else chosen
        place = ORDERS.get(name, ROUTES.get(name, 0))
        dim = args[place] if place and len(args) > place else kwargs.get("dim", None if name in ("aten::max.dim", "aten::argmax") else -1)
        if dim is None or not source.dim() or not chosen.numel() or self._read(chosen) is not None:
            return
        columns = source.shape[dim]
        if name in ORDERS:
            if _may_compute(chosen):
                order = torch.arange(columns, device="cpu").view(-1, *[1] * (source.dim() - 1 - dim % source.dim()))
                self.to_device(chosen, order.expand(chosen.shape), IN_PLACE)
            return
        many = chosen.shape[-1] if name == "aten::topk" else 1
        rows = chosen.numel() // many
        if columns <= _EXPERTS and dim % source.dim() == source.dim() - 1 and (many > 1 or rows >= _ROWS * columns):
            first = torch.arange(rows if self.routing == "balanced" else 1, device="cpu")[:, None] * many
            columns_of = (first + torch.arange(many, device="cpu")) % columns
            self.to_device(chosen, columns_of.expand(rows, many).reshape(chosen.shape), self.routing or "")

    def to_host(self, into: torch.Tensor, source: torch.Tensor) -> bool:
        """Copy to the host what is known, or else zeros. Whether it was known."""
        known = self._shown(source)
        if known is None:
            into.zero_()
            return False
        into.copy_(known.reshape(into.shape))
        return True

    def item(self, tensor: torch.Tensor) -> Any:
        """Return one element, if it is known."""
        known = self._shown(tensor)
        return None if known is None else known.item()

    def between(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Note the values of a copy on the device."""
        self.assumed = ""
        known = self._read(source) if into.dtype is source.dtype or _may_compute(source) else None
        self._write(into, None if known is None else known.expand(into.shape).to(into.dtype), self.assumed)

    def holding(self, mask: torch.Tensor, shape: Sequence[int]) -> int | None:
        """Return how many elements of a mask hold where it is spread over a shape, if it is known."""
        known = self._shown(mask)
        return None if known is None else int(torch.count_nonzero(known)) * math.prod(shape) // max(mask.numel(), 1)

    def computed(self, op: Any, args: Any, kwargs: Any, written: Any, blind: bool) -> Any:
        """Compute an operator on the host from what is known; None where it is not. `written` is the operand that it writes to, without
        looking at it where it is `blind`."""
        self.assumed = ""

        def on_host(one: Any) -> Any:
            if isinstance(one, torch.device):
                return torch.device("cpu")
            if not isinstance(one, torch.Tensor) or not one.is_cuda:
                return one
            known = torch.empty(one.shape, dtype=one.dtype, device="cpu") if blind and one is written else self._read(one)
            if known is None:
                raise LookupError
            return known.clone() if one is written else known

        with contextlib.suppress(LookupError, RuntimeError, NotImplementedError, ValueError, IndexError, TypeError), torch.no_grad():
            given, named = tree_map(on_host, (tuple(args), dict(kwargs)))
            return overload_of(op, given)(*given, **named)
        return None

    def may_compute(self, tensors: Sequence[torch.Tensor], written: Any, blind: bool) -> bool:
        """Tell whether the host computes with these operands: few numbers, or whole ones, all of which are known."""
        if not all(map(_may_compute, tensors)):
            return False
        operands = [tensor for tensor in tensors if tensor.is_cuda and not (blind and tensor is written)]
        pieces = map(self._machine.piece_under, operands)
        return all(piece is not None and piece.known is not None for piece in pieces) and (bool(operands) or blind)

    def keep(self, made: Any, computed: Any) -> None:
        """Remember what an operator has made."""
        if computed is None:
            return
        for into, source in zip(tree_leaves(made), tree_leaves(computed), strict=True):
            if isinstance(into, torch.Tensor) and into.is_cuda and into.shape == source.shape and into.dtype is source.dtype:
                self.to_device(into, source, self.assumed)

    def gather(self, source: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
        """Note the values of a collective that gives every rank what this one sent."""
        self.assumed = ""
        known = self._read(source) if source.is_cuda else None
        for tensor in outputs:
            alike = known is not None and tensor.dtype is source.dtype and tensor.numel() == source.numel()
            self._write(tensor, known.reshape(tensor.shape) if alike and known is not None else None, self.assumed)

    def gather_into(self, source: torch.Tensor, output: torch.Tensor) -> None:
        """Do the same with a single output, in which the parts of the ranks lie side by side."""
        self.gather(source, output.view(-1).split(source.numel()) if source.numel() and output.is_contiguous() else [output])

    def _shown(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values with which the program goes on."""
        self.assumed = ""
        known = self._read(tensor)
        if self.assumed:
            self.note_assumed(self.assumed)
        return known

    def _read(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor's values, which may come from several copies that lie side by side."""
        piece = self._machine.piece_under(tensor)
        if piece is None or piece.known is None or not _may_keep(tensor):
            return None
        if not tensor.numel():
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        if self.assumed in ("", IN_PLACE, FINITE):  # where tokens go says more than an order
            self.assumed = piece.assumed or self.assumed
        flat = _between(piece.known, *_span(tensor))
        return None if flat is None else flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), 0)

    def _write(self, tensor: torch.Tensor, known: torch.Tensor | None, assumed: str) -> None:
        piece = self._machine.piece_under(tensor) if tensor.is_cuda and tensor.numel() else None
        if piece is None or (known is None and piece.known is None):
            return
        start, end = _span(tensor)
        before = piece.known or {}
        values = known if known is not None and tensor.is_contiguous() else None
        if known is not None and values is None:  # there are elements between
            around = _between(before, start, end)
            if around is not None:
                values = around.view(tensor.dtype)
                values.as_strided(tensor.shape, tensor.stride(), 0).copy_(known)
        whole = None if values is None else _in_own_storage(values, known).as_strided((values.numel(),), (1,)).view(torch.uint8)
        piece.known = _with_bytes(before, start, end, whole)
        piece.assumed = (piece.assumed or (assumed if whole is not None else "")) if piece.known else ""


def _if_finite(name: str, args: Sequence[Any]) -> bool | None:
    """Return what a comparison says of every finite number; None where that depends on the number."""
    if name == "aten::isnan":
        return False
    is_equal, (one, other) = name.startswith("aten::eq"), args[:2]
    if isinstance(other, float) and not math.isfinite(other):
        return not is_equal
    return is_equal if one is other else None


def _in_own_storage(values: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
    """Return values in a storage that nobody else writes to."""
    found = values.contiguous()
    return found.clone() if found is given else found


def _with_bytes(before: dict[int, torch.Tensor], start: int, end: int, whole: torch.Tensor | None) -> dict[int, torch.Tensor]:
    """Return what is known of a piece once the bytes from one place to another are others, or are known no more."""
    known: dict[int, torch.Tensor] = {}
    for begin, earlier in before.items():
        last = begin + earlier.numel()
        if whole is not None and begin <= start and end <= last:  # programs that write element by element must not cut it into elements
            earlier[start - begin : end - begin] = whole
            return before
        if begin < start:  # what lies outside stays
            known[begin] = earlier[: start - begin]
        if last > end:
            known[max(begin, end)] = earlier[max(end - begin, 0) :]
    if whole is not None:
        known[start] = whole
    return known if len(known) <= _FEW else _side_by_side(known)


def _may_compute(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (_FEW if tensor.dtype.is_floating_point or tensor.dtype.is_complex else _MOST_NUMBERS)


def _may_keep(tensor: torch.Tensor) -> bool:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.numel() * tensor.element_size() <= _SMALL
    return tensor.numel() <= _MOST_NUMBERS


def overload_of(op: Any, given: Sequence[Any]) -> Any:
    """Return what takes these arguments: torch gives a number that it has wrapped as a tensor to Python as a number again, which not every
    overload for tensors takes."""
    numbers = any(
        isinstance(arg, int | float | complex) for arg, said in zip(given, op._schema.arguments, strict=False) if is_of_tensors(said)
    )
    return op.overloadpacket if numbers else op


def is_of_tensors(argument: Any) -> bool:
    """Return whether an argument of an operator is a tensor."""
    return isinstance(argument.type, torch.TensorType)


def _side_by_side(known: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return the same with one copy where several lie side by side."""
    rows: list[tuple[int, list[torch.Tensor]]] = []
    last = -1
    for begin, values in sorted(known.items()):
        if begin != last:
            rows.append((begin, []))
        rows[-1][1].append(values)
        last = begin + values.numel()
    return {begin: torch.cat(parts) if len(parts) > 1 else parts[0] for begin, parts in rows}


def _between(known: Mapping[int, torch.Tensor], start: int, end: int) -> torch.Tensor | None:
    """Return a copy of the bytes of a piece from one place to another; None where one of them is not known."""
    at, parts = start, []
    for begin, one in sorted(known.items()):
        if begin <= at < begin + one.numel():
            parts.append(one[at - begin : end - begin])
            at += parts[-1].numel()
    return torch.cat(parts) if at >= end else None


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the bytes of a storage between which a tensor's elements lie."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start, size = int(tensor.storage_offset()), tensor.element_size()
    return start * size, (start + reach + 1) * size
