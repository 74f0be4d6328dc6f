"""A memory snapshot as blocks with births and deaths: who asked for each, what for, in which round of the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.frontends.files.snapshot import Snapshot, SnapshotBlock, line_of
from irscope.frontends.files.snapshotstream import Frame
from irscope.immutable import immutable
from irscope.memory.run import Lives, Row, summed
from irscope.passes.exports import CALLED, PHASE_MARK
from irscope.passkit.script import LIBRARIES
from irscope.training import WORLD_CATEGORIES

Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

BEFORE: Final = "there before the history"
NOT_ATTRIBUTED: Final = "not attributed"
FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2
PHASES: Final = ("forward", "backward", "optimizer")

_SCALAR: Final = 64
"""Bytes of what is not an input of a model: losses, flags."""
_STEP_MARK: Final = "Optimizer.step#"
_MODULE_FILE: Final = "/torch/nn/modules/module.py"
_CALLS: Final = frozenset({"_call_impl", "_wrapped_call_impl"})
_MOVES: Final = frozenset({"_apply", "to_empty"})
_ENGINE: Final = ("torch::autograd::Engine", "torch::autograd::Node::operator()")
_WORKSPACES: Final = ("CUDABlasWorkspace", "CUDABlasLtWorkspace", "getCurrentCUDABlasHandle", "cublasLtWorkspace", "CUDABlasHandle")
_WORKSPACE_SIZES: Final = frozenset({8_519_680, 32 << 20, 4_259_840})
"""Sizes of the workspaces that PyTorch gives cuBLAS: 8.125 MiB, 32 MiB on newer devices, and half of the first on older ones."""
_LOADS: Final = ("/torch/serialization.py", "/safetensors/", "/torch/distributed/checkpoint/", "/torch/_weights_only_unpickler.py")
_TALKS: Final = ("/torch/distributed/", "ProcessGroupNCCL", "c10d::")
_SHARDS: Final = ("/torch/distributed/fsdp/", "/torch/distributed/_composable/fsdp/")
_OPTIMIZERS: Final = (
    "/torch/optim/",
    "/apex/optimizers/",
    "/bitsandbytes/optim/",
    "/deepspeed/ops/adam/",
    "/transformer_engine/pytorch/optimizers/",
)
_STANDARD: Final = ("/lib/python3", "<frozen", "<string>")
_CATEGORIES: Final = frozenset({*WORLD_CATEGORIES, "input", "output", "cache"})


@dataclass(frozen=True, slots=True)
class Stack:
    """Facts of a stack, whatever wrote it."""

    line: str = ""
    """The innermost line of the program."""
    own: tuple[str, ...] = ()
    """Lines that are no library's, the innermost first."""
    call: str = ""
    """The line that calls the outermost module."""
    module: str = ""
    category: str = ""
    """Category, where the writer of the file names it."""
    operator: str = ""
    is_empty: bool = True
    in_module: bool = False
    in_backward: bool = False
    in_optimizer: bool = False
    in_construction: bool = False
    is_loaded: bool = False
    talks: bool = False
    """True where a collective is at work."""
    shards: bool = False
    is_workspace: bool = False
    direct: bool = False
    """True where the program's own code asked, and no module of torch within it."""


def _is_python(frame: Frame) -> bool:
    return frame.line > 0 and frame.file.endswith((".py", ">"))


def _told(frames: Sequence[Frame]) -> Stack | None:
    """Return the stack of an entry that irscope wrote: the operator, the line with the module, and the line that calls the outermost
    one.
    """
    if not frames or frames[0].line or frames[0].file not in _CATEGORIES:
        return None
    category, operator = frames[0].file, frames[0].name.removeprefix(frames[0].file).strip()
    place = frames[1] if len(frames) > 1 else Frame("", "", 0)
    module = "" if place.name == "program" else place.name
    call = next((frame.text for frame in frames[2:] if frame.name == CALLED), "")
    return Stack(
        place.text if place.line else "",
        tuple(frame.text for frame in frames[1:] if frame.line),
        call,
        module,
        category,
        operator,
        is_empty=False,
        in_module=bool(module),
        is_workspace=category == "workspace",
        talks=category == "communication",
        direct=bool(call) and place.text != call,
    )


