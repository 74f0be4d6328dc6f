"""Places in the Python source that a model was traced from, as an archive keeps them beside its code."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from irscope.budget import OverBudget
from irscope.errors import LoadError
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torchscript.state import Pickles
from irscope.ir.places import CALLED_MODULE, Loc

_TABLE = "FORMAT_WITH_STRING_TABLE"
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)")
_MODULE_FILE = "torch/nn/modules/module.py"
_MODULE_CALL = frozenset({"_wrapped_call_impl", "_call_impl", "_slow_forward"})
_TRACER_FILE = "torch/jit/_trace.py"
_MOST_FRAMES = 200


@dataclass
class _File:
    """Where the code of one file comes from."""

    lines: list[int]
    """Byte at which each line of the code begins."""
    starts: list[int]
    """Bytes at which ranges begin."""
    traces: list[tuple[object, ...]]
    """The lines of each range's stack trace, as places in a table of texts or as texts."""
    texts: tuple[object, ...]


class Origins:
    """Stack traces of the operators of traced code; each table is read when it is first needed."""

    def __init__(self, archive: Archive, pickles: Pickles) -> None:
        self._archive = archive
        self._pickles = pickles
        self._files: dict[str, _File | None] = {}
        self._frames: dict[str, re.Match[str] | None] = {}
        self._locs: dict[tuple[str, ...], Loc | None] = {}

    def at(self, file: str, line: int, column: int) -> Loc | None:
        """The Python statement that an expression at a place of the code was traced from, with its callers."""
        if file not in self._files:
            self._files[file] = self._read(file)
        known = self._files[file]
        if known is None or line > len(known.lines):
            return None
        place = bisect_right(known.starts, known.lines[line - 1] + column) - 1
        if place < 0:
            return None
        texts = _texts(known.traces[place], known.texts)
        if texts not in self._locs:
            self._locs[texts] = self._loc(texts)
        return self._locs[texts]

    def _read(self, file: str) -> _File | None:
        name = f"{file}.debug_pkl"
        if name not in self._archive:
            return None
        try:
            found = self._pickles.read(name)
            code = self._archive.read(file)
        except OverBudget:
            raise
        except LoadError:
            # What is said about the code does not change what the code does.
            return None
        texts: tuple[object, ...] = ()
        if isinstance(found, tuple) and len(found) == 3 and found[0] == _TABLE and isinstance(found[1], tuple):
            _, texts, found = found
        if not isinstance(found, tuple | list):
            return None
        ranges = sorted((pair for item in found if (pair := _range(item)) is not None), key=lambda pair: pair[0])
        lines = [0, *(match.end() for match in re.finditer(b"\n", code))]
        return _File(lines, [start for start, _ in ranges], [trace for _, trace in ranges], texts)

    def _loc(self, texts: tuple[str, ...]) -> Loc | None:
        """The chain of places, outermost last; frames of the machinery that calls modules are left out."""
        frames: list[tuple[str, int, str]] = []
        is_called: list[bool] = []
        for text in texts:
            match = self._frame(text)
            if match is None or match["file"].replace("\\", "/").endswith(_TRACER_FILE):
                break
            if match["function"] in _MODULE_CALL and match["file"].replace("\\", "/").endswith(_MODULE_FILE):
                if is_called:
                    is_called[-1] = True
                continue
            frames.append((match["file"], int(match["line"]), match["function"]))
            is_called.append(False)
        loc: Loc | None = None
        for (file, line, function), called in reversed(list(zip(frames, is_called, strict=True))[:_MOST_FRAMES]):
            loc = Loc(file, line, f"{CALLED_MODULE}{function}" if called else function, "", loc)
        return loc

    def _frame(self, text: str) -> re.Match[str] | None:
        if text not in self._frames:
            self._frames[text] = _FRAME.fullmatch(text.strip())
        return self._frames[text]


def _range(item: object) -> tuple[int, tuple[object, ...]] | None:
    """The first byte of a range of the code and the stack trace there."""
    if not isinstance(item, tuple) or len(item) < 2 or not isinstance(item[0], int) or not isinstance(item[1], tuple) or not item[1]:
        return None
    source = item[1][0]
    if not isinstance(source, tuple) or not source:
        return None
    parts = source[0]
    return item[0], tuple(parts) if isinstance(parts, list) else (parts,)


def _texts(trace: tuple[object, ...], table: tuple[object, ...]) -> tuple[str, ...]:
    """The lines of a stack trace, innermost first."""
    parts = [table[part] if isinstance(part, int) and 0 <= part < len(table) else part for part in trace]
    return tuple(line for part in parts if isinstance(part, str) for line in part.splitlines() if line)
