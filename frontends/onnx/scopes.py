"""Which module call and source line a node belongs to: what exporters leave in metadata, else the node's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from irscope.ir.places import Loc, Scope

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_NAMESPACE = "namespace"
_TRACE = "pkg.torch.onnx.stack_trace"

_DEEPEST = 48
_LONGEST = 16_384
_MOST_FRAMES = 32
_FRAME = re.compile(r'^\s*File "([^"]*)", line (\d{1,9})(?:, in (.+))?$')
_OLD_FRAME = re.compile(r"^(\S.*)\((\d{1,9})\): (\S+)\s*$")


class Scopes:
    """Scopes and locations of nodes below one root, shared by nodes that name the same ones."""

    def __init__(self, root: Scope) -> None:
        self.root = root
        self.by_prefix: dict[str, Scope] = {"": root}
        """Scopes of names by what stands in front of their last part."""
        self._by_path: dict[str, Scope] = {}
        self._by_modules: dict[tuple[str, ...], Scope] = {}

    def of_metadata(self, entries: Mapping[str, str]) -> Scope | None:
        """The scope that the PyTorch exporter wrote down, None where there is none."""
        text = entries.get(_SCOPES)
        if text is not None and len(text) <= _LONGEST:
            modules = tuple(_printed_list(text)[:-1])
            found = self._by_modules.get(modules)
            if found is None:
                classes = _printed_list(entries.get(_CLASSES, "")[:_LONGEST])
                found = self._by_modules[modules] = self._descend(modules, classes)
            return found
        text = entries.get(_NAMESPACE)
        if text is not None and len(text) <= _LONGEST:
            pairs = [part.partition(": ") for part in text.split("/")[:-1]]
            modules = tuple(name.strip() for name, _, _ in pairs)
            found = self._by_modules.get(modules)
            if found is None:
                found = self._by_modules[modules] = self._descend(modules, [cls for _, _, cls in pairs])
            return found
        return None

    def of_name(self, name: str, op_type: str) -> Scope:
        """The scope that a node's name spells: "/layers.0/attn/MatMul" is in layers.0, attn."""
        prefix, _, last = name.rpartition("/")
        separator = "/"
        if not prefix and "." in name:
            prefix, _, last = name.rpartition(".")
            separator = "."
            if not last.startswith(op_type):
                return self.root
        found = self.by_prefix.get(prefix)
        if found is None:
            found = self.root
            if len(prefix) <= _LONGEST:
                found = self._of_path(prefix) if separator == "/" else self._below_root(prefix.split(separator))
            self.by_prefix[prefix] = found
        return found

    def _of_path(self, path: str) -> Scope:
        """The scope of "/layers.0/attn": most often right below one that is known."""
        found = self._by_path.get(path)
        if found is None:
            above, _, last = path.rpartition("/")
            parent = self._by_path.get(above)
            if parent is not None and last and parent.depth - self.root.depth < _DEEPEST:
                found = parent.child(last)
            else:
                found = self._below_root(path.split("/"))
            self._by_path[path] = found
        return found

    def _below_root(self, components: Iterable[str]) -> Scope:
        found = self.root
        for component in [part for part in components if part][:_DEEPEST]:
            found = found.child(component)
        return found

    def _descend(self, modules: tuple[str, ...], classes: list[str]) -> Scope:
        """Exporters give full paths ("layers.0", "layers.0.attn"); scopes are relative to the one above."""
        scope, parent = self.root, ""
        for index, module in enumerate(modules[:_DEEPEST]):
            cls = classes[index].rpartition(".")[2] if index < len(classes) else ""
            if not module:
                if cls and not scope.cls:
                    scope.cls = cls
                continue
            name = module
            if parent:
                name = module[len(parent) + 1 :] if module.startswith(f"{parent}.") else f"={module}"
            scope = scope.child(name, cls)
            parent = module
        return scope


def _printed_list(text: str) -> list[str]:
    """The strings of a printed Python list of strings."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")) or len(inner) == 2:
        return []
    return [part.strip().strip("'\"") for part in inner[1:-1].split(",")]


class Locations:
    """Source lines of nodes; stack traces that many nodes share are read once."""

    def __init__(self) -> None:
        self._by_text: dict[str, Loc | None] = {}
        self._by_frame: dict[tuple[str, int, str, str, int], Loc] = {}

    def of_metadata(self, entries: Mapping[str, str]) -> Loc | None:
        return self.of_trace(entries.get(_TRACE, ""))

    def of_trace(self, text: str) -> Loc | None:
        """The innermost line of a printed stack trace, with its callers; None where the text is none."""
        if not text:
            return None
        if text not in self._by_text:
            self._by_text[text] = self._read(text[:_LONGEST])
        return self._by_text[text]

    def _read(self, text: str) -> Loc | None:
        frames: list[tuple[str, int, str, str]] = []
        lines = text.splitlines()
        for index, line in enumerate(lines):
            frame = _FRAME.match(line)
            if frame is not None:
                after = lines[index + 1].strip() if index + 1 < len(lines) and not _FRAME.match(lines[index + 1]) else ""
                frames.append((frame[1], int(frame[2]), frame[3] or "", after))
        if not frames:
            old = [match for line in lines if (match := _OLD_FRAME.match(line))]
            frames = [(match[1], int(match[2]), match[3], "") for match in reversed(old)]
        loc: Loc | None = None
        for file, number, function, statement in frames[-_MOST_FRAMES:]:
            key = (file, number, function, statement, id(loc))
            found = self._by_frame.get(key)
            if found is None:
                found = self._by_frame[key] = Loc(file, number, function, statement, loc)
            loc = found
        return loc
