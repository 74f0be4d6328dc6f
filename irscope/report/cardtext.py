"""The card for people: one screen of 80 columns by 24 lines, the verdict first; and what pages show of it."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Sequence
from typing import Any, Final

from irscope.diagnostics import few
from irscope.immutable import immutable
from irscope.report.card import Card, CardDescribed, CardInput, StatedSize, sizes_of
from irscope.report.celltext import LEGEND, SIGNS
from irscope.report.options import PIPE_WIDTH, RenderOptions
from irscope.report.printable import cut_middle, display_width, legible
from irscope.report.units import Kind, humanise, scale_of, type_text
from irscope.report.values import Number, Provenance, Quantity, quantity

HEIGHT: Final = 24
_LABEL = 9
_NARROWEST = 40
_INPUTS = 3
_ALL_NAMED = "--all --rows 0 names them"
_FORMATS: Final = {
    "onnx": "ONNX",
    "pt2": "torch.export",
    "torchscript": "TorchScript",
    "stablehlo": "StableHLO",
    "irs": "irscope text",
    "module": "live module",
    "compiled": "live module as torch.compile compiles it",
    "gguf": "GGUF",
}
_BOUND: Final = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "balanced": "arithmetic and memory bandwidth",
    "launch": "kernel launches",
}
_PARTS: Final = {
    "parameter": "parameters",
    "buffer": "buffers",
    "constant": "constants",
    "input": "inputs",
    "output": "outputs",
    "activation": "activations",
    "temporary": "temporaries",
    "gradient": "gradients",
    "packed": "packed weights",
    "block": "unused part of the run's block",
}
_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"
_SMALL = 0.004
"""Parts of the peak below this share are put together, where there are several."""
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ"))
_COUNTS = ((10**15, " P"), (10**12, " T"), (10**9, " G"), (10**6, " M"))


@immutable
class _Item:
    """One thing that the card says."""

    label: str
    """Empty where that of the one before still holds."""
    text: str
    most: int = 2
    """Lines that it may take."""
    rank: int = 0
    """Order in which items go where there is no room for all: 0 stays."""
    colour: str = ""
    indent: int = _LABEL
    is_list: bool = False
    """True where it is a row whose middle may be cut, and not prose."""
    is_typed: bool = False
    """True where it is a command, which continues in the next line after a backslash."""


def card_lines(card: Card, options: RenderOptions) -> list[str]:
    """Return the card in lines, none wider than there is room, and no more than a screen has."""
    return _Layout(options).lines(CardWriter(card, options.encoding))


class _Layout:
    """Puts items on a screen."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.width = max(_NARROWEST, options.width or PIPE_WIDTH)
        self.ellipsis = options.glyphs.ellipsis

    def lines(self, writer: CardWriter) -> list[str]:
        found = [(item, self._laid_out(item)) for item in writer.items()]
        while sum(len(lines) for _, lines in found) > HEIGHT:
            worst = max(range(len(found)), key=lambda place: (found[place][0].rank, place))
            if not found[worst][0].rank:
                break
            del found[worst]
        return [self._styled(line, item.colour) for item, lines in found for line in lines]

    def _laid_out(self, item: _Item) -> list[str]:
        room = self.width - item.indent
        if item.is_list:
            lines = [cut_middle(item.text, room, self.ellipsis)]
        elif item.is_typed:
            lines = _typed(item.text, room)
        else:
            lines = _wrapped(item.text, room)
        if len(lines) > item.most:
            lines = [*lines[: item.most - 1], _cut_end(" ".join(lines[item.most - 1 :]), room, self.ellipsis)]
        return [f"{item.label if not place else '':{item.indent}}{line}".rstrip() for place, line in enumerate(lines)]

    def _styled(self, line: str, colour: str) -> str:
        return f"\x1b[{colour}m{line}\x1b[0m" if self.options.colour and colour and line else line


def _typed(command: str, room: int) -> list[str]:
    """Return a command that can be copied: where it is too long it goes on behind a backslash; the model's name alone is left out at
    worst.
    """
    words = command.split(" ")
    for last in (words[-1], "MODEL"):
        text = " ".join([*words[:-1], last])
        if display_width(text) <= room:
            return [text]
        head = " ".join(words[:-1])
        if max(display_width(head) + 2, display_width(last)) <= room:
            return [f"{head} \\", last]
    *first, last = _wrapped(" ".join([*words[:-1], "MODEL"]), room - 2)
    return [*(f"{line} \\" for line in first), last]


