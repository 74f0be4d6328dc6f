"""Lowers programs of JAX, asks XLA's CPU compiler for their memory and FLOPs, and holds `xla-memory` beside what it says.

python -m tests.tools.oracle.jax_truth make FOLDER [more|fresh]   # needs jax, flax, optax: writes NAME.mlir.gz and truth.jsonl
python -m tests.tools.oracle.jax_truth compare FOLDER...          # needs irscope: a line for each program, then a sum
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_OF_MEMORY = ("argument", "output", "alias", "temp")


def make(folder: Path, which: str) -> None:
    """Write the text of each program and what the compiler says of it."""
    import jax

    from tests.tools.oracle.jax_fresh import FRESH
    from tests.tools.oracle.jax_programs import MORE

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, program in {"more": MORE, "fresh": FRESH}[which].items():
        lowered = jax.jit(program.function, donate_argnums=program.donated).lower(*program.arguments)
        compiled = lowered.compile()
        memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
        row = {
            "name": name,
            **{f"{part}_bytes": getattr(memory, f"{part}_size_in_bytes") for part in _OF_MEMORY},
            "flops": cost.get("flops"),
            "transcendentals": cost.get("transcendentals"),
            "bytes_accessed": cost.get("bytes accessed"),
            "jax": jax.__version__,
            "inputs": [[str(leaf.dtype), list(leaf.shape)] for leaf in jax.tree.leaves(lowered.in_avals)],
            "outputs": [[str(leaf.dtype), list(leaf.shape)] for leaf in jax.tree.leaves(lowered.out_info)],
            "devices": 1,
        }
        rows.append(json.dumps(row) + "\n")
        text = re.sub('"/[^"]*/', '"', lowered.as_text(debug_info=True))  # lines without folders of this machine
        (folder / f"{name}.mlir.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "truth.jsonl").write_text("".join(rows))


def compared(folder: Path) -> Iterator[dict[str, Any]]:
    """Return for each program of a folder what was predicted beside what the compiler says."""
    import irscope

    for line in (folder / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        summary = irscope.run(irscope.load(folder / f"{row['name']}.mlir.gz"), "xla-memory")["xla-memory"].report().summary
        temporary, truth, flops = summary["temp_bytes"], row["temp_bytes"], summary["cost_analysis_flops"].value
        yield {
            "name": row["name"],
            "is_exact": all(summary[f"{part}_bytes"] == row[f"{part}_bytes"] for part in _OF_MEMORY[:3]),
            "temporary": (temporary.value, truth),
            "is_near": abs(temporary.value - truth) <= 0.1 * truth,
            "is_inside": (temporary.lo or 0) <= truth and (temporary.hi is None or truth <= temporary.hi),
            "flops": (flops, row["flops"]),
            # -1 where the compiler calls a library of whose work it says nothing
            "is_counted": None if (row["flops"] or -1) < 0 else flops is not None and abs(flops - row["flops"]) <= 0.01 * row["flops"],
            "functions": (summary["cost_analysis_transcendentals"].value, row["transcendentals"] or 0),
        }


def compare(folder: Path) -> None:
    """Print a line for each program, and how many are right."""
    rows = list(compared(folder))
    for row in rows:
        marks = " ".join(part for part in ("is_exact", "is_near", "is_inside", "is_counted") if row[part] is False)
        print(row["name"], *(f"{part} {row[part][0]} of {row[part][1]}" for part in ("temporary", "flops", "functions")), marks)
    counts = {part: sum(bool(row[part]) for row in rows) for part in ("is_exact", "is_near", "is_inside", "is_counted")}
    print(folder, len(rows), "programs,", sum(row["is_counted"] is not None for row in rows), "with FLOPs:", counts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "more")
    else:
        for argument in sys.argv[2:]:
            compare(Path(argument))