def understand(frames: Sequence[Frame]) -> Stack:
    """Return what the frames of a stack say; the innermost is the first."""
    told = _told(frames)
    if told is not None:
        return told
    python = [frame for frame in frames if _is_python(frame)]
    native = [frame.name for frame in frames if not _is_python(frame)]
    files = [one.file.replace("\\", "/") for one in python]
    own = [one for one, file in zip(python, files, strict=True) if not any(part in file for part in LIBRARIES)]
    calls = [at for at, (one, file) in enumerate(zip(python, files, strict=True)) if file.endswith(_MODULE_FILE) and one.name in _CALLS]
    call = ""
    if calls:
        # The program may call through a library: the first line of its own from there outwards.
        outer = [one for one, file in zip(python[calls[-1] + 1 :], files[calls[-1] + 1 :], strict=True) if "/torch/" not in file]
        call = line_of(outer) if outer else ""
    forwards = python[: calls[-1]] if calls else []
    shown = [one for one, file in zip(python, files, strict=True) if not any(part in file for part in _STANDARD) or "-packages/" in file]
    inner = next((at for at, file in enumerate(files) if file.endswith(_MODULE_FILE)), len(files))
    return Stack(
        line_of(own or shown or python),
        tuple(one.text for one in own),
        call,
        _module(forwards),
        operator=next((one for one in native if one.startswith(("at::_ops::", "at::native::"))), "").split("(")[0],
        is_empty=not frames,
        in_module=bool(calls),
        in_backward=any(one.startswith(_ENGINE) for one in native),
        in_optimizer=any(part in file for file in files for part in _OPTIMIZERS),
        in_construction=any(
            (file.endswith(_MODULE_FILE) and one.name in _MOVES)
            or (file.endswith("/torch/nn/parameter.py") and one.name == "__deepcopy__")
            or ("/torch/nn/" in file and one.name in ("__init__", "reset_parameters"))
            for one, file in zip(python, files, strict=True)
        ),
        is_loaded=any(part in file for file in files for part in _LOADS),
        talks=any(part in text for text in (*files, *native) for part in _TALKS),
        shards=any(part in file for file in files for part in _SHARDS),
        is_workspace=any(part in text for text in native for part in _WORKSPACES),
        direct=bool(calls) and any(one in own for one in python[:inner]),
    )


def _module(frames: Sequence[Frame]) -> str:
    """Modules by the lines of their forwards, the outermost first; the last may be one of torch, by the name of its file."""
    found = []
    for frame in reversed(frames):
        file = frame.file.replace("\\", "/")
        short = file.rpartition("/")[2].removesuffix(".py")
        if frame.name == "forward" and "/torch/nn/modules/" in file:
            found.append(f"nn.{short}")
        elif frame.name == "forward" and "/torch/" not in file:
            found.append(f"{short}:{frame.line}")
    return " > ".join(found)


@dataclass
class Blocks:
    """One entry for each block, in order of birth."""

    size: Numbers
    """Bytes that were asked for."""
    born: Numbers
    """Number of the entry; -1 for what was there before."""
    died: Numbers
    """Number of the entry; that of the end for what is there then."""
    address: Numbers
    stack: Numbers
    note: Numbers
    stream: Numbers

    def __len__(self) -> int:
        return len(self.size)