def _wrapped(text: str, room: int) -> list[str]:
    """Prose in lines of so many columns, as a terminal counts them: `textwrap` counts characters, of which some take two."""
    lines = [""]
    for word in text.split(" "):
        rest = word
        if lines[-1] and display_width(lines[-1]) + 1 + display_width(rest) > room:
            lines.append("")
        while display_width(rest) > room:
            length = next(at for at in range(len(rest)) if display_width(rest[: at + 1]) > room)
            lines[-1:] = [rest[:length], ""]
            rest = rest[length:]
        lines[-1] = f"{lines[-1]} {rest}" if lines[-1] else rest
    return lines


def _matrices(count: int) -> str:
    return "1 matrix" if count == 1 else f"{count:,} matrices"


class CardWriter:
    """Says in words what a card holds, and remembers which signs it used."""

    def __init__(self, card: Card, encoding: str = "utf-8") -> None:
        self.card = card
        self.signs: set[str] = set()
        self._encoding = encoding

    def items(self) -> list[_Item]:
        """Return everything, the verdict first."""
        verdict, colour = self.verdict()
        items = [
            _Item("", self.clean(self.card.identity.path or "model"), 1, 0, _BOLD, 0, is_list=True),
            _Item("", verdict, 2, 0, colour, 0),
            *self.model(),
            *self.memory(),
            *self.stored(),
            *self.cost(),
            *self.doubts(),
            *self.remarks(),
            *self.next(),
        ]
        if legend := self.legend():
            items.append(_Item("", legend, 1, 0, _DIM, 0))
        return items

    def legend(self) -> str:
        return "   ".join(LEGEND[where] for where in LEGEND if SIGNS.get(where, "?") in self.signs)

    # -- the verdict -------------------------------------------------------------------------------------------

    def verdict(self) -> tuple[str, str]:
        """Return whether it fits, in a sentence, and its colour."""
        memory, device = self.card.memory, self.card.device
        room = f"{humanise(device.room_bytes, Kind.BYTES)} on {device.title}" if device.room_bytes else f"the memory of {device.title}"
        sizes = self.sizes_text()
        at = f" at {sizes}" if sizes else ""
        if self.card.identity.nodes is None:
            return self._of_weights(room)
        if memory.fits.value is None:
            if memory.peak.value is not None:
                return self.clean(f"fits? not known{at}: it takes {self.number(memory.peak, Kind.BYTES)}; {memory.why}"), _YELLOW
            least = memory.peak.ends[0]
            known = f"at least {humanise(least, Kind.BYTES)} of {room}{at}; " if least else ""
            return self.clean(f"fits? not known: {known}{memory.why}"), _YELLOW
        needed, what = memory.needed
        takes = f"{self.number(needed, Kind.BYTES)} {what}"
        most = needed.ends[1]
        if memory.fits.value and needed.shown is None and most is not None:
            takes = f"at most {humanise(most, Kind.BYTES)} {what}"
        if memory.fits.value:
            return self.clean(f"fits{_doubt(memory.fits)}{at}: {takes} of {room}"), _GREEN
        missing = f", {self.number(memory.missing, Kind.BYTES)} too much" if memory.missing is not None else ""
        fitting = f"; would fit on {', '.join(memory.devices[:3])}" if memory.devices else "; no device that irscope knows has as much"
        return self.clean(f"does NOT fit{_doubt(memory.fits)}{at}: {takes}{missing} for {room}{fitting}"), _RED

    def _of_weights(self, room: str) -> tuple[str, str]:
        held, memory = self.card.memory.peak, self.card.memory
        weights = f"weights of {humanise(held.ends[0], Kind.BYTES)}"
        if memory.fits.value is False:
            fitting = f"; room on {', '.join(memory.devices[:3])}" if memory.devices else ""
            return self.clean(f"does NOT fit: {weights}, of {room}{fitting}"), _RED
        return self.clean(f"fits? not known: {weights}, of {room}; the file has no graph, so what runs beside them is unknown"), _YELLOW

    def sizes_text(self) -> str:
        """Return the sizes that the numbers are for."""
        return ", ".join(f"{size.short or size.symbol}={size.size}" for size in self.card.sizes)

    # -- what it is --------------------------------------------------------------------------------------------

    def model(self) -> Iterator[_Item]:
        identity, device = self.card.identity, self.card.device
        family = f"{identity.family}{'' if identity.confidence == 'high' or not identity.family else ' (likely)'}"
        nodes = "weights without a graph" if identity.nodes is None else f"{identity.nodes:,} node{'s' * (identity.nodes != 1)}"
        form = "" if identity.nodes is None and self.card.described is None else _FORMATS.get(identity.format, identity.format)
        dtypes = "+".join(weight.dtype for weight in identity.weights[:3])
        parameters = "parameters among the inputs" if self.has_mixed_inputs else "no parameters"
        if identity.parameters.shown != 0 and not (self.has_mixed_inputs and identity.parameters.shown is None):
            size = self.number(identity.parameter_bytes, Kind.BYTES)
            each = f" in {identity.bits_each:.3g} bits each" if identity.bits_each is not None else ""
            of = "among the inputs" if self.has_mixed_inputs else dtypes
            parameters = f"{self.number(identity.parameters, Kind.COUNT)} parameters{each}, {size} {of}".rstrip()
        if self.card.described is not None:
            said = self.described_text(self.card.described)
            family = said if identity.nodes is None else f"{family}, {said}"
        facts = [family if identity.parameters.shown != 0 else "", form, nodes, parameters]
        yield self.item("model", ", ".join(filter(None, facts)))
        if identity.nodes is not None:
            yield self.item("inputs", self.inputs_text())
        memory = f", {humanise(device.memory_bytes, Kind.BYTES)}" if device.memory_bytes else ""
        yield self.item("device", f"{device.name}{memory}: {device.reason}", most=1)

    @property
    def has_mixed_inputs(self) -> bool:
        """Return whether parameters are inputs, and the file does not tell which: code of a compiled graph and programs of JAX are handed
        both.
        """
        identity = self.card.identity
        return identity.are_inputs or (identity.format == "inductor" and identity.parameters.shown == 0)

    def part(self, category: str) -> str:
        return "inputs and parameters" if category == "input" and self.has_mixed_inputs else _part(category)

    def inputs_text(self) -> str:
        inputs = self.card.inputs
        if not inputs:
            return "none"
        shown = few([f"{one.name} {_input_type(one)}" for one in inputs], _INPUTS, _ALL_NAMED)
        return "; ".join(filter(None, (shown, sizes_text(self.card.sizes))))

    # -- what it takes -----------------------------------------------------------------------------------------

    def memory(self) -> Iterator[_Item]:
        memory = self.card.memory
        if self.card.identity.nodes is None:
            yield from self.weights()
            return
        if memory.parts:
            yield self.item("memory", self.sum_text())
            yield self.item("", self.counters_text())
            if self.card.memory.as_file is not None:
                allocated, reserved = (self.number(one, Kind.BYTES) for one in self.card.memory.as_file)
                counted = f"{allocated}, reserved {reserved}" if reserved != "?" else allocated
                yield self.item("", f"as its Python module; run as a file: {counted}", rank=2)
        else:
            ends = memory.peak.ends
            limits = f"{self.number(memory.peak, Kind.BYTES)}: " if memory.peak.value is None and None not in ends else "not known: "
            yield self.item("memory", f"{limits}{memory.why}")
            if memory.reserved.shown is not None or None not in memory.reserved.ends:
                yield self.item("", self.counters_text())
        if memory.branches:
            each = (f"{self.number(branch.peak, Kind.BYTES)} with {sizes_of(branch.chosen)}" for branch in memory.branches)
            yield self.item("", f"by branch: {'; '.join(each)}")
        if memory.node:
            yield self.item("", f"peak at {self.place(memory.node, memory.module, memory.location)}", most=1, is_list=True)
        yield from self.tensors()
        if self.card.described is not None:
            yield from self.cache(self.card.described)
        yield from self.largest()

    def stored(self) -> Iterator[_Item]:
        """Yield what weights would take under another scheme."""
        if self.card.stored is None:
            return
        found: dict[str, Any] = dict(self.card.stored)
        before, after = (self.number(quantity(found[key]), Kind.BYTES) for key in ("weights_before_bytes", "weights_after_bytes"))
        text = f"{found['scheme']}; weights {before} -> {after}, {_matrices(found['stored_count'])} in {found['bits_each']:.3g} bits each"
        if "least_db" in found:
            text += f", rounding error {found['least_db']:.3g} dB at worst"
        yield self.item("as", text)
        if "peak_after" in found:
            peaks = (self.number(quantity(found[key]), Kind.BYTES) for key in ("peak_before", "peak_after"))
            yield self.item("", f"peak {' -> '.join(peaks)}, with its kernels' temporary memory")
        if "verdict" in found:
            yield self.item("", str(found["verdict"]))

    def weights(self) -> Iterator[_Item]:
        """Yield what a file of weights tells: its element types, and what copies of them take."""
        weights = self.card.identity.weights
        total = sum(weight.bytes for weight in weights)
        trained = sum(weight.count for weight in weights if weight.dtype in _TRAINED)
        kinds = [f"{humanise(weight.bytes, Kind.BYTES)} in {weight.count:,} {weight.dtype}" for weight in weights[:4]]
        yield self.item("weights", ", ".join(kinds) or "none of known size")
        yield from self.tensors()
        yield self.item("memory", f"inference needs {humanise(total, Kind.BYTES)} and more: the weights as they are in the file")
        if self.card.described is not None:
            yield from self.cache(self.card.described)
        if self.card.identity.bits_each is not None:
            return  # codes of few bits have no gradients
        least = 2 * total + 8 * trained
        yield self.item("", f"training with Adam needs {humanise(least, Kind.BYTES)} and more: weights, gradients, two f32 moments each")

    def described_text(self, described: CardDescribed) -> str:
        """Return what a file of weights says of its model, in few words."""
        figures = described.figures
        parts = [
            f"{figures[key]} {what}"
            for key, what in (("block_count", "layers"), ("expert_count", "experts"))
            if figures.get(key, "0") not in ("", "0")
        ]
        if described.context:
            parts.append(f"context {described.context:,}")
        return f"{described.architecture} ({', '.join(parts)})" if parts else described.architecture

    def cache(self, described: CardDescribed) -> Iterator[_Item]:
        """Yield what keys and values would take."""
        each = self.number(described.cache, Kind.BYTES)
        if described.cache.value is None:
            yield self.item("cache", described.law)
            return
        low, high = described.cache_at_context.ends
        span = (
            f" [{humanise(low, Kind.BYTES)} to {humanise(high, Kind.BYTES)}]"
            if low is not None and high is not None and low != high
            else ""
        )
        at = f", {self.number(described.cache_at_context, Kind.BYTES)}{span} for {described.context:,}" if described.context else ""
        yield self.item("cache", f"{each} a token and sequence{at}: {described.law}{self.tokens_text(described)}", most=3)

    def tokens_text(self, told: CardDescribed) -> str:
        """Return how many tokens there is room for beside the weights; nothing where windows make that another sum."""
        each, whole, room = told.cache.value, told.cache_at_context.value, self.card.device.room_bytes
        total = sum(weight.bytes for weight in self.card.identity.weights)
        if not isinstance(each, int) or not each or room is None or whole != each * (told.context or 0) or told.cache.interval is not None:
            return ""
        both = f"; with the weights {humanise(total + whole, Kind.BYTES)}" if self.card.identity.nodes is not None and told.context else ""
        return f"{both}; beside the weights at most ~{max(0, room - total) // each:,} tokens of all sequences fit"

    def sum_text(self) -> str:
        """Return the peak as the sum of its parts, all in one unit, rounded so that what is printed adds up."""
        memory = self.card.memory
        peak = memory.peak.value
        values = [part.bytes.value for part in memory.parts]
        head = self.number(memory.peak, Kind.BYTES)
        if not isinstance(peak, int) or not all(isinstance(value, int) for value in values):
            return f"{head} = {' + '.join(f'{self.number(part.bytes, Kind.BYTES)} {self.part(part.category)}' for part in memory.parts)}"
        unit, _ = scale_of(peak, Kind.BYTES)
        decimals = 0 if unit == 1 else 2
        parts: list[tuple[str, str, int]] = []
        for part, value in zip(memory.parts, values, strict=True):
            assert isinstance(value, int)
            parts.append((self.sign(part.bytes), self.part(part.category), value))
        small = [part for part in parts if part[2] < _SMALL * peak]
        if len(small) > 1:
            kept = [part for part in parts if part not in small]
            parts = [*kept, (max(sign for sign, _, _ in small), "other", sum(value for _, _, value in small))]
        shown = adding_up([value for _, _, value in parts], peak, unit)
        texts = [f"{sign}{amount:,.{decimals}f} {name}" for (sign, name, _), amount in zip(parts, shown, strict=True) if amount]
        return f"{head} = {' + '.join(texts)}"

    def counters_text(self) -> str:
        memory = self.card.memory
        if memory.allocated.shown is not None or memory.reserved.shown is not None:
            allocated, reserved = self.number(memory.allocated, Kind.BYTES), self.number(memory.reserved, Kind.BYTES)
            span = ""
            low, high = memory.reserved.ends
            if isinstance(memory.reserved.value, int) and low is not None and high is not None and low != high:
                unit, _ = scale_of(memory.reserved.value, Kind.BYTES)
                span = f" [{low / unit:,.2f} to {high / unit:,.2f}]"
            graph = "" if memory.is_optimised else ", unoptimised"
            return f"allocated {allocated}, reserved {reserved}{span} by {memory.runtime}{graph}"
        if memory.as_pytorch is not None:
            allocated, reserved = (self.number(one, Kind.BYTES) for one in memory.as_pytorch)
            unknown = f"{memory.runtime.rpartition(' ')[0]}'s allocator unknown" if memory.runtime else "what runs it is unknown"
            return f"{unknown}; PyTorch: {allocated}, reserved {reserved}"
        self.signs.add("?")
        return (
            f"tensors{f' of {memory.runtime}' if memory.runtime else ''}; allocated ?, reserved ?{f': {memory.why}' if memory.why else ''}"
        )

    def tensors(self) -> Iterator[_Item]:
        tensors = self.card.memory.largest
        sizes = [self.number(tensor.bytes, Kind.BYTES) for tensor in tensors]
        wide = max(map(display_width, sizes), default=0)
        for place, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
            made_in = f"{tensor.category} of {tensor.module}" if tensor.module else tensor.category
            where = ", ".join(filter(None, (made_in, tensor.location)))
            yield self.item("", f"  {size:>{wide}}  {tensor.name}  {where}", most=1, rank=4 + place if place else 0, is_list=True)

    def largest(self) -> Iterator[_Item]:
        largest = self.card.largest
        if largest.size:
            surely = f", {largest.surely:,} guaranteed" if largest.surely is not None and largest.surely != largest.size else ""
            open_ = f" (sizes up to {largest.possible:,} sampled)" if largest.possible is not None else ""
            text = f"largest {largest.symbol} that fits: {largest.size:,}{surely}{f', {largest.note}' if largest.note else ''}{open_}"
        elif largest.size is None and largest.note:
            text = f"largest {largest.symbol or 'batch'}: {largest.note}{f'; `{largest.command}`' if largest.command else ''}"
        else:
            return
        yield self.item("", text)

    # -- what it costs -----------------------------------------------------------------------------------------

    def cost(self) -> Iterator[_Item]:
        card, cost = self.card, self.card.cost
        if card.identity.nodes is None:
            return
        yield from self.time()
        flops = self.amount(cost.flops, Kind.FLOPS)
        macs = self.number(cost.macs, Kind.COUNT)
        if isinstance(cost.macs.value, int):
            # Where the FLOPs are so many for each size, so are the multiply-adds.
            factor = flops.partition(" x ")[2] if " = " not in flops else ""
            macs = f"{_bound_sign(cost.macs)}{self.sign(cost.macs)}{_short_count(cost.macs.value)}{f' x {factor}' if factor else ''}"
        yield self.item("cost", f"{flops}; {macs} multiply-adds")
        ratio = cost.intensity.value
        intensity = f"{_digits(ratio)} FLOPs a byte" if isinstance(ratio, int | float) else "FLOPs a byte ?"
        yield self.item("", f"moves {self.amount(cost.bytes, Kind.BYTES)}; {intensity}")
        yield self.item("", f"energy {self.joules(cost.energy)}", most=1, rank=3)

    def time(self) -> Iterator[_Item]:
        """Yield the predicted time with its interval and what takes it, and what it is at least."""
        cost, device = self.card.cost, self.card.device.name
        least, share = self.number(cost.least_time, Kind.SECONDS), cost.bound_share
        bound = f", {_percent(share)} of it {_BOUND[cost.bound_by]}" if share is not None and cost.bound_by in _BOUND else ""
        low, high = cost.time.ends
        if low is None or high is None:
            ends = f", at least {humanise(low, Kind.SECONDS)} as predicted" if low else ""
        else:
            (first, unit), second = humanise(low, Kind.SECONDS).split(), humanise(high, Kind.SECONDS)
            ends = f" [{first if second.endswith(f' {unit}') else f'{first} {unit}'} to {second}]"
        shown = self.number(cost.time, Kind.SECONDS) if cost.time.value is not None else "not predicted"
        yield self.item("time", f"{shown}{ends} on {device}{bound}", most=1)
        if cost.least_time.shown is not None:
            yield self.item("", f"at least {least}, whatever its clock and its kernels", most=1, rank=3)

    def joules(self, energy: Quantity) -> str:
        value = energy.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.signs.add("?")
            return "?"
        unit, name = next(((unit, name) for unit, name in _JOULES if value >= unit), _JOULES[-1])
        low, high = energy.ends
        ends = f" [{_digits(low / unit)} to {_digits(high / unit)}]" if low is not None and high is not None and low != high else ""
        return f"{_bound_sign(energy)}{self.sign(energy)}{_digits(value / unit)} {name}{ends}"

    # -- what is not known, and what to do ---------------------------------------------------------------------

    def doubts(self) -> Iterator[_Item]:
        unknown = self.card.unknown
        said: list[str] = []
        if self.card.identity.nodes is None:
            said.append("what runs, its cost and its memory")
        if unknown.operators:
            said.append(f"the cost of {counted(unknown.operator_nodes, 'node')}: {few(unknown.operators, 3, _ALL_NAMED)}")
        said += [
            f"the size of {counted(count, what)}" for count, what in ((unknown.tensors, "tensor"), (unknown.weights, "weight")) if count
        ]
        warnings = [counted(count, severity) for severity, count in unknown.diagnostics.items() if severity != "note"]
        if warnings:
            said.append(f"{', '.join(warnings)} on stderr")
        yield self.item("unknown", "; ".join(said) or "nothing")
        # Sizes by default stand with the inputs.
        guesses = [assumption.text for assumption in self.card.assumed if assumption.is_guess or not assumption.value.isdecimal()]
        if guesses:
            yield self.item("assumed", "; ".join(guesses), most=4)

    def remarks(self) -> Iterator[_Item]:
        for place, remark in enumerate(self.card.remarks):
            yield self.item("" if place else "better", f"{remark.text}: saves {remark.saves}", most=1, rank=7 + place, is_list=True)

    def next(self) -> Iterator[_Item]:
        for place, hint in enumerate(self.card.next):
            yield self.item("" if place else "next", hint.line, is_typed=True)

    # -- writing -----------------------------------------------------------------------------------------------

    def item(self, label: str, text: str, most: int = 2, rank: int = 0, *, is_list: bool = False, is_typed: bool = False) -> _Item:
        return _Item(label, self.clean(text), most, rank, is_list=is_list, is_typed=is_typed)

    def place(self, node: str, module: str, location: str) -> str:
        where = ", ".join(filter(None, (module, location)))
        return f"{node} ({where})" if where else node

    def sign(self, number: Quantity) -> str:
        found = SIGNS.get(number.provenance, "")
        self.signs.add(found)
        return found

    def number(self, number: Quantity, kind: Kind) -> str:
        """Return a number with the sign of where it comes from; a bound where that is all."""
        if number.shown is None:
            low, high = number.ends
            self.signs.add("?")
            if low is not None and high is not None:
                return f"{humanise(low, kind)} to {humanise(high, kind)}"
            return f"at least {humanise(low, kind)}" if low else "?"
        end = _bound_sign(number) if number.provenance is Provenance.EXACT else ""
        return f"{end}{self.sign(number)}{humanise(number, kind)}"

    def amount(self, number: Quantity, kind: Kind) -> str:
        """Return a number at the stated sizes with what it is for others: `416.14 MFLOPs x batch`, or the formula behind it."""
        shown = self.number(number, kind)
        if number.formula is None or number.value is None:
            return shown
        formula = formula_text(number.formula, kind)
        if formula is None:
            return f"{shown} at {self.sizes_text()}"
        if " + " in formula or " - " in formula:
            return f"{shown} = {formula}"
        # At a size of one the number and its factor are the same.
        return f"{self.sign(number)}{formula}" if all(size.size == 1 for size in self.card.sizes) else f"{shown} = {formula}"

    def clean(self, text: str) -> str:
        return legible(text, self._encoding)


