"""Run docs/tour.ipynb and keep what its cells show: `python -m tests.tools.notebook` writes the outputs again.

Cells run in one namespace, as Jupyter would run them: the value of the last expression of a cell is shown, as a page where it
has one. Jupyter need not be installed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tour.ipynb"
_LONGEST = 200
"""Characters of a value where no page can be shown."""


def cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells with code."""
    yield from (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each cell with code shows, in the folder of the repository."""
    shared: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return [_outputs("".join(cell["source"]), shared, number) for number, cell in enumerate(cells(notebook), 1)]
    finally:
        os.chdir(before)


def _outputs(source: str, shared: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), shared)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), shared)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": [textwrap.shorten(repr(value), _LONGEST, placeholder=" ...")]}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def main() -> None:
    """Write the notebook with what its cells show now, without the settings and measurements of this machine."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as home:
        os.environ["IRSCOPE_HOME"] = home
        made = run(notebook)
    for number, (cell, outputs) in enumerate(zip(cells(notebook), made, strict=True), 1):
        cell.update(execution_count=number, outputs=outputs)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
