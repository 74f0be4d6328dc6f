"""The tables: signatures are torch's, and rules name operators, operands and attributes that exist."""

from __future__ import annotations

import json
import re

import pytest

from irscope.frontends.torch_lowering.dtypes import C10_DTYPES, NAMED_DTYPES, SERIALIZED_DTYPES
from irscope.frontends.torch_lowering.signatures import overloads, resolve
from irscope.frontends.torch_lowering.table import TEMPLATES
from irscope.ops.registry import find_op
from tests.frontends.torch.signature_table import TABLE


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_fit_the_records(name: str) -> None:
    head, _, tail = TEMPLATES[name].partition(";")
    op, *operands = head.split()
    spec = find_op(op)
    assert spec is not None, op
    schema = spec.schema
    known = {param.name for param in (*schema.operands, *schema.attrs)} | {"inplace"}
    assert len(operands) <= len(schema.operands) or schema.is_variadic
    for attribute in tail.split():
        assert re.split("[=:]", attribute)[0] in known
    for operand in operands:
        assert "|" not in operand or operand.partition("|")[2] in known


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_fit_the_signatures(name: str) -> None:
    base, _, overload = name.partition(".")
    found = [signature for signature in overloads(base) or overloads(f"{base}_") if "." not in name or signature.overload == overload]
    assert found, f"no signature of {name}"
    head = TEMPLATES[name].partition(";")[0]
    operands = [part.partition("|")[0].rstrip("*") for part in head.split()[1:] if part != "_"]
    assert any(set(operands) <= {param.name for param in signature.params} for signature in found)


def test_overloads_by_kind_of_argument() -> None:
    found = resolve("size", (), {})
    assert found is None
    scalar = resolve("arange", (5,), {})
    assert scalar is not None
    assert (scalar[0].overload, scalar[1]["end"]) == ("", 5)


@pytest.mark.torch
def test_signatures_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.split("+")[0] != "2.13.0":
        pytest.skip("the table was made from torch 2.13.0")
    from tests.frontends.torch.signature_table import compact

    assert json.loads(TABLE.read_text(encoding="utf-8")) == compact()


@pytest.mark.torch
def test_element_types_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

    for dtype, code in _TORCH_TO_SERIALIZE_DTYPE.items():
        name = str(dtype).removeprefix("torch.")
        assert SERIALIZED_DTYPES.get(int(code)) is NAMED_DTYPES.get(name), name
    for name, ours in NAMED_DTYPES.items():
        if name.startswith(("q", "float8", "uint16", "uint32", "uint64")):
            continue
        graph = torch.jit.CompilationUnit(f"def f(x):\n  return x.to(torch.{name})\n").f.graph
        constants = [node for node in graph.findAllNodes("prim::Constant") if node.hasAttribute("value") and node.kindOf("value") == "i"]
        assert any(C10_DTYPES.get(node.i("value")) is ours for node in constants), name