def _doubt(fits: Quantity) -> str:
    """Return how sure a verdict is where it is not certain."""
    return {Provenance.MODELLED: " as modelled", Provenance.ASSUMED: " if what is assumed holds"}.get(fits.provenance, "")


def _bound_sign(number: Quantity) -> str:
    """Return what stands before a number that is only one end of what it may be."""
    if number.interval is None or number.lo == number.hi:
        return ""
    if number.lo == number.value:
        return "at least "
    return "at most " if number.hi == number.value else ""


def _part(category: str) -> str:
    return _PARTS.get(category, category)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _input_type(input_: CardInput) -> str:
    return f"{input_.dtype or '?'}{'[?]' if input_.shape is None else type_text(input_.shape)}"


def _size_text(size: StatedSize) -> str:
    """`batch=1`, `batch s77=1` where the exporter called it otherwise, `d0 (p2o.DynamicDimension.0)=1` where it has a short name."""
    name = f"{size.short} ({size.symbol})" if size.short else size.symbol
    return f"{size.role} {name}={size.size}" if size.role and size.role not in size.symbol else f"{name}={size.size}"


def sizes_text(sizes: Sequence[StatedSize], plain: Container[str] = ()) -> str:
    """Return sizes by who stated them: `batch=8 (--bind); length=1 (assumed)`. Those of `plain` sources are not said to be of them."""
    by_source: dict[str, list[str]] = {}
    for size in sizes:
        by_source.setdefault("" if size.source in plain else size.source, []).append(_size_text(size))
    return "; ".join(f"{', '.join(texts)}{f' ({source})' if source else ''}" for source, texts in by_source.items())


