"""Lists and dictionaries in branches that may not be taken: each branch works on copies, whose changes are merged afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from irscope.frontends.torchscript.values import Item, ScriptObject, TensorList


class Copies:
    """Variables whose containers are copies of the ones outside."""

    def __init__(self, env: Mapping[str, Item]) -> None:
        self._made: dict[int, tuple[Item, Item]] = {}
        self._originals: dict[int, Item] = {}
        self.env = {name: self._copy(item) for name, item in env.items()}

    def _copy(self, item: Item) -> Item:
        found = self._made.get(id(item))
        if found is not None:
            return found[1]
        made: Item
        if isinstance(item, list):
            copy: list[Item] = []
            made = self._remember(item, copy)
            copy.extend(self._copy(part) for part in item)
        elif isinstance(item, dict):
            table: dict[Item, Item] = {}
            made = self._remember(item, table)
            table.update((key, self._copy(part)) for key, part in item.items())
        elif isinstance(item, TensorList):
            made = self._remember(item, TensorList(item.value))
        elif isinstance(item, ScriptObject) and not item.cls.is_module:
            made = self._remember(item, thing := ScriptObject(item.cls, {}, item.path))
            thing.attrs.update((key, self._copy(part)) for key, part in item.attrs.items())
        elif isinstance(item, tuple):
            parts = tuple(self._copy(part) for part in item)
            made = item if all(a is b for a, b in zip(parts, item, strict=True)) else parts
            self._made[id(item)] = (item, made)
        else:
            made = item
        return made

    def _remember(self, item: Item, copy: Item) -> Item:
        self._made[id(item)] = (item, copy)
        self._originals[id(copy)] = item
        return copy

    def original(self, item: Item) -> Item:
        """What a copy was made from; None for what is no copy."""
        return self._originals.get(id(item))

    def pairs(self) -> Iterator[tuple[Item, Item]]:
        """Every container that can change, with its copy."""
        yield from [(item, copy) for item, copy in self._made.values() if not isinstance(item, tuple)]

    def changed(self) -> Iterator[tuple[Item, Item]]:
        """Containers whose copies were changed."""
        for item, copy in self.pairs():
            if not self._same(item, copy):
                yield item, copy

    def _same(self, item: Item, copy: Item) -> bool:
        if isinstance(item, list) and isinstance(copy, list):
            return len(item) == len(copy) and all(self._is(a, b) for a, b in zip(item, copy, strict=True))
        if isinstance(item, dict) and isinstance(copy, dict):
            return list(item) == list(copy) and all(self._is(item[key], copy[key]) for key in item)
        if isinstance(item, ScriptObject) and isinstance(copy, ScriptObject):
            return list(item.attrs) == list(copy.attrs) and all(self._is(item.attrs[key], copy.attrs[key]) for key in item.attrs)
        return isinstance(item, TensorList) and isinstance(copy, TensorList) and item.value is copy.value

    def _is(self, item: Item, copy: Item) -> bool:
        """Whether an element is the one that was there, or the copy of it."""
        if item is copy or self._originals.get(id(copy)) is item:
            return True
        if isinstance(item, tuple):
            return id(item) in self._made and self._made[id(item)][1] is copy
        return isinstance(item, bool | int | float | str) and type(item) is type(copy) and item == copy
