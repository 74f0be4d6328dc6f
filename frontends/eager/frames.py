"""Source locations of the running code."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType
from typing import Final

from irscope.ir.places import Loc

_MOST_FRAMES: Final = 64
_HIDDEN = tuple(f"{os.sep}{part}{os.sep}" for part in (os.path.join("site-packages", "torch"), os.path.join("irscope", "frontends")))


class Frames:
    """Finds the location of the current statement; locations are interned."""

    def __init__(self) -> None:
        self._places: dict[tuple[CodeType, int, Loc | None], Loc] = {}
        self._shown: dict[CodeType, bool] = {}
        self.bottom: FrameType | None = None
        """The frame that started the run; its callers are left out."""

    def here(self) -> Loc | None:
        """The innermost location outside torch, linked to its callers."""
        found: list[tuple[CodeType, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self.bottom:
            code = frame.f_code
            if self.shows(code):
                found.append((code, frame.f_lineno))
            frame = frame.f_back
        loc: Loc | None = None
        for code, line in found[:_MOST_FRAMES][::-1]:
            key = (code, line, loc)
            known = self._places.get(key)
            if known is None:
                known = Loc(code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line).strip(), loc)
                self._places[key] = known
            loc = known
        return loc

    def shows(self, code: CodeType) -> bool:
        """Whether a function belongs to the model, not to torch or irscope."""
        shown = self._shown.get(code)
        if shown is None:
            shown = self._shown[code] = _is_shown(code)
        return shown


def _is_shown(code: CodeType) -> bool:
    file = code.co_filename
    return not (file.startswith("<frozen") or _is_own(file) or any(part in file for part in _HIDDEN))


def _is_own(file: str) -> bool:
    return os.path.abspath(file).startswith(_OWN + os.sep)


_OWN = os.path.dirname(os.path.abspath(__file__))