def _short_count(value: int) -> str:
    """Return a large count with a letter for the power of 1,000, as FLOPs have it."""
    unit, name = next(((unit, name) for unit, name in _COUNTS if value >= unit), (1, ""))
    return f"{value / unit:,.2f}{name}" if unit > 1 else f"{value:,}"


def _digits(value: Number) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if 0.01 <= share <= 0.99 else "all" if share > 0.99 else "<1%"


_TRAINED = frozenset({"f64", "f32", "f16", "bf16"})
"""Element types of weights that training changes."""
_TERM = re.compile(r"(?P<number>\d+)?\*?(?P<symbols>[A-Za-z_]\w*(?:\*\*\d+)?(?:\*[A-Za-z_]\w*(?:\*\*\d+)?)*)?")
_MOST_TERMS = 2


def formula_text(formula: str, kind: Kind) -> str | None:
    """Return a short polynomial with its numbers as people write them: `2.49 MiB x batch + 1.19 MiB`; None for any other formula."""
    parts = re.split(r" ([+-]) ", formula)
    if len(parts) > 2 * _MOST_TERMS - 1:
        return None
    found: list[str] = []
    for place, part in enumerate(parts):
        if place % 2:
            found.append(part)
            continue
        match = _TERM.fullmatch(part)
        if match is None or not part:
            return None
        number, symbols = match["number"], (match["symbols"] or "").replace("**", "^").replace("*", " x ")
        amount = humanise(int(number), kind) if number else humanise(1, kind) if kind.unit else ""
        found.append(" x ".join(filter(None, (amount, symbols))))
    return " ".join(found)


