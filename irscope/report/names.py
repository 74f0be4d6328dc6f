"""Names of modules, nodes and weights in little room: what is equal goes, what tells names apart stays.

`model.layers.17.self_attn.q_proj.weight` in 30 columns is `…17.self_attn.q_proj.weight`. A name is cut into its parts; kept are numbers
(of layers), the last part (the variable's name), then what few names of the column have, from the right. Parts that come again within a
name, and those that all names of a column have, go first. Where two different names of a column would be cut to the same text, the parts
at which they differ come before all others: first parts between dots and slashes, then words, then characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from irscope.report.printable import LONGEST_TEXT, cut_middle, display_width

_PARTS: Final = (
    re.compile(r"([./:#,\s\\]*)([^./:#,\s\\]+)"),
    re.compile(r"([./:#,\s\\_-]*)([^./:#,\s\\_-]+)"),
    re.compile(r"()(.)", re.DOTALL),
)
"""Patterns that cut a name into separators and parts: at dots and slashes, at words, at every character."""
_SEPARATED: Final = re.compile("([/.])")
_CHARACTERS: Final = 2
_MOST_PARTS: Final = 48
"""A hostile name may have thousands; of those the first and the last are looked at."""
_MOST_BLANKS: Final = 2
_MOST_ROUNDS: Final = 6
"""Rounds of shortening: a part that distinguishes a name from some names may make it look like others, which are then distinguished too."""
_LEAST_PIECE: Final = 4
"""Fewer characters of a part say nothing."""
_FORCED, _NUMBER, _LAST, _NUMBERED, _WORD, _AGAIN = range(6)
"""Kinds of parts, most important first."""
_MOST_TOGETHER: Final = 2_000
"""Names of a longer column are compared with so many of their neighbours."""


class _Part(NamedTuple):
    """A part of a name and the separators before it."""

    before: str
    text: str


def cut_name(text: str, width: int, ellipsis: str = "…") -> str:
    """Return a name within a display width."""
    if display_width(text) <= width:
        return text
    return _cut(text, width, ellipsis, 0, {}, 1, ())


def is_prose(text: str) -> bool:
    """Return whether it is a sentence or a formula rather than a name: beginning and end of one tell most."""
    return text.count(" ", 0, LONGEST_TEXT) >= _MOST_BLANKS


def cut_names(texts: Sequence[str], width: int, ellipsis: str = "…") -> list[str]:
    """Return the names of a column within a display width; different names stay different as far as there is room for what they differ
    in.
    """
    found: list[str] = []
    for start in range(0, len(texts), _MOST_TOGETHER):
        found += _cut_together(texts[start : start + _MOST_TOGETHER], width, ellipsis)
    return found


def _cut_together(texts: Sequence[str], width: int, ellipsis: str) -> list[str]:
    names = list(dict.fromkeys(texts))
    if all(display_width(name) <= width for name in names):
        return list(texts)
    counts = Counter(part for name in names for part in {part.text for part in _parts(name, 0)})
    shown = {name: name if display_width(name) <= width else _cut(name, width, ellipsis, 0, counts, len(names), ()) for name in names}
    for level in range(len(_PARTS)):
        musts: dict[str, set[int]] = {}
        for _ in range(_MOST_ROUNDS):
            before = sum(map(len, musts.values()))
            for group in _equal(shown):
                for name, places in zip(group, _differences([_parts(name, level) for name in group]), strict=True):
                    if display_width(name) > width:
                        must = musts.setdefault(name, set())
                        must.update(places)
                        shown[name] = _cut(name, width, ellipsis, level, counts, len(names), sorted(must))
            if sum(map(len, musts.values())) == before:
                break
    return [shown[text] for text in texts]


def _equal(shown: Mapping[str, str]) -> list[list[str]]:
    """Return the names that are shown as the same text."""
    groups: dict[str, list[str]] = {}
    for name, text in shown.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _parts(text: str, level: int) -> list[_Part]:
    """Return the parts of a name; together with what stands before them they are the name."""
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT // 2] + text[-LONGEST_TEXT // 2 :]
    parts: list[_Part] = []
    end = 0
    for match in _PARTS[level].finditer(text):
        parts.append(_Part(match[1], match[2]))
        end = match.end()
    if end < len(text):
        before, last = parts.pop() if parts else ("", "")
        parts.append(_Part(before, last + text[end:]))
    if level < _CHARACTERS and len(parts) > _MOST_PARTS:
        half = _MOST_PARTS // 2
        middle = "".join(before + part for before, part in parts[half:-half])
        parts[half:-half] = [_Part("", middle)]
    return parts


def _differences(names: Sequence[Sequence[_Part]]) -> list[list[int]]:
    """Return for each name the places at which it first differs from another one, from the left."""
    order = sorted(range(len(names)), key=lambda number: tuple(names[number]))
    found: list[set[int]] = [set() for _ in names]
    for walk in (order, order[::-1]):
        places: set[int] = set()
        for one, other in pairwise(walk):
            at = _first_difference(names[one], names[other])
            # What differs from an earlier name further left does so from all names before that too.
            places = {place for place in places if place < at} | {at}
            found[other] |= places
    musts = [sorted(place for place in places if place < len(name)) for places, name in zip(found, names, strict=True)]
    # Often the part at which a name differs from the nearest others is one that no other name has at all.
    alone = {name[places[-1]] for places, name in zip(musts, names, strict=True) if places}
    return [places[-1:] for places in musts] if len(alone) == len(names) else musts


def _first_difference(parts: Sequence[_Part], other: Sequence[_Part]) -> int:
    return next((at for at, (a, b) in enumerate(zip(parts, other, strict=False)) if a != b), min(len(parts), len(other)))


def _cut(text: str, width: int, ellipsis: str, level: int, counts: Mapping[str, int], total: int, must: Sequence[int]) -> str:
    """Return a name that is too long for the width, with as much of it as there is room for."""
    gap = display_width(ellipsis)
    if width <= gap or (not must and is_prose(text)):
        return cut_middle(text, width, ellipsis)
    for finer in range(level, _CHARACTERS):
        parts = _parts(text, finer)
        first = must if must and finer == level else [len(parts) - 1]
        kept, room = _kept(parts, _ranked(parts, first, counts, total), width, gap)
        if all(kept[at] for at in first):
            return _joined(parts, kept, room, ellipsis)
        if must:
            break
    if not must:
        return cut_middle(text, width, ellipsis)
    parts = _parts(text, _CHARACTERS)
    if level < _CHARACTERS:
        return cut_middle(text, width, ellipsis)
    # Nothing is shown before what differs, so that it stands at the same place in all names that differ there.
    order = [*must, *range(must[-1] + 1, len(parts)), *range(must[-1] - 1, -1, -1)]
    kept, _ = _kept(parts, [(at, _FORCED) for at in order], width, gap)
    return _joined(parts, kept, 0, ellipsis)


def _ranked(parts: Sequence[_Part], first: Sequence[int], counts: Mapping[str, int], total: int) -> list[tuple[int, int]]:
    """Return the places of the parts with what they are, those that have to stay first."""
    last_of = {part.text: at for at, part in enumerate(parts)}
    forced = set(first)

    def kind(at: int) -> int:
        text = parts[at].text
        if at in forced:
            return _FORCED
        if at == len(parts) - 1:
            # Which of many layers it is says more than what ends all of their names.
            return _LAST
        if last_of[text] != at:
            return _AGAIN
        return _NUMBER if text.isdecimal() else _NUMBERED if text[-1:].isdecimal() else _WORD

    def key(pair: tuple[int, int]) -> tuple[int, int, int]:
        at, kind = pair
        if kind < _WORD:
            return kind, 0, at
        # How many times fewer names have it than there are, in powers of two.
        return kind, -(total // max(counts.get(parts[at].text, 1), 1)).bit_length(), -at

    return sorted(((at, kind(at)) for at in range(len(parts))), key=key)


def _kept(parts: Sequence[_Part], ranked: Iterable[tuple[int, int]], width: int, gap: int) -> tuple[list[bool], int]:
    """Return which parts stay, taken in an order as long as there is room, and the room that is left."""
    count = len(parts)
    kept = [False] * count
    room = width - gap
    for at, kind in ranked:
        after_kept, before_kept = at == 0 or kept[at - 1], at == count - 1 or kept[at + 1]
        cost = display_width(parts[at].text) + gap * (1 - after_kept - before_kept)
        if after_kept:
            cost += display_width(parts[at].before)
        if before_kept and at < count - 1:
            cost += display_width(parts[at + 1].before)
        if cost <= room:
            kept[at] = True
            room -= cost
        elif kind >= _WORD:
            # The end of a word that says more is better than the whole of one that says less.
            break
    return kept, room


def _joined(parts: Sequence[_Part], kept: Sequence[bool], room: int, ellipsis: str) -> str:
    """Return the parts that stay, with an ellipsis for each run that does not; room that is left goes to the end of the last run."""
    pieces: list[str] = []
    filled = max((at for at in range(1, len(parts)) if kept[at] and not kept[at - 1]), default=-1)
    for at, part in enumerate(parts):
        if kept[at]:
            if at == filled:
                pieces.append(_end_of(parts[at - 1].text, room - display_width(part.before), part.before))
            elif at == 0 or kept[at - 1]:
                pieces.append(part.before)
            pieces.append(part.text)
        elif at == 0 or kept[at - 1]:
            pieces.append(ellipsis)
    return "".join(pieces)


def _end_of(text: str, room: int, before: str) -> str:
    """Return the end of a part that has no room for the whole, and the separators behind it; nothing where that is hardly anything."""
    end = text[-max(room, 0) :] if room > 0 else ""
    while end and display_width(end) > room:
        end = end[1:]
    for sign in "_-":
        _, _, words = end.partition(sign)
        end = words if len(words) >= _LEAST_PIECE else end
    return end + before if len(end) >= _LEAST_PIECE else ""


def ranks_text(ranks: Sequence[int]) -> str:
    """Return numbers in short: "0-3,8", and with a step "0-56:8"."""
    parts = []
    at = 0
    while at < len(ranks):
        end = at + 1
        step = ranks[end] - ranks[at] if end < len(ranks) else 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if step != 1 and end - at == 2:  # two that are apart are no stretch
            end = at + 1
        parts.append(str(ranks[at]) if end == at + 1 else f"{ranks[at]}-{ranks[end - 1]}" + (f":{step}" if step != 1 else ""))
        at = end
    return ",".join(parts)


def common_name(names: Sequence[str]) -> str:
    """Return one name for modules that differ in numbers: layers.0-11.dropout."""
    if len(set(names)) == 1:
        return names[0]
    separator = "/" if "/" in names[0] else "."
    parts = [name.split(separator) for name in names]
    return separator.join(
        each[0] if len(set(each)) == 1 else ranks_text(sorted({int(part) for part in each})) for each in zip(*parts, strict=True)
    )


def span_name(first: str, last: str) -> str:
    """Return one name for modules beside one another: `layers.0-11` for `layers.0` up to `layers.11`."""
    same = first.rstrip("0123456789")
    return f"{first}-{last[len(same) :] if last.startswith(same) else last}"


def fold_paths(likeness: Mapping[str, object]) -> dict[str, str]:
    """Return for each path the one name of those that are alike: `model/layers.0/mlp` is `model/layers.0-11/mlp`.

    Numbered modules beside one another are alike where they have the same names in them, and those without any where `likeness` is equal.
    """
    inside: dict[tuple[str, ...], dict[str, set[object]]] = {}
    for path, like in likeness.items():
        parts = _SEPARATED.split(path)
        for at, part in enumerate(parts):
            if part.isdecimal():
                rest = tuple(parts[at + 1 :])
                inside.setdefault(tuple(parts[:at]), {}).setdefault(part, set()).add(rest or like)
    names: dict[tuple[str, ...], str] = {}
    for above, numbered in inside.items():
        kinds: dict[frozenset[object], list[str]] = {}
        for number, contents in numbered.items():
            kinds.setdefault(frozenset(contents), []).append(number)
        for numbers in kinds.values():
            text = ranks_text(sorted({int(number) for number in numbers}))
            names.update({(*above, number): text for number in numbers})
    return {
        path: "".join(names.get(tuple(parts[: at + 1]), part) for at, part in enumerate(parts))
        for path, parts in ((path, _SEPARATED.split(path)) for path in likeness)
    }
