"""A large model as text for the benchmarks of the UI: blocks as in a transformer, with modules, views and a symbol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_NODES_A_BLOCK = 10


def write(path: Path, nodes: int, *, symbolic: bool = True) -> None:
    """Write a model of about so many nodes."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(nodes, "batch" if symbolic else "4"))


def lines(nodes: int, batch: str) -> Iterator[str]:
    """The lines of such a model; ten nodes a block, ten blocks a stage."""
    yield "irscope 1"
    if not batch.isdigit():
        yield f"symbol {batch} [1,4096]"
    yield "graph @main {"
    yield f"  input %x: f32[{batch},128,256]"
    yield "  param %w1: f32[1024,256]"
    yield "  param %w2: f32[256,1024]"
    narrow, wide, flat = f"f32[{batch},128,256]", f"f32[{batch},128,1024]", f"f32[{batch},32768]"
    before = "%x"
    for block in range(nodes // _NODES_A_BLOCK):
        at = f"stages/{block // 10}/blocks/{block % 10}"
        name = f"%v{block}"
        yield f"  {name}a: {narrow} = nn.layer_norm({before}) {{axis=-1}} @{at}/norm"
        yield f"  {name}b: {wide} = nn.linear({name}a, %w1) @{at}/mlp/up"
        yield f"  {name}c: {wide} = nn.gelu({name}b) @{at}/mlp"
        yield f"  {name}d: {narrow} = nn.linear({name}c, %w2) @{at}/mlp/down"
        yield f"  {name}e: {narrow} = math.add({name}d, {before}) @{at}"
        yield f"  {name}f: {flat} = view.reshape({name}e) {{shape=[{batch},32768]}} @{at}"
        yield f"  {name}g: {flat} = nn.relu({name}f) @{at}"
        yield f"  {name}h: {narrow} = view.reshape({name}g) {{shape=[{batch},128,256]}} @{at}"
        yield f"  {name}i: {narrow} = nn.sigmoid({name}h) @{at}/gate"
        yield f"  {name}j: {narrow} = math.mul({name}i, {name}e) @{at}"
        before = f"{name}j"
    yield f"  return {before}"
    yield "}"