def adding_up(values: Sequence[int], total: int, unit: float) -> list[float]:
    """Return the values in a unit with two decimals, rounded so that they add up to the total as it is printed."""
    step = 100 if unit > 1 else 1
    scaled = [value * step / unit for value in values]
    floors = [math.floor(one) for one in scaled]
    short = math.floor(total * step / unit + 0.5) - sum(floors)
    order = sorted(range(len(values)), key=lambda place: floors[place] - scaled[place])
    for place in order[: max(0, short)]:
        floors[place] += 1
    return [floor / step for floor in floors]


def _cut_end(text: str, width: int, ellipsis: str) -> str:
    """Return the text, its end left out where it is too wide."""
    if display_width(text) <= width:
        return text
    while display_width(text) > width - display_width(ellipsis):
        text = text[:-1]
    return f"{text.rstrip()}{ellipsis}"


# The card for pages: everything it says, nothing cut or left out for want of room.


@immutable
class Tile:
    """One number of a card, to be read at a glance."""

    name: str
    number: str
    note: str


TENSOR_HEADS: Final = ("size", "tensor", "category", "made in", "why it is alive")
"""Of the columns of `CardView.tensors`."""


@immutable
class CardView:
    """The texts of a card."""

    title: str
    verdict: str
    fits: bool | None
    tiles: tuple[Tile, ...]
    facts: tuple[tuple[str, str], ...]
    """Sentences under a label, which is empty where that of the one before still holds."""
    tensors: tuple[tuple[str, str, str, str, str], ...]
    """The largest tensors at the peak: size, name, category, where it is made, and why it is alive."""
    parts: tuple[tuple[str, int, str], ...]
    """Parts that add up to the peak: category, bytes, and bytes as text; empty where one of them is not known."""
    legend: str


