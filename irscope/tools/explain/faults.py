"""Faults of programs that a history shows: rules about what lives how long, for any program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import Final

import numpy as np

from irscope.frontends.files.snapshot import rounded
from irscope.immutable import immutable
from irscope.report.units import bytes_text
from irscope.tools.explain.history import BACKWARD, FORWARD, OPTIMIZER, Blocks, Call, Flags, History, Numbers
from irscope.tools.explain.sources import Sources

_LEAST_ROUNDS: Final = 3
"""Rounds that something of is still there before it is said to grow."""
_COVERED: Final = 0.7
"""Of the rounds, those that leave something."""
_LEAST_GROWTH: Final = 4096
"""Bytes a round below which nothing is said."""
_GRAPH: Final = 0.5
"""Of the bytes that a call of a module asks for, those that are kept where a backward may need them."""
_GRAPH_WITH_LOSS: Final = 0.3
"""The same where something outside modules is kept from the same rounds: what a loss saves."""
_SAME: Final = 0.9
_NO_SCALAR: Final = 256
_TO_HOST: Final = "move them to the host, or keep numbers: .item(), .cpu()"
_FREE: Final = 0.2
"""Of what is reserved, what is free in segments that are in use and still of no use."""


@immutable(slots=False)
class Fault:
    """Something in the program that takes memory it need not take."""

    kind: str
    line: str
    """Line that makes it."""
    text: str
    bytes: int
    fix: str
    keeper: str = ""
    """The statement that keeps it, where the source was given."""
    blocks: Numbers | None = field(default=None, compare=False, repr=False)
    """Blocks that are there because of it; None where it is not a matter of single blocks."""
    shrinks: float = 1.0
    """Remaining share of their size without it, where they are not gone."""

    @property
    def place(self) -> str:
        """Return where to look first."""
        return self.keeper or self.line


def faults_of(history: History, sources: Sources) -> list[Fault]:
    """Return what is found, the most bytes first."""
    finder = _Finder(history, sources)
    found = [
        *finder.growing(),
        *finder.saved_in_vain(),
        *finder.wide_states(),
        *finder.copies(),
        *finder.gathered(),
        *finder.growing_sizes(),
        *finder.fragmented(),
    ]
    return sorted(_together(found), key=lambda one: -one.bytes)


def _together(faults: list[Fault]) -> Iterator[Fault]:
    """Yield one for each place that keeps something: the one with most bytes, and what others found there."""
    by_place: dict[str, list[Fault]] = {}
    for fault in faults:
        by_place.setdefault(fault.keeper or f"{fault.kind} {fault.line}", []).append(fault)
    for several in by_place.values():
        largest = max(several, key=lambda member: member.bytes)
        blocks = [member.blocks for member in several if member.blocks is not None]
        yield replace(largest, bytes=sum(member.bytes for member in several), blocks=np.unique(np.concatenate(blocks)) if blocks else None)


def _is_regular(left: Numbers, asked: Numbers) -> bool:
    """Return whether rounds that leave something are most of those that could, or every nth of them; not the last few, as of a queue."""
    if len(left) >= _COVERED * len(asked):
        return True
    gaps = np.diff(left)
    spans = int(asked[-1]) - int(asked[0]) + 1
    return bool(gaps.max() <= 2 * np.median(gaps) and int(left[-1]) - int(left[0]) + int(np.median(gaps)) >= _COVERED * spans)


class _Finder:
    def __init__(self, history: History, sources: Sources) -> None:
        self._history = history
        self._blocks = history.blocks
        self._sources = sources
        self._graphs: set[str] = set()
        """Lines that call modules whose graphs are kept."""

    # What stays from round to round

    @cached_property
    def _leaks(self) -> list[tuple[int, Numbers]]:
        """Stacks with what they left alive in many rounds."""
        history, blocks = self._history, self._blocks
        if len(history.rounds) < _LEAST_ROUNDS or not history.has_stacks:
            return []
        best: dict[int, Numbers] = {}
        candidates = (blocks.born >= 0) & (history.round_of > 0) & (history.born_in != OPTIMIZER) & (blocks.stack >= 0)
        for moment in {history.moment, history.length}:
            now = int(np.searchsorted(history.rounds, moment, "left"))
            alive = np.flatnonzero(candidates & (blocks.born < moment) & (blocks.died >= moment) & (history.round_of < now))
            for stack in np.unique(blocks.stack[alive]).tolist():
                mine = alive[blocks.stack[alive] == stack]
                left = np.unique(history.round_of[mine])
                everywhere = history.round_of[candidates & (blocks.stack == stack)]
                asked = np.unique(everywhere[(everywhere >= left[0]) & (everywhere < now)])
                if len(left) < _LEAST_ROUNDS or not _is_regular(left, asked) or self._is_queue(stack):
                    continue
                if stack not in best or blocks.size[mine].sum() > blocks.size[best[stack]].sum():
                    best[stack] = mine
        return list(best.items())

    def _is_queue(self, stack: int) -> bool:
        """Return whether each goes after so many rounds, one after the other: a queue of some length."""
        history, blocks = self._history, self._blocks
        gone = np.flatnonzero((blocks.stack == stack) & (history.round_of > 0) & (blocks.died < history.length))
        ends = np.searchsorted(history.rounds, blocks.died[gone], "left")
        stayed = ends - history.round_of[gone]
        if len(np.unique(ends)) < _LEAST_ROUNDS:
            return False
        usual = np.median(stayed)
        return bool(usual >= 2 and (np.abs(stayed - usual) <= 1).mean() >= _COVERED)

    def growing(self) -> Iterator[Fault]:
        """Yield a graph that is kept, what hooks keep, tensors in a list, caches."""
        inside: dict[str, list[tuple[int, Numbers]]] = {}
        outside: list[tuple[int, Numbers]] = []
        for stack, blocks in self._leaks:
            found = self._history.stacks[stack]
            if found.in_module and found.call:
                inside.setdefault(found.call, []).append((stack, blocks))
            elif self._is_backward[blocks_born(self._blocks, blocks)].all():
                yield from self._kept_of_backward(blocks)
            else:
                outside.append((stack, blocks))
        largest = sorted(inside, key=lambda call: -sum(int(self._blocks.size[one].sum()) for _, one in inside[call]))
        done: set[str] = set()
        for call in largest:
            if call in done:
                continue
            parts = inside[call]
            blocks = np.concatenate([one for _, one in parts])
            # A loss may be a module too.
            others = {
                other: inside[other] for other in largest if other not in (call, *done) and self._all_same_rounds(inside[other], blocks)
            }
            beside = [*outside, *(part for several in others.values() for part in several)]
            with_loss = any(self._same_rounds(one, blocks) for _, one in beside)
            if self._is_graph(call, blocks, _GRAPH_WITH_LOSS if with_loss else _GRAPH):
                self._graphs.update((call, *others))
                done.update(others)
                yield self._kept_graph(call, blocks, beside)
                outside = [(stack, one) for stack, one in outside if not self._same_rounds(one, blocks)]
            else:
                yield from self._kept_inside(call, parts)
        by_line: dict[str, list[Numbers]] = {}
        for stack, blocks in outside:
            by_line.setdefault(self._history.stacks[stack].line, []).append(blocks)
        for line, several in by_line.items():
            yield from self._kept_outside(line, np.concatenate(several))

    def _kept_of_backward(self, blocks: Numbers) -> Iterator[Fault]:
        """Gradients of activations, which nothing but a hook, or retain_grad, keeps."""
        size, a_round, rounds = self._growth(blocks)
        if a_round < _LEAST_GROWTH:
            return
        line = self._history.line(int(blocks[0]))
        hooks = self._hook_lines(line)
        text = f"gradients of {line.removeprefix('backward of ')} stay: {bytes_text(a_round)} more with each of {rounds} rounds"
        fix = "remove the hook with handle.remove(), or let it keep what it needs on the host"
        yield Fault("a hook keeps activations", line, text, size, fix, hooks[0] if hooks else "", blocks)

    def _same_rounds(self, numbers: Numbers, other: Numbers) -> bool:
        rounds = self._history.round_of
        mine = np.unique(rounds[numbers])
        # What a call is given was made in the round before it.
        return max(len(np.intersect1d(mine + later, rounds[other])) for later in (-1, 0, 1)) >= _COVERED * len(np.unique(rounds[numbers]))

    def _all_same_rounds(self, parts: list[tuple[int, Numbers]], blocks: Numbers) -> bool:
        return all(self._same_rounds(one, blocks) for _, one in parts)

    def _growth(self, blocks: Numbers) -> tuple[int, float, int]:
        """Return the bytes in all, a round, and the number of rounds."""
        size, rounds = int(self._blocks.size[blocks].sum()), len(np.unique(self._history.round_of[blocks]))
        return size, size / max(rounds, 1), rounds

    def _is_graph(self, line: str, kept: Numbers, least: float) -> bool:
        """Return whether most of what the calls asked for is kept, not only what one module returned."""
        owned = np.zeros(len(self._blocks), dtype=np.bool_)
        owned[kept] = True
        shares = []
        for call in self._history.calls:
            if call.line == line and owned[call.blocks].any():
                sizes = self._blocks.size[call.blocks] * (self._history.category[call.blocks] != "workspace")
                shares.append((sizes[owned[call.blocks]].sum() / max(sizes.sum(), 1), int(owned[call.blocks].sum())))
        return bool(shares) and float(np.median([share for share, _ in shares])) >= least and min(count for _, count in shares) >= 2

    def _kept_graph(self, call: str, blocks: Numbers, outside: list[tuple[int, Numbers]]) -> Fault:
        """Return what was computed last of what is kept is what the graph hangs on."""
        together = [blocks, *(one for _, one in outside if self._same_rounds(one, blocks))]
        everything = np.concatenate(together)
        size, rounds = int(self._blocks.size[everything].sum()), self._growth(blocks)[2]
        a_round = size / max(rounds, 1)
        after = [self._history.stacks[stack].line for stack, one in outside if self._same_rounds(one, blocks)]
        # The first that is asked for behind the call, not what the next round begins with.
        ends = {int(self._history.round_of[one.blocks[0]]): int(one.blocks[-1]) for one in self._history.calls if one.line == call}
        behind = [
            (float(np.median([number - ends.get(int(self._history.round_of[number]), number) for number in one.tolist()])), stack)
            for stack, one in outside
            if self._same_rounds(one, blocks)
        ]
        line = min(((far, self._history.stacks[stack].line) for far, stack in behind if far > 0), default=(0, call))[1]
        keeper = self._keeper([line, *after, call])
        return Fault(
            "a result is kept with its graph",
            line,
            f"what {call} saved for a backward stays: {bytes_text(a_round)} more with each of {rounds} rounds",
            size,
            "keep loss.item() or loss.detach() instead of the loss; evaluate under torch.no_grad()",
            keeper,
            everything,
        )

    def _keeper(self, lines: list[str]) -> str:
        for line in lines:
            file, _, number = line.rpartition(":")
            source = self._sources.of(file)
            found = source.keeper(int(number)) if source is not None and number.isdecimal() else None
            if found is not None:
                return f"{file}:{found}"
        return ""

    def _kept_inside(self, call: str, parts: list[tuple[int, Numbers]]) -> Iterator[Fault]:
        """Yield what a few modules within a call made is kept: by a hook, by a module itself, or it is what the call returns."""
        history = self._history
        by_line: dict[tuple[str, bool], list[tuple[int, Numbers]]] = {}
        for stack, blocks in parts:
            found = history.stacks[stack]
            by_line.setdefault((found.line, self._is_result(blocks)), []).append((stack, blocks))
        for (line, is_result), several in by_line.items():
            blocks = np.concatenate([one for _, one in several])
            size, a_round, rounds = self._growth(blocks)
            if a_round < _LEAST_GROWTH:
                continue
            module = next((history.module(int(one[0])) for _, one in several if history.module(int(one[0]))), "")
            told = f"{bytes_text(a_round)} more with each of {rounds} rounds"
            hooks = self._hook_lines(line)
            if is_result:
                keeper = self._keeper([call])
                text = f"what {call} returns stays: {told}"
                yield Fault("tensors are kept in a container", call, text, size, _TO_HOST, keeper, blocks)
            elif not hooks and self._keeps_itself(line):
                text = f"what is made in {module or line} stays: {told}"
                fix = "clear it where a new input begins, or give it a limit"
                yield Fault("a cache grows", line, text, size, fix, self._keeper([line]), blocks)
            else:
                text = f"what {module or line} makes stays although nothing needs it: {told}"
                fix = "remove the hook with handle.remove(), or let it keep what it needs on the host"
                yield Fault("a hook keeps activations", line, text, size, fix, hooks[0] if hooks else "", blocks)

    def _is_result(self, blocks: Numbers) -> bool:
        """Return whether blocks are what calls made last."""
        last = {int(call.blocks[-1]) for call in self._history.calls}
        return sum(one in last for one in blocks.tolist()) >= _COVERED * len(blocks)

    def _hook_lines(self, line: str) -> list[str]:
        files = {one.rpartition(":")[0] for stack in self._history.stacks.values() for one in (*stack.own, stack.line, stack.call) if one}
        return [f"{file}:{number}" for file, source in self._sources.all_of(files) for number in source.hooks()]

    def _keeps_itself(self, line: str) -> bool:
        """Return whether the statement that makes it, by the source, stores it where it stays; without source, whether it is the program's
        own.
        """
        if self._keeper([line]):
            return True
        known = [stack for stack in self._history.stacks.values() if stack.line == line]
        return not self._sources.of(line.rpartition(":")[0]) and any(one.direct and "nn." not in one.module for one in known)

    def _kept_outside(self, line: str, blocks: Numbers) -> Iterator[Fault]:
        size, a_round, rounds = self._growth(blocks)
        if a_round < _LEAST_GROWTH:
            return
        text = f"what {line} makes stays: {bytes_text(a_round)} more with each of {rounds} rounds"
        yield Fault("tensors are kept in a container", line, text, size, _TO_HOST, self._keeper([line]), blocks)

    # A forward without a backward that saves for one

    def saved_in_vain(self) -> Iterator[Fault]:
        """Yield the calls that keep what a backward would need, and none comes."""
        found: dict[str, list[Numbers]] = {}
        calls = self._history.calls
        for call in calls:
            kept = self._saved(call)
            if len(kept) and call.line not in self._graphs:
                found.setdefault(call.line, []).append(kept)
        for line, several in found.items():
            if len(several) < 2 or len(several) < _COVERED * sum(call.line == line for call in calls):
                continue
            file, _, number = line.rpartition(":")
            source = self._sources.of(file)
            # Without the source, what a module returns besides its last result is not told from what is saved.
            few = min(map(len, several)) < _LEAST_ROUNDS
            if few if source is None else source.records_nothing(int(number)):
                continue
            most = max(int(self._blocks.size[kept].sum()) for kept in several)
            text = f"the forward at {line} keeps {bytes_text(most)} for a backward that never comes"
            fix = "with torch.no_grad(): around it, or @torch.inference_mode()"
            yield Fault("no torch.no_grad()", line, text, most, fix, blocks=np.concatenate(several))

    def _saved(self, call: Call) -> Numbers:
        """Return the blocks that a call keeps for a backward that does not come."""
        history, blocks = self._history, self._blocks
        nothing = np.zeros(0, dtype=np.int64)
        mine = call.blocks[history.category[call.blocks] != "workspace"]
        if len(mine) < 3:
            return nothing
        kept = mine[:-1][(blocks.died[mine[:-1]] > call.last) & ~self._leaked[mine[:-1]]]
        size, asked = int(blocks.size[kept].sum()), int(blocks.size[mine[:-1]].sum())
        if len(kept) < 2 or size < max(_GRAPH * asked, _LEAST_GROWTH):
            return nothing
        end = int(np.median(blocks.died[kept]))
        if end >= history.length and (history.refused is not None or call.last + 1 >= history.length):
            # The program ended within it: a backward may have been to come.
            return nothing
        return nothing if (self._is_backward[call.last : end + 1]).any() else kept

    @cached_property
    def _leaked(self) -> Flags:
        """Return the blocks that stay for another reason than a backward that may come."""
        flags = np.zeros(len(self._blocks), dtype=np.bool_)
        for _, blocks in self._leaks:
            flags[blocks] = True
        return flags

    @cached_property
    def _is_backward(self) -> Flags:
        flags: Flags = self._history.phase == BACKWARD
        return flags

    # Copies of the parameters

    @cached_property
    def _parameters(self) -> Counter[int]:
        return self._sizes(self._at_moment("parameter"))

    def _at_moment(self, category: str) -> Numbers:
        alive = self._history.alive(self._history.moment)
        numbers: Numbers = alive[self._history.category[alive] == category]
        return numbers

    def _sizes(self, blocks: Numbers) -> Counter[int]:
        sizes = self._blocks.size[blocks]
        return Counter(sizes[sizes >= _NO_SCALAR].tolist())

    def _likeness(self, sizes: Counter[int], times: int, parameters: Counter[int] | None = None) -> tuple[float, int]:
        """Return how much of some blocks is the parameters again, each so many times as large; and how many copies that are."""
        whole = sum(size * count for size, count in sizes.items())
        best = (0.0, 1)
        for copies in (1, 2, 3):
            wanted = Counter({size * times: count * copies for size, count in (parameters or self._parameters).items()})
            both = sum(size * count for size, count in (sizes & wanted).items())
            all_ = sum(size * count for size, count in wanted.items())
            if both and both / max(whole, all_) > best[0]:
                best = both / max(whole, all_), copies
        return best

    def wide_states(self) -> Iterator[Fault]:
        """States of four bytes for each number of parameters of two."""
        states = self._at_moment("optimizer state")
        sizes = self._sizes(states)
        wide, copies = self._likeness(sizes, 2)
        same, _ = self._likeness(sizes, 1)
        if wide < _SAME or wide <= same or not len(states):
            return
        size = int(self._blocks.size[states].sum())
        line = self._most_often(states)
        yield Fault(
            "optimizer states are wider than the parameters",
            line,
            f"{copies} states for each parameter, each twice its size: "
            f"{bytes_text(size)} for parameters of {bytes_text(size / 2 / copies)}",
            size // 2,
            "states in the parameters' own type, 8-bit states, or shard them",
            blocks=states,
            shrinks=0.5,
        )

    def _most_often(self, blocks: Numbers) -> str:
        found = Counter[str]()
        for number in blocks.tolist():
            found[self._history.line(number)] += int(self._blocks.size[number])
        return found.most_common(1)[0][0] if found else ""

    def copies(self) -> Iterator[Fault]:
        """Yield the blocks as large as the parameters that were made before the first round, by nothing that makes modules, and stay."""
        history, blocks = self._history, self._blocks
        alive = history.alive(history.moment)
        kinds = history.category[alive]
        apart = np.isin(kinds, ["activation", "loaded", "input", "buffer", "output", "parameter"])
        own = apart & (blocks.born[alive] >= 0) & (history.round_of[alive] == 0)
        by_line: dict[str, list[int]] = {}
        for number in alive[own].tolist():
            by_line.setdefault(history.stack(number).line, []).append(number)
        for line, several in by_line.items():
            found = np.array(several, dtype=np.int64)
            sizes = self._sizes(found)
            size = int(blocks.size[found].sum())
            is_parameter = history.category[found[0]] == "parameter"
            others = self._parameters - sizes if is_parameter else self._parameters
            like, _ = (0.0, 1) if is_parameter else self._likeness(sizes, 1)
            wide, _ = self._likeness(sizes, 2, others)
            if wide >= _SAME and wide > like:
                text = f"a copy of the parameters that is twice as large is made at {line} and stays: {bytes_text(size)}"
                fix = "an optimizer that keeps the parameters' own type, or rounds stochastically"
                yield Fault("optimizer states are wider than the parameters", line, text, size, fix, blocks=found)
            elif like >= _SAME:
                text = f"what {line} made is as large as all parameters, tensor by tensor, and stays beside them: {bytes_text(size)}"
                fix = "load to the host (map_location='cpu', or 'meta' with assign=True), and delete it once it is copied"
                yield Fault("a second copy of the model", line, text, size, fix, blocks=found)

    # Gathered parameters that stay for the backward

    def gathered(self) -> Iterator[Fault]:
        """Sharded parameters that are whole in all modules at once when the backward begins."""
        history, blocks = self._history, self._blocks
        whole = self._gathers
        found: dict[str, list[tuple[int, int]]] = {}
        for call in history.calls:
            mine = call.blocks[whole[call.blocks]]
            mine = mine[blocks.size[mine] >= _NO_SCALAR]
            later = np.flatnonzero(self._is_backward[call.last :])
            if len(mine) < 3 or not len(later):
                continue
            kept = mine[blocks.died[mine] > call.last + int(later[0])]
            size, asked = int(blocks.size[kept].sum()), int(blocks.size[mine].sum())
            if len(kept) >= 3:
                found.setdefault(call.line, []).append((size, asked))
        for line, several in found.items():
            kept_bytes = max(size for size, _ in several)
            if kept_bytes * len(several) and kept_bytes >= _HALF * max(self._gathered_most, 1):
                keeper = self._sharding_line()
                text = f"all of the parameters are whole at once when the backward of {line} begins: {bytes_text(kept_bytes)}"
                fix = "fully_shard(block, reshard_after_forward=True)"
                yield Fault("reshard_after_forward keeps parameters whole", line, text, kept_bytes, fix, keeper)

    @cached_property
    def _gathers(self) -> Flags:
        """Return the blocks that collectives fill; parameters that are made while a module runs are put together there."""
        history = self._history
        filled = np.isin(history.category, ["communication", "parameter"]) & (history.round_of > 0)
        flags: Flags = (history.by_stack("shards") | filled) & (history.born_in == FORWARD)
        return flags

    @cached_property
    def _gathered_most(self) -> int:
        """Return the bytes of all that one forward gathers and does not give back at once."""
        history, blocks = self._history, self._blocks
        most = 0
        for call in history.calls:
            mine = call.blocks[self._gathers[call.blocks]]
            most = max(most, int(blocks.size[mine].sum()))
        return most

    def _sharding_line(self) -> str:
        files = {one.rpartition(":")[0] for stack in self._history.stacks.values() for one in (stack.line, stack.call) if one}
        for file, source in self._sources.all_of(files):
            lines = source.keeps_whole()
            if lines:
                return f"{file}:{lines[0]}"
        return ""

    # A cache that is made anew, larger, each time

    def growing_sizes(self) -> Iterator[Fault]:
        """Yield the blocks that are larger in each round than in the one before, where nothing else is."""
        history, blocks = self._history, self._blocks
        grows: dict[str, list[int]] = {}
        growing: set[int] = set()
        if len(history.rounds) < _LEAST_ROUNDS + 1:
            return
        candidates = (blocks.born >= 0) & (history.round_of > 0) & (history.born_in == FORWARD) & (blocks.stack >= 0)
        for stack in np.unique(blocks.stack[candidates]).tolist():
            mine = np.flatnonzero(candidates & (blocks.stack == stack))
            rounds, first = np.unique(history.round_of[mine], return_index=True)
            sizes = blocks.size[mine[first]]
            if len(rounds) > _LEAST_ROUNDS and (np.diff(sizes) > 0).all():
                growing.add(stack)
            if not history.stacks[stack].in_module:
                continue
            lives = (blocks.died[mine[first[:-1]]] > blocks.born[mine[first[1:]]]) if len(first) > 1 else np.zeros(0, dtype=np.bool_)
            if len(rounds) > _LEAST_ROUNDS and (np.diff(sizes) > 0).all() and len(lives) and lives.mean() >= _COVERED:
                grows[history.stacks[stack].line] = mine.tolist()
        if not grows or len(growing) > 2:
            return
        for line, several in grows.items():
            found = np.array(several, dtype=np.int64)
            size = int(blocks.size[found].max())
            step = (size - int(blocks.size[found].min())) / max(len(found) - 1, 1)
            if step < _LEAST_GROWTH // 8:
                continue
            text = f"what {line} makes is larger each time, by {bytes_text(step)}: {bytes_text(size)} at the end"
            yield Fault("a cache grows", line, text, size, "clear it where a new input begins, or give it a limit")

    # Fragmentation

    def fragmented(self) -> Iterator[Fault]:
        """The device is asked for more although enough is free, in pieces, of requests whose sizes vary."""
        history, blocks = self._history, self._blocks
        if not history.length or len(history.rounds) < _LEAST_ROUNDS:
            return
        grows = np.flatnonzero(history.acts("segment_alloc"))
        grows = grows[grows > history.rounds[min(_LEAST_ROUNDS, len(history.rounds)) - 1]]
        moments = [*grows.tolist()] if history.refused is None else [*grows.tolist(), history.refused]
        worst = (0, 0)
        for moment in moments[-200:]:
            alive = history.alive(moment)
            used = int(rounded(blocks.size[alive]).sum())
            free = int(history.reserved[moment]) - used
            if free >= max(_FREE * int(history.reserved[moment]), int(history.size[moment])):
                worst = max(worst, (free, moment))
        if not worst[0]:
            return
        line = self._first_that_varies()
        if not line:
            return
        free, moment = worst
        text = (
            f"{bytes_text(free)} of {bytes_text(int(history.reserved[moment]))} that are reserved are free in pieces too small for "
            f"requests whose sizes vary from {line} on"
        )
        fix = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad to a few lengths"
        yield Fault("fragmentation by varying sizes", line, text, free, fix)

    def _first_that_varies(self) -> str:
        """Return the line that asks first, of those in each round, for a size that is not always the same."""
        history, blocks = self._history, self._blocks
        candidates = (blocks.born >= 0) & (history.born_in == FORWARD) & (blocks.stack >= 0) & (blocks.size > _NO_SCALAR)
        best: tuple[float, str] | None = None
        for stack in np.unique(blocks.stack[candidates]).tolist():
            mine = np.flatnonzero(candidates & (blocks.stack == stack))
            rounds, first = np.unique(history.round_of[mine], return_index=True)
            sizes = blocks.size[mine[first]]
            if len(rounds) < _LEAST_ROUNDS or len(np.unique(sizes)) < min(len(rounds), 3):
                continue
            at = mine[first]
            # How far into its step a block is asked for.
            place = float(np.median(blocks.born[at] - self._step_start(blocks.born[at])))
            line = history.stacks[stack].line
            if best is None or place < best[0]:
                best = place, line
        return best[1] if best is not None else ""

    def _step_start(self, born: Numbers) -> Numbers:
        history = self._history
        starts = np.concatenate(([0], history.steps if len(history.steps) >= 2 else history.rounds))
        return starts[np.searchsorted(starts, born, "right") - 1]


_HALF: Final = 0.35
"""Of all that a forward gathers, buffers of the collectives included, what at least is whole when the backward begins."""


def blocks_born(blocks: Blocks, some: Numbers) -> Numbers:
    """Return the entries that asked for some blocks."""
    numbers: Numbers = blocks.born[some]
    return numbers