class History:
    """A snapshot's history of one device."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        columns = snapshot.columns
        self.length = len(snapshot.own)
        # Where all entries are the device's own, columns are taken as they are: copies of a large file's are hundreds of megabytes.
        alone = self.length == len(columns.action) and bool((np.diff(snapshot.own) == 1).all())
        rows: Numbers | slice = slice(None) if alone else snapshot.own
        self.action = columns.action[rows]
        self.address, self.size, self.time = columns.address[rows], columns.size[rows], columns.time[rows]
        self._stack, self._note, self._stream = columns.stack[rows], columns.note[rows], columns.stream[rows]
        self._own_stacks: list[tuple[Frame, ...]] = []
        self.blocks = self._pair()

    def acts(self, *actions: str) -> Flags:
        """Entries that are one of these."""
        return self.snapshot.acts(*actions)

    # Births and deaths

    def _pair(self) -> Blocks:
        """Return each request with what gives it back: the next entry about its address."""
        allocs = np.flatnonzero(self.acts("alloc"))
        frees = np.flatnonzero(self.acts("free_requested", "free"))
        both = np.concatenate((allocs, frees))
        order = np.lexsort((both, self.address[both]))
        sorted_, is_alloc = both[order], (np.arange(len(both)) < len(allocs))[order]
        where = self.address[sorted_]
        follows = np.append(where[1:] == where[:-1], False)
        died = np.full(self.length, self.length, dtype=np.int64)
        births = np.flatnonzero(is_alloc & follows)
        # Where the next entry is a request again, the one that gave it back is not in the file.
        died[sorted_[births]] = sorted_[births + 1]
        first = ~is_alloc & ~np.concatenate(([False], (where[1:] == where[:-1]) & is_alloc[:-1]))
        older = sorted_[first]
        held = [block for segment in self.snapshot.held() for block in segment.blocks if block.state != "inactive"]
        taken = set(self.address[allocs[died[allocs] == self.length]].tolist())
        kept = [block for block in held if block.state == "active_allocated" and block.address not in taken]
        born = np.concatenate((np.full(len(older) + len(kept), -1, dtype=np.int64), allocs))

        def join(of_kept: Sequence[int], column: Numbers) -> Numbers:
            return np.concatenate((column[older], np.array(of_kept, dtype=np.int64), column[allocs]))

        return Blocks(
            join([block.requested for block in kept], self.size),
            born,
            np.concatenate((older, np.full(len(kept), self.length, dtype=np.int64), died[allocs])),
            join([block.address for block in kept], self.address),
            join([self._stack_of(block) for block in kept], np.where(self.acts("alloc"), self._stack, -1)),
            join([0] * len(kept), self._note),
            join([0] * len(kept), self._stream),
        )

    def _stack_of(self, block: SnapshotBlock) -> int:
        """Return a number for the stack of a block that the trace does not have; below -1, as they are not of the file's table."""
        if not block.frames:
            return -1
        if block.frames not in self._own_stacks:
            self._own_stacks.append(block.frames)
        return -2 - self._own_stacks.index(block.frames)

    @cached_property
    def stacks(self) -> dict[int, Stack]:
        """Return the stacks of blocks, by number."""
        stacks = {}
        for number in self._distinct[0].tolist():
            if number >= 0:
                stacks[number] = understand(self.snapshot.frames(number))
            else:
                stacks[number] = understand(self._own_stacks[-2 - number]) if number < -1 else Stack()
        return stacks

    @cached_property
    def _distinct(self) -> tuple[Numbers, Numbers]:
        """Return the numbers of stacks in order, and for each block which of them it has."""
        found, which = np.unique(self.blocks.stack, return_inverse=True)
        return found, which

    def _spread(self, values: Iterable[object]) -> NDArray[np.object_]:
        """Return for each block what its stack has, of values in the order of `stacks`."""
        listed = list(values)
        made = np.empty(len(listed), dtype=object)
        made[:] = listed
        found: NDArray[np.object_] = made[self._distinct[1]]
        return found

    def by_stack(self, what: str) -> Flags:
        """Return for each block whether its stack is so."""
        return self._spread(bool(getattr(stack, what)) for stack in self.stacks.values()).astype(np.bool_)

    def stack(self, block: int) -> Stack:
        """Return the stack of a block."""
        return self.stacks[int(self.blocks.stack[block])]

    @property
    def has_pools(self) -> bool:
        """Return whether some requests were made of private pools, as those of CUDA graphs are."""
        return bool(self.snapshot.columns.pool[self.snapshot.own].any())

    # Moments

    @cached_property
    def refused(self) -> int | None:
        """Return the last entry that says that memory ran out."""
        found = np.flatnonzero(self.acts("oom"))
        return int(found[-1]) if len(found) else None

    @property
    def refused_line(self) -> str:
        """Return the line that asked for what was refused."""
        if self.refused is None:
            return ""
        number = int(self._stack[self.refused])
        return understand(self.snapshot.frames(number)).line

    @cached_property
    def lives(self) -> Lives:
        """Return when each block is there."""
        blocks = self.blocks
        return Lives(blocks.size, blocks.born + 1, blocks.died + 1, self.length + 1)

    @property
    def totals(self) -> Numbers:
        """Return the bytes requested and not given back, after each entry; the first is what was there before."""
        return self.lives.total

    @cached_property
    def moment(self) -> int:
        """Return the number of entries after which things are explained: when memory ran out, else when most was asked for."""
        return self.refused if self.refused is not None else int(np.argmax(self.totals))

    @cached_property
    def reserved(self) -> Numbers:
        """Return the bytes that the device gave, after each entry."""
        gives, takes = self.acts("segment_alloc", "segment_map"), self.acts("segment_free", "segment_unmap")
        changes = np.concatenate(([0], np.where(gives, self.size, 0) - np.where(takes, self.size, 0)))
        totals = np.cumsum(changes)
        end = sum(segment.size for segment in self.snapshot.held())
        return totals + (end - totals[-1] if self.snapshot.held() else max(-int(totals.min()), 0))

    def alive(self, moment: int) -> Numbers:
        """Return the blocks that are there after so many entries."""
        return self.lives.alive(moment)

    # Phases, rounds

    @cached_property
    def has_stacks(self) -> bool:
        """Return whether anybody told who asked."""
        return any(not stack.is_empty for stack in self.stacks.values())

    def _marked(self, text: str, *, begins: bool) -> Numbers:
        times = [
            annotation.time
            for annotation in self.snapshot.annotations
            if annotation.begins is begins and annotation.device == self.snapshot.device and annotation.name.startswith(text)
        ]
        return np.searchsorted(self.time, np.array(sorted(times), dtype=np.int64), "left")

    def _within(self, text: str) -> Flags:
        """Entries between the beginning and the end of what is called so."""
        levels = np.zeros(self.length + 1, dtype=np.int64)
        np.add.at(levels, self._marked(text, begins=True), 1)
        np.subtract.at(levels, self._marked(text, begins=False), 1)
        return np.cumsum(levels)[:-1] > 0

    @cached_property
    def phase(self) -> Numbers:
        """Return the phase of each entry."""
        numbers = np.zeros(self.length, dtype=np.int64)
        if any(annotation.name.startswith(PHASE_MARK) for annotation in self.snapshot.annotations):
            for number, name in enumerate(PHASES):
                numbers[self._within(PHASE_MARK + name)] = number
            return numbers
        blocks = self.blocks
        inside = self._within(_STEP_MARK)
        born = blocks.born >= 0
        at = blocks.born[born]
        optimizer = self.by_stack("in_optimizer")[born] | inside[at]
        # Threads of autograd's engine have no frames of Python, unless a function of the program's own is at work.
        backward = (self.by_stack("in_backward") | ((blocks.stack >= 0) & ~self._has_python))[born] & self.has_stacks
        codes = np.where(optimizer, OPTIMIZER, np.where(backward, BACKWARD, FORWARD))
        known = np.full(self.length, -1, dtype=np.int64)
        known[at] = codes
        known[inside] = OPTIMIZER
        # What gives memory back belongs to what asked before.
        last = np.maximum.accumulate(np.where(known >= 0, np.arange(self.length), -1))
        return np.where(last >= 0, known[np.maximum(last, 0)], FORWARD)

    @cached_property
    def _has_python(self) -> Flags:
        return self.by_stack("line")

    @cached_property
    def born_in(self) -> Numbers:
        """Return the phase that each block was asked for in."""
        return np.where(self.blocks.born >= 0, self.phase[np.maximum(self.blocks.born, 0)] if self.length else 0, FORWARD)

    @cached_property
    def steps(self) -> Numbers:
        """Return the ends of training steps, by number of entries."""
        ends = self._marked(PHASE_MARK + "step ", begins=False)
        if len(ends):
            return np.unique(ends)
        names = {annotation.name for annotation in self.snapshot.annotations if annotation.name.startswith(_STEP_MARK)}
        by_name = [self._marked(name, begins=False) for name in sorted(names)]
        if by_name:
            # Optimizers that take turns: a step ends with the last of them.
            fewest = min(map(len, by_name))
            return max((one for one in by_name if len(one) == fewest), key=lambda one: int(one[-1]) if len(one) else -1)
        phase = self.phase
        works = phase == OPTIMIZER if (phase == OPTIMIZER).any() else phase == BACKWARD
        ends = np.flatnonzero(works[:-1] & ~works[1:]) + 1 if self.length else np.zeros(0, dtype=np.int64)
        return np.append(ends, self.length) if self.length and works[-1] else ends

    @cached_property
    def calls(self) -> list[Call]:
        """Calls of outermost modules in the forward, in order; several that nothing else is asked for between are one."""
        blocks = self.blocks
        asked = np.flatnonzero(blocks.born >= 0)
        inside = self.by_stack("in_module")[asked] & (self.born_in[asked] == FORWARD) & ~self.by_stack("in_construction")[asked]
        lines = {text: number for number, text in enumerate(dict.fromkeys(stack.call for stack in self.stacks.values()))}
        names = list(lines)
        who = self._spread(lines[stack.call] for stack in self.stacks.values()).astype(np.int64)[asked]
        # A call that nobody tells the line of is not told from the next one.
        who = np.where(inside & (who != lines.get("", -1)), who, -1)
        if not len(who):
            return []
        cuts = np.flatnonzero(np.diff(who)) + 1
        parts = zip(np.concatenate(([0], cuts)).tolist(), np.append(cuts, len(who)).tolist(), strict=True)
        return [Call(names[int(who[first])], asked[first:end], int(blocks.born[asked[end - 1]])) for first, end in parts if who[first] >= 0]

    @cached_property
    def rounds(self) -> Numbers:
        """Return the starts of the program's rounds: calls of a module, or what follows a step."""
        starts = [int(self.blocks.born[call.blocks[0]]) for call in self.calls]
        if len(starts) < 2:
            starts = [*starts, *self.steps.tolist()]
        return np.unique(np.array(starts, dtype=np.int64))

    @cached_property
    def round_of(self) -> Numbers:
        """Return the round in which each block was requested: 0 before the first."""
        return np.searchsorted(self.rounds, self.blocks.born, "right")

    # Categories

    @cached_property
    def category(self) -> NDArray[np.object_]:
        """Return what each block is for."""
        blocks, phase = self.blocks, self.born_in
        found = np.full(len(blocks), "activation", dtype=object)
        told = self._spread(stack.category for stack in self.stacks.values())
        outlives = self._outlives
        found[:] = np.where(self._passes, "temporary", found)
        found[phase == BACKWARD] = np.where(outlives[phase == BACKWARD], "gradient", "temporary")
        found[phase == OPTIMIZER] = np.where(outlives[phase == OPTIMIZER], "optimizer state", "temporary")
        found[self.by_stack("in_construction") & (phase == FORWARD)] = "parameter"
        found[self.by_stack("is_loaded") & (phase == FORWARD)] = "loaded"
        found[self.by_stack("talks") & ~self.by_stack("in_construction")] = "communication"
        found[self._own_inputs & (found != "parameter")] = "input"
        found[self._workspaces] = "workspace"
        found = np.where(told != "", told, found)
        for number, note in enumerate(self.snapshot.columns.notes):
            if note in _CATEGORIES:
                found[(blocks.note == number) & (blocks.born >= 0)] = note
        found[(blocks.born < 0) & (blocks.stack == -1)] = BEFORE
        unknown = self.by_stack("is_empty")
        if not self.has_stacks:
            found[unknown & (found != BEFORE) & (found != "workspace")] = NOT_ATTRIBUTED
        return found

    @cached_property
    def _outlives(self) -> Flags:
        """Return the blocks that are there after the phase that asked for them."""
        if not self.length:
            return np.zeros(len(self.blocks), dtype=np.bool_)
        ends = np.append(np.flatnonzero(np.diff(self.phase)) + 1, self.length)
        ends_of = ends[np.searchsorted(ends, np.maximum(self.blocks.born, 0), "right")]
        return self.blocks.died >= ends_of

    @cached_property
    def _passes(self) -> Flags:
        """Return the blocks of a forward that are gone before the backward, or the next forward, begins."""
        # What is let go because memory ran out did not pass.
        ends = [self.length, *([self.refused] if self.refused is not None else [])]
        backwards = np.unique([*(np.flatnonzero(np.diff(self.phase) == 1) + 1 if self.length else []), *ends]).astype(np.int64)
        next_one = backwards[np.searchsorted(backwards, self.blocks.born, "right").clip(0, len(backwards) - 1)]
        passes: Flags = self.blocks.died < next_one
        return passes

    @cached_property
    def _own_inputs(self) -> Flags:
        """Return the blocks outside modules that are gone as soon as the same line asked again: what a loop's variable holds."""
        blocks = self.blocks
        flags = np.zeros(len(blocks), dtype=np.bool_)
        candidates = (
            (blocks.born >= 0) & (blocks.size > _SCALAR) & (self.born_in == FORWARD) & ~self.by_stack("in_module") & (blocks.stack >= 0)
        )
        for number in np.unique(blocks.stack[candidates]).tolist():
            mine = np.flatnonzero(candidates & (blocks.stack == number))
            if len(mine) < 3:
                continue
            again = blocks.born[mine[1:]]
            soon = (blocks.died[mine[:-1]] > again) & (blocks.died[mine[:-1]] <= again + 12)
            if soon.mean() > 0.8:
                flags[mine] = True
        return flags

    @cached_property
    def _workspaces(self) -> Flags:
        """Return what cuBLAS is given: once a stream, and kept."""
        blocks = self.blocks
        sized = np.isin(blocks.size, list(_WORKSPACE_SIZES)) & (blocks.born >= 0) & (blocks.died == self.length)
        flags = self.by_stack("is_workspace")
        for at in np.flatnonzero(sized & ~flags).tolist():
            like = (blocks.stack == blocks.stack[at]) & (blocks.size == blocks.size[at])
            if like.sum() == 1 and (self.stack(at).in_module or self.born_in[at] == BACKWARD):
                flags[at] = True
        return flags

    # Texts

    def module(self, block: int) -> str:
        """Return the module that was at work, or what somebody called it."""
        note = self.snapshot.columns.notes[int(self.blocks.note[block])] if len(self.snapshot.columns.notes) else ""
        return self.stack(block).module or (note if note not in _CATEGORIES else "")

    def rows(self, blocks: Numbers) -> list[Row]:
        """Return what some blocks are."""
        numbers, sizes = blocks.tolist(), self.blocks.size[blocks].tolist()
        return summed(((self.category[one], self.module(one), self.line(one)), size) for one, size in zip(numbers, sizes, strict=True))

    def line(self, block: int) -> str:
        """Return the line that asked; of threads that have none, that of the forward before it, which they go back through."""
        own = self.stack(block).line
        if own or self.blocks.born[block] < 0 or not self.has_stacks:
            return own
        before = int(self._last_with_line[block])
        return f"backward of {self.stack(before).line}" if before >= 0 else ""

    @cached_property
    def _last_with_line(self) -> Numbers:
        known = self._has_python & (self.born_in == FORWARD) & (self.blocks.born >= 0)
        return np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))

    def by_category(self, blocks: Numbers) -> dict[str, int]:
        """Return the bytes of each category."""
        return {name: size for name, size, _ in summed(zip(self.category[blocks].tolist(), self.blocks.size[blocks].tolist(), strict=True))}


@immutable(slots=False)
class Call:
    """A module at work: which line of the program called it, and what was asked for."""

    line: str
    blocks: Numbers
    last: int
    """The last entry."""