def card_view(card: Card) -> CardView:
    """Return what pages show of a card, in the words of the screen."""
    writer = CardWriter(card)
    identity, memory, cost = card.identity, card.memory, card.cost
    verdict, _ = writer.verdict()
    sizes = writer.sizes_text()
    bound = f"on {card.device.name}{f', mostly {_BOUND[cost.bound_by]}' if cost.bound_by in _BOUND else ''}"
    tiles = [Tile("parameters", writer.number(identity.parameters, Kind.COUNT), writer.number(identity.parameter_bytes, Kind.BYTES))]
    if identity.nodes is not None:
        tiles += [
            Tile("memory at the peak", writer.number(memory.peak, Kind.BYTES), f"reserved {writer.number(memory.reserved, Kind.BYTES)}"),
            Tile("FLOPs", writer.number(cost.flops, Kind.FLOPS), sizes and f"at {sizes}"),
            Tile("time", writer.number(cost.time, Kind.SECONDS), f"{bound}, at least {writer.number(cost.least_time, Kind.SECONDS)}"),
            Tile("energy of a run", writer.joules(cost.energy).partition(" [")[0], "within a factor of about 2"),
        ]
    if card.largest.size:
        tiles.append(Tile(f"largest {card.largest.symbol} that fits", f"{card.largest.size:,}", card.largest.note))
    listed = {tensor.text for tensor in writer.tensors()}
    items = [*writer.model(), *writer.memory(), *writer.cost(), *writer.doubts()]
    tensors = tuple(
        (writer.number(one.bytes, Kind.BYTES), one.name, one.category, ", ".join(filter(None, (one.module, one.location))), one.why)
        for one in memory.largest
    )
    values = [part.bytes.value for part in memory.parts]
    known = [
        (part.category, size, writer.number(part.bytes, Kind.BYTES))
        for part, size in zip(memory.parts, values, strict=True)
        if isinstance(size, int)
    ]
    return CardView(
        title=writer.clean(identity.path or "model"),
        verdict=verdict,
        fits=memory.fits.value if isinstance(memory.fits.value, bool) else None,
        tiles=tuple(tiles),
        facts=tuple((item.label, item.text) for item in items if item.text not in listed),
        tensors=tensors,
        parts=tuple(known) if len(known) == len(memory.parts) else (),
        legend=writer.legend(),
    )
