"""Reads StableHLO, what JAX and others compile through XLA: as MLIR text or as portable bytecode, with neither installed. Also what the
compiler writes of its buffers: nodes are its kernels in their order, of which costs are not known; memory is what it assigned."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from irscope.budget import admit, claim, spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.files import read_regular
from irscope.frontends.base import LoadOptions
from irscope.frontends.stablehlo import control, operators  # noqa: F401  # they fill the table of rules
from irscope.frontends.stablehlo.bytecode import MAGIC, read_bytecode
from irscope.frontends.stablehlo.model import NOWHERE, Module, refuse, type_of
from irscope.frontends.stablehlo.program import Builder
from irscope.frontends.stablehlo.text import parse
from irscope.immutable import mutable
from irscope.ir.graph import Names, Value, paused_gc
from irscope.ir.program import XLA, Assigned, Assignment, Program
from irscope.ir.types import UNKNOWN_TENSOR, Type

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_HEAD: Final = 64
"""Both bytecode and a flatbuffer around it have a zero within their first bytes; text has none."""
_ACCOUNT: Final = b"BufferAssignment:"
_MODULE: Final = b"HloModule "
_SUFFIX: Final = "-buffer-assignment.txt"
_ALLOCATION: Final = re.compile(r"allocation (\d{1,9}): size (\d{1,18}), ?(.*)")
_VALUE: Final = re.compile(r"\s*value: <\d+ (\S+?)(?:\{\})?(?: \(phi\))? @\d+> \(size=(\d{1,18}),offset=(\d{1,18})\): (\S+)")
_LIFE: Final = re.compile(r"\s+(\S+?)\{([\d,]*)\}:(\d{1,9})-(\d{1,9})")
_STEP: Final = re.compile(r"\s+(\d+):(\S+)")
_DEFINED: Final = re.compile(r"\s*<\d+ (\S+?)(?:\{\})?(?: \(phi\))? @\d+>")
_USE: Final = re.compile(r"\s+(\S+?)(?:\{[\d,]*\})?, operand \d+")
_MADE: Final = re.compile(r" from instruction: %?\S+ = (?:\(.*?\)|\S+) ([a-z][a-z\d-]*)\(")
_NAME: Final = re.compile(r'op_name="([^"]*)"')
_SHAPE: Final = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_MOST_BYTES: Final = 2 << 30
_ELEMENTS: Final = {"pred": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program in a file of StableHLO; constants of any size stay as they are."""
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", code="IRS100", where=str(path)) from None
    with paused_gc():
        if data.startswith((_ACCOUNT, _MODULE)):
            return _load_account(path, sink)
        return build(read_module(data, str(path)), options.method, sink, str(path))


def build(module: Module, name: str, sink: DiagnosticSink, where: str) -> Program:
    """Return the program of a module's function."""
    try:
        return Builder(module, sink, where).program(name)
    except RecursionError:
        raise refuse("regions or calls are nested too deeply", where) from None


def read_module(data: bytes, where: str) -> Module:
    """Return the module that bytes hold, whatever the form."""
    if data.startswith(_GZIP):
        data = _decompressed(data, where)
    admit(len(data))
    start = data.find(MAGIC) if b"\0" in data[:_HEAD] else -1
    return parse(data.decode("utf-8", "replace")) if start < 0 else read_bytecode(data[start:])


def _decompressed(data: bytes, where: str) -> bytes:
    made, parts, size = zlib.decompressobj(zlib.MAX_WBITS | 16), [], 0
    try:
        while data:
            part = made.decompress(data, _CHUNK)
            data, size = made.unconsumed_tail, size + len(part)
            claim(size, "compressed text")
            parts.append(part)
    except zlib.error as error:
        raise refuse(f"it cannot be decompressed ({error})", where) from None
    return b"".join(parts)


# What XLA writes with --xla_dump_to.


@mutable
class _Buffer:
    """One value that has memory."""

    name: str
    nbytes: int
    type: Type
    kind: str
    place: tuple[int, int]
    """The allocation, by its number, and the offset in it."""
    born: int = 0
    dies: int = 0

    @property
    def instruction(self) -> str:
        return self.name.partition("{")[0]


def _load_account(path: Path, sink: DiagnosticSink) -> Program:
    """Return the program whose buffers lie in a file, or beside the module that it is."""
    path = path if path.name.endswith(_SUFFIX) else path.with_name(path.stem + _SUFFIX)
    lives, steps = _read_lives(_read_beside(path, "-live-range.txt", "it says from when to when a buffer is there"))
    sizes, parameters, buffers = _read_buffers(_read_beside(path, _SUFFIX, "it is written with --xla_dump_hlo_as_text"))
    try:
        reads, made = _read_values(_read_beside(path, "-buffer-assignment-values.txt", ""))
    except LoadError:
        reads, made = {}, {}  # where it lies is known without the names
    for one in buffers:
        one.born, one.dies = lives.get(one.name, (0, len(steps)))
    last: dict[tuple[int, int], _Buffer] = {}
    for one in sorted(buffers, key=lambda one: one.born):
        before = last.get(one.place)
        if before is not None and before.born < one.born <= before.dies:
            before.dies = one.born - 1  # it is written over by what reads it
        last[one.place] = one
    return _program_of_buffers(path, sizes, parameters, buffers, reads, made, sink)


def _read_beside(path: Path, suffix: str, why: str) -> str:
    wanted = path.with_name(path.name.removesuffix(_SUFFIX) + suffix)
    try:
        data = read_regular(wanted, _MOST_BYTES)
    except OSError as error:
        raise LoadError(
            f"cannot read {wanted.name}, which belongs to it: {error.strerror}", code="IRS100", where=str(path), hint=why
        ) from None
    admit(len(data))
    return data.decode("utf-8", "replace")


