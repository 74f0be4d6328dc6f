"""Makes a case that shows a finding small: `python -m tests.tools.fuzz.shrink FOLDER FORMAT NUMBER STREAM SIGNATURE OUTPUT`.

Writes the case as one line of JSON, as the corpus in tests/data/fuzz keeps them.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.tools.fuzz.check import examine
from tests.tools.fuzz.mutants import Path_, Seeds, places, replaced, with_main
from tests.tools.fuzz.seeds import ROOT, seeds_of
from tests.tools.fuzz.trees import CODECS, Files, Tree
from tests.tools.fuzz.worker import DEEP_EVERY, one, settle_process

SECONDS = 20.0
"""CPU time for one case."""


@dataclass(frozen=True)
class Case:
    """What shows a finding: files and the command over them."""

    format: str
    why: str
    command: list[str]
    companion: str
    deep: bool
    files: dict[str, str]
    """Packed, as text."""

    def line(self) -> str:
        """The case as a line of JSON."""
        return json.dumps(asdict(self))


def packed(files: Files) -> dict[str, str]:
    """Files as a JSON document can hold them."""
    return {name: base64.b85encode(zlib.compress(data, 9)).decode() for name, data in files.items()}


def unpacked(files: dict[str, str]) -> Files:
    """Files as they were."""
    return {name: zlib.decompress(base64.b85decode(text)) for name, text in files.items()}


def small(data: bytes, codec: str, shows: Callable[[bytes], bool], deadline: float) -> bytes:
    """The smallest file found that still shows it: parts of its tree are left out as long as time is left."""
    try:
        tree = CODECS[codec].take(data)
    except Exception:
        return data  # changed byte by byte, so that it comes apart no more
    make = CODECS[codec].make
    if not shows(make(tree)):
        return data
    changed = True
    while changed and time.process_time() < deadline:
        changed = False
        for candidate in _smaller(tree, deadline):
            if time.process_time() > deadline:
                break
            if shows(make(candidate)):
                tree, changed = candidate, True
                break
    made = make(tree)
    return made if len(made) <= len(data) else data


def _smaller(tree: Tree, deadline: float) -> Iterator[Tree]:
    """Trees that lack something: halves of lists first, then items, keys and the ends of long texts."""
    nodes = sorted(places(tree), key=lambda place: -_weight(place[1]))
    for path, node in nodes:
        if isinstance(node, list) and len(node) > 1:
            for start, end in _halves(len(node)):
                yield replaced(tree, path, _without(start, end))
        elif isinstance(node, bytes | str) and len(node) > 64:
            yield replaced(tree, path, _head)
    for path, _ in nodes:
        yield replaced(tree, path[:-1], _lacking(path))


def _halves(length: int) -> Iterator[tuple[int, int]]:
    size = length
    while size > 1:
        size = (size + 1) // 2
        yield from ((start, min(start + size, length)) for start in range(0, length, size))
        if size * 8 < length:
            break


def _without(start: int, end: int) -> Callable[[Tree], Tree]:
    return lambda items: [*items[:start], *items[end:]]


def _head(text: Any) -> Any:
    return text[:32]


def _lacking(path: Path_) -> Callable[[Tree], Tree]:
    def change(holder: Tree) -> Tree:
        if isinstance(holder, dict):
            return {key: value for key, value in holder.items() if key != path[-1]}
        at = path[-1]
        return [item for index, item in enumerate(holder) if index != at] if isinstance(holder, list) else holder

    return change


def _weight(node: Tree) -> int:
    return len(node) if isinstance(node, str | bytes | list | dict) else 1


def shrink(folder: Path, format: str, number: int, stream: str, signature: str) -> Case:
    """The case of a mutant, as small as it gets in the time."""
    seeds = Seeds(seeds_of(format, folder / "seeds"))
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        settle_process(place)
        seed, files, command, outcome = one(seeds, format, number, stream, place)
        why = next((f"{finding.signature}: {finding.text}" for finding in outcome.findings if finding.signature == signature), signature)

        def shows(data: bytes) -> bool:
            again = examine(format, with_main(files, data), command, seed.companion, place, deep=number % DEEP_EVERY == 0)
            return any(finding.signature == signature for finding in again.findings)

        if not signature.startswith("slow"):
            made = small(next(iter(files.values())), seed.codec, shows, time.process_time() + SECONDS)
            files = with_main(files, made)
    companion = str(Path(seed.companion).relative_to(ROOT)) if seed.companion else ""
    why = why.replace(str(place), "").replace(str(ROOT), "")[:400]
    command = [one.replace(f"{ROOT}/", "") for one in command]
    return Case(format, why, command, companion, number % DEEP_EVERY == 0, packed(files))


if __name__ == "__main__":
    case = shrink(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    Path(sys.argv[6]).write_text(case.line() + "\n")
