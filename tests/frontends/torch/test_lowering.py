"""The tables: signatures are torch's, and rules name operators, operands and attributes that exist."""

from __future__ import annotations

import json

import pytest

from irscope.frontends.templates import parse_template
from irscope.frontends.torch_lowering.dtypes import C10_DTYPES, NAMED_DTYPES, SERIALIZED_DTYPES
from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, from_template
from irscope.frontends.torch_lowering.signatures import complete, overloads, parse_signature, resolve
from irscope.frontends.torch_lowering.table import TEMPLATES
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph
from irscope.ir.types import tensor
from irscope.ops.registry import find_op
from tests.tables import every
from tests.tools.torch_files.signature_table import TABLE


@every("name", TEMPLATES)
def test_templates_fit_the_records(name: str) -> None:
    template = parse_template(TEMPLATES[name])
    spec = find_op(template.op)
    assert spec is not None, template.op
    schema = spec.schema
    known = {param.name for param in (*schema.operands, *schema.attrs)} | {"inplace"}
    assert len(template.operands) <= len(schema.operands) or schema.is_variadic
    assert {attribute.ours for attribute in template.attributes} <= known
    for operand in template.operands:
        assert "|" not in operand or operand.partition("|")[2] in known


@every("name", TEMPLATES)
def test_templates_fit_the_signatures(name: str) -> None:
    base, _, overload = name.partition(".")
    both = (*overloads(base), *overloads(f"{base}_"))
    signatures = [signature for signature in both if "." not in name or signature.overload == overload]
    assert signatures, f"no signature of {name}"
    operands = [part.partition("|")[0].rstrip("*?").split("/") for part in parse_template(TEMPLATES[name]).operands if part != "_"]
    known = [{param.name for param in signature.params} for signature in signatures]
    assert any(all(any(name in one for name in names) for names in operands) for one in known)


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
    from tests.tools.torch_files.signature_table import compact

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


def test_what_templates_say_besides_names() -> None:
    graph = Graph()
    x, y = (graph.add_input(tensor(DType.F32, (2, 3)), name) for name in "xy")
    signature = parse_signature("f", "(Tensor self, Tensor? mask=None, int mode=1, bool fast=False, int h=2, int w=3, int? n=None)")
    rule = from_template("op input/self mask? ; kind=mode{no,mean} way=fast{slow,quick} size=(h,w) n=n?7")
    plain = rule(AtenCall(signature, complete(signature, {"self": x})))
    assert (plain.inputs, plain.attrs) == ([x], {"kind": "mean", "way": "slow", "size": (2, 3), "n": 7})
    given = rule(AtenCall(signature, complete(signature, {"self": x, "mask": y, "mode": 0, "fast": True, "n": 1})))
    assert (given.inputs, given.attrs) == ([x, y], {"kind": "no", "way": "quick", "size": (2, 3), "n": 1})
    for mode in (2, -1, symbol("n")):
        with pytest.raises(CannotLower):
            rule(AtenCall(signature, complete(signature, {"self": x, "mode": mode})))