def _read_lives(text: str) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Return first and last step of each value, and the steps."""
    found: dict[str, tuple[int, int]] = {}
    steps: list[str] = []
    for line in text.splitlines():
        life, step = _LIFE.fullmatch(line), _STEP.fullmatch(line)
        if life is not None:
            found[f"{life[1]}{{{life[2]}}}" if life[2] else life[1]] = (int(life[3]), int(life[4]))
        elif step is not None:
            steps.append(step[2])
    return found, steps


def _read_buffers(text: str) -> tuple[dict[str, int], list[_Buffer], list[_Buffer]]:
    """Return sums of memory by kind, the arguments in order, and the other values that have memory while the program runs."""
    sizes = dict.fromkeys(("arguments", "constants", "outputs", "aliased", "temporary"), 0)
    arguments: dict[int, _Buffer] = {}
    found: list[_Buffer] = []
    kind, number, at = "", -1, 0
    for line in text.splitlines():
        head, value = _ALLOCATION.match(line), _VALUE.match(line)
        if head is not None:
            at, size, said = int(head[1]), int(head[2]), head[3]
            parameter = re.match(r"parameter (\d{1,9})", said)
            number = int(parameter[1]) if parameter else -1
            is_out = "maybe-live-out" in said
            kind = "constants" if said.startswith("constant") else "outputs" if is_out else "temporary"
            if "thread-local" in said:
                kind = ""
            elif parameter:
                kind = "arguments"
                sizes["aliased"] += size if is_out else 0
            sizes["outputs"] += size if parameter and is_out else 0
            if kind:
                sizes[kind] += size
        elif value is not None:
            one = _Buffer(value[1], int(value[2]), _type_of_shape(value[4]), kind, (at, int(value[3])))
            if kind == "arguments" and number not in arguments:
                arguments[number] = one
            elif kind in ("arguments", "outputs", "temporary"):
                found.append(one)
            spend(1, "buffers")
    return sizes, [arguments[number] for number in sorted(arguments)], found


def _type_of_shape(text: str) -> Type:
    shape = _SHAPE.match(text)
    if shape is None:
        return UNKNOWN_TENSOR
    element = _ELEMENTS.get(shape[1], re.sub(r"^s(\d+)$", r"i\1", re.sub(r"^u(\d+)$", r"ui\1", shape[1])))
    return type_of(f"tensor<{''.join(f'{size}x' for size in shape[2].split(',') if size)}{element}>") or UNKNOWN_TENSOR


def _read_values(text: str) -> tuple[dict[str, list[str]], dict[str, tuple[str, str]]]:
    """Return which values each instruction reads, and the operation and the name of the instruction that makes each."""
    reads: dict[str, list[str]] = {}
    made: dict[str, tuple[str, str]] = {}
    name = ""
    for line in text.splitlines():
        defined, use = _DEFINED.match(line), _USE.fullmatch(line)
        instruction = _MADE.match(line)
        if defined is not None:
            name = defined[1]
        elif use is not None:
            reads.setdefault(use[1], []).append(name)
        elif instruction is not None:
            said = _NAME.search(line)
            made[name.partition("{")[0]] = (instruction[1], said[1].replace("\\'", "'") if said else "")
    return reads, made


def _program_of_buffers(
    path: Path,
    sizes: dict[str, int],
    parameters: list[_Buffer],
    buffers: list[_Buffer],
    reads: dict[str, list[str]],
    made: dict[str, tuple[str, str]],
    sink: DiagnosticSink,
) -> Program:
    builder, names = Builder(Module(), sink, str(path)), Names()
    graph = builder.graph
    values: dict[str, Value] = {}
    for one in parameters:
        values[one.name] = graph.add_input(one.type, names.unique(made.get(one.name, ("", ""))[1] or one.name))
    kernels: dict[str, list[_Buffer]] = {}
    for one in sorted(buffers, key=lambda one: one.born):
        kernels.setdefault(one.instruction, []).append(one)
    if not kernels:
        raise refuse("no buffer of a kernel is in it", str(path))
    for name, outputs in kernels.items():
        op, said = made.get(name, ("", ""))
        inputs = [values[one] for one in dict.fromkeys(reads.get(name, ())) if one in values]
        kind = op or re.sub(r"[.\d]+$", "", name)
        op_name, types = f"xla.{re.sub(r'[^a-zA-Z0-9_]', '_', kind)}", [one.type for one in outputs]
        called = [one.name for one in outputs]
        node = graph.append(op_name, inputs, types, names=called, scope=builder.scope_of(graph.scope, replace(NOWHERE, name=said)))
        for one, value in zip(outputs, node.outputs, strict=True):
            values[one.name] = value
    end = max(one.dies for one in buffers)
    graph.set_outputs([values[one.name] for one in buffers if one.kind != "temporary" and one.dies == end])
    starts = [outputs[0].born for outputs in kernels.values()]
    found: list[Assigned] = []
    for step, outputs in enumerate(kernels.values()):
        for place, one in enumerate(outputs):
            last = max(step, bisect_right(starts, one.dies) - 1) if one.dies < end else len(starts)
            is_result = one.kind == "outputs" and one.dies == end
            lies: Literal["temporary", "result", "inside"] = "temporary" if one.kind == "temporary" else "result" if is_result else "inside"
            found.append(Assigned(step, place, one.nbytes, last, lies))
    program = Program(graph, format="stablehlo", path=str(path), traits=XLA)
    program.assignment = Assignment(tuple(found), len(starts), **sizes)
    program.uncounted = "a program of JAX does not tell which of its arguments are parameters"
    return program
