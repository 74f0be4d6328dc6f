"""The rules of the IR. A program that breaks none of them can be printed, analysed and changed safely."""

from __future__ import annotations

from irscope.diagnostics import Diagnostic
from irscope.errors import VerifyError
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.findings import Findings
from irscope.ir.graph import Attr, Graph, Node
from irscope.ir.mentions import PLAIN, mentions
from irscope.ir.places import Scope
from irscope.ir.program import Program
from irscope.ir.spelling import MAX_NESTING
from irscope.ir.types import Type
from irscope.ir.verifylinks import check_links
from irscope.ir.verifyvalues import ValueChecker, check_names


def verify(program: Program) -> list[Diagnostic]:
    """Every breach of the rules, in program order; an empty list for a sound program."""
    findings = Findings(program)
    check_links(program, findings)
    if not findings.diagnostics:
        findings.links_hold = True
        values = ValueChecker(findings)
        for body in (program.graph, *program.functions.values()):
            values.check(body)
            check_names(body, findings)
            _check_nodes(body, program, findings)
        values.finish()
        _check_sizes(program, findings)
        _check_recursion(program, findings)
    return findings.finish()


def check(program: Program) -> None:
    """Raise VerifyError about the first breach of the rules, if there is one."""
    found = verify(program)
    if found:
        first, more = found[0], len(found) - 1
        hint = f"and {more} more {'problem' if more == 1 else 'problems'}" if more else ""
        raise VerifyError(first.message, code=first.code, where=program.path, hint=hint)


def _check_nodes(body: Graph, program: Program, findings: Findings) -> None:
    """Attributes are of the kinds the IR has, scopes belong to the body's tree, called functions exist."""
    known: set[Scope] = {body.scope}
    for node in body.walk():
        if node.attrs:
            _check_attrs(node, findings)
        if node.scope not in known and not _is_below(node.scope, known):
            findings.add("IRS120", "the node's scope belongs to another tree than the graph's", node)
        if node.op == "cf.call" and node.attrs.get("callee") not in program.functions:
            findings.add("IRS125", f"there is no function {node.attrs.get('callee')!r}", node)


def _is_below(scope: Scope, known: set[Scope]) -> bool:
    """Whether a scope hangs below one that is known; then all scopes on the way are known too."""
    fresh: list[Scope] = []
    above: Scope | None = scope
    while above is not None and above not in known:
        fresh.append(above)
        above = above.parent
    if above is None:
        return False
    known.update(fresh)
    return True


def _check_attrs(node: Node, findings: Findings) -> None:
    for key, value in node.attrs.items():
        if type(key) is not str:
            findings.add("IRS126", f"the attribute name {key!r} is no string", node)
        elif type(value) not in PLAIN and not _is_attr(value):
            findings.add("IRS126", f"the attribute {key!r} holds a {type(value).__name__} or something nested too deep", node)
    written = node.attrs.get("inplace")
    if written is None:
        return
    if type(written) is not int or not 0 <= written < len(node.inputs) or node.inputs[written] is None:
        findings.add("IRS126", f"inplace={written!r} names no input", node)


def _is_attr(value: Attr) -> bool:
    """Whether a value is of the kinds that attributes may have."""
    todo: list[tuple[Attr, int]] = [(value, 0)]
    while todo:
        item, depth = todo.pop()
        if type(item) is tuple:
            if depth >= MAX_NESTING:
                return False
            todo.extend([(part, depth + 1) for part in item if type(part) not in PLAIN])
        elif type(item) not in PLAIN and not isinstance(item, SymDim | DType | Type):
            return False
    return True


def _check_sizes(program: Program, findings: Findings) -> None:
    """A name of a size always has the same bounds, and no size is negative."""
    found = mentions(program)
    for tensor in found.tensors:
        if any(isinstance(size, int) and size < 0 for size in tensor.shape or ()):
            findings.add("IRS120", f"the type {tensor} has a negative size")
    sizes: dict[str, SymDim] = {}
    for name, size in program.symbols.items():
        if size.symbols() != (size,) or str(size) != name:
            findings.add("IRS127", f"the symbol table lists {size} under the name {name!r}")
        sizes[name] = size
    for size in found.symbols:
        first = sizes.setdefault(str(size), size)
        if first is not size:
            findings.add("IRS127", f"the size {size} has the bounds {_bounds(first)} in one place and {_bounds(size)} in another")


def _bounds(size: SymDim) -> str:
    return f"[{'*' if size.lo is None else size.lo},{'*' if size.hi is None else size.hi}]"


def _check_recursion(program: Program, findings: Findings) -> None:
    """No function calls itself, on whatever way."""
    callees = {
        name: dict.fromkeys(str(node.attrs.get("callee")) for node in body.walk() if node.op == "cf.call")
        for name, body in program.functions.items()
    }
    done: set[str] = set()
    for start in callees:
        path: dict[str, None] = {}
        todo = [(start, False)]
        while todo:
            name, is_left = todo.pop()
            if is_left:
                del path[name]
                done.add(name)
            elif name in path:
                findings.add("IRS125", f"the function {name!r} calls itself: {' > '.join([*path, name])}")
            elif name not in done and name in callees:
                path[name] = None
                todo.append((name, True))
                todo.extend([(callee, False) for callee in callees[name]])
