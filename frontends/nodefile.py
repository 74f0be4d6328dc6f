"""The nodes of a model file as the file lists them, and a copy of the file that lists them in another order."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, cast

from irscope.errors import UsageError
from irscope.frontends.detect import detect

_READERS = {"onnx": "irscope.frontends.onnx.nodefile", "exported": "irscope.frontends.exported.nodefile"}


class NodeFile(Protocol):
    """A file whose main graph is a list of nodes."""

    suffix: ClassVar[str]
    """What names of such files end in."""
    needs: list[tuple[int, ...]]
    """For each node, by its number in the file, those whose results it reads."""

    def write(self, order: Sequence[int], target: Path) -> list[Path]:
        """Write a copy whose main graph lists the nodes in another order, and nothing else differs. Returns the files written."""
        ...


def open_nodes(path: Path, method: str = "") -> NodeFile:
    """The nodes of a file; UsageError for formats that do not list them."""
    kind = detect(path)
    module = _READERS.get(kind.frontend or "")
    if module is None:
        raise UsageError(
            f"a {kind.name} file does not list its nodes, so that they cannot be put into another order",
            code="IRS357",
            where=str(path),
            hint="bring the model as .onnx or .pt2, or write the graph as text: -o FILE.irs",
        )
    return cast("NodeFile", importlib.import_module(module).open_file(path, method))
