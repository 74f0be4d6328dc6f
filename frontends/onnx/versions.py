"""Which version of which operator set a graph uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.onnx.failures import VERSION, short
from irscope.ir.program import Assumed

STANDARD = ""
"""The default domain, also called "ai.onnx"."""
_FIRST_IR_WITH_OPSETS = 3
_HIGHEST = 2**31 - 1
_WHAT = "operator set"
_ALIASES = {"ai.onnx": STANDARD}


def domain_of(name: str) -> str:
    """A domain under its one name."""
    return _ALIASES.get(name, name)


def read_opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain; of repeated entries the highest."""
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        opsets[domain] = min(max(entry.version, opsets.get(domain, 0)), _HIGHEST)
    return opsets


def model_opsets(proto: onnx.ModelProto, sink: DiagnosticSink, assumed: list[Assumed]) -> dict[str, int]:
    """The operator sets of a model, with remarks on what is missing, and so assumed, or newer than the installed onnx package."""
    opsets = read_opsets(proto.opset_import)
    newest = onnx.defs.onnx_opset_version()
    if proto.ir_version > onnx.IR_VERSION:
        sink.note(
            VERSION,
            f"the file has IR version {proto.ir_version}, the installed onnx {onnx.__version__} knows {onnx.IR_VERSION}",
            hint="what is new in it may be missing here; try a newer onnx package",
        )
    if STANDARD not in opsets:
        opsets[STANDARD] = newest if proto.ir_version >= _FIRST_IR_WITH_OPSETS else 1
        if any(domain_of(node.domain) == STANDARD for node in proto.graph.node):
            sink.warn(VERSION, f"the file does not say which operator set it uses; version {opsets[STANDARD]} is assumed")
            assumed.append(Assumed(_WHAT, str(opsets[STANDARD]), "the file does not say which one it uses"))
    elif opsets[STANDARD] > newest:
        sink.note(
            VERSION,
            f"the model uses operator set {opsets[STANDARD]}, the installed onnx {onnx.__version__} knows up to {newest}",
            hint="operators are read as in the newest version that is known",
        )
    elif opsets[STANDARD] < 1:
        sink.warn(VERSION, f"operator set {opsets[STANDARD]} does not exist; version 1 is assumed")
        assumed.append(Assumed(_WHAT, "1", f"the file says {opsets[STANDARD]}, which does not exist"))
        opsets[STANDARD] = 1
    return opsets


def version_of(opsets: Mapping[str, int], domain: str) -> int:
    """The version of a domain that a graph imports, 1 where it does not say."""
    return opsets.get(domain, 1)


def show_opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{short(domain) or 'ai.onnx'} {version}" for domain, version in sorted(opsets.items()))
