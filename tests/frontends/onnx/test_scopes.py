"""Module calls and source lines of nodes."""

from __future__ import annotations

import pytest
from onnx import helper

from irscope.frontends.onnx.scopes import Locations, Scopes
from irscope.ir.places import root_scope
from tests.frontends.onnx.build import load, model

TRACE = """File "/models/llama.py", line 200, in forward
    hidden = self.layer(hidden)
  File "/models/llama.py", line 12, in forward
    return self.proj(x)
"""


@pytest.mark.parametrize(
    ("name", "op_type", "path"),
    [
        ("/layers.0/attn/q/MatMul", "MatMul", "layers.0/attn/q"),
        ("/MatMul_1", "MatMul", ""),
        ("MatMul_1", "MatMul", ""),
        ("a/b/op", "Relu", "a/b"),
        ("model.layers.0.Relu_3", "Relu", "model/layers/0"),
        ("v1.5", "Relu", ""),
        ("//x//y/Relu", "Relu", "x/y"),
        ("", "Relu", ""),
    ],
)
def test_scopes_from_names(name: str, op_type: str, path: str) -> None:
    assert Scopes(root_scope()).of_name(name, op_type).path == path


def test_hostile_names_make_few_scopes() -> None:
    scopes = Scopes(root_scope())
    assert scopes.of_name("a/" * 1000 + "Relu", "Relu").depth <= 48
    assert scopes.of_name("a/" * 1_000_000 + "Relu", "Relu") is scopes.root


def test_scopes_of_the_exporter() -> None:
    entries = {
        "pkg.torch.onnx.name_scopes": "['', 'model', 'model.layers.0', 'model.layers.0.attn', 'linear_3']",
        "pkg.torch.onnx.class_hierarchy": "['x.LlamaForCausalLM', 'x.LlamaModel', 'x.Layer', 'x.Attention', 'aten.linear.default']",
    }
    scopes = Scopes(root_scope())
    scope = scopes.of_metadata(entries)
    assert scope is not None
    assert (scope.path, scope.module, scope.cls) == ("model/layers.0/attn", "model.layers.0.attn", "Attention")
    assert scopes.root.cls == "LlamaForCausalLM"
    assert scopes.of_metadata(entries) is scope


def test_a_module_that_lives_elsewhere() -> None:
    scope = Scopes(root_scope()).of_metadata({"pkg.torch.onnx.name_scopes": "['', 'decoder', 'encoder.embed', 'gather']"})
    assert scope is not None
    assert (scope.path, scope.module) == ("decoder/=encoder.embed", "encoder.embed")


def test_namespace_of_the_exporter() -> None:
    scope = Scopes(root_scope()).of_metadata({"namespace": ": Net/layer1: torch.nn.Sequential/layer1.0: Conv2d/conv: aten.conv2d"})
    assert scope is not None
    assert (scope.path, scope.cls) == ("layer1/0", "Conv2d")


@pytest.mark.parametrize("text", ["", "no list", "[]", "['only']", "['', '']"])
def test_metadata_that_say_nothing(text: str) -> None:
    scopes = Scopes(root_scope())
    assert scopes.of_metadata({"pkg.torch.onnx.name_scopes": text}) is scopes.root


def test_stack_traces() -> None:
    loc = Locations().of_trace(TRACE)
    assert loc is not None
    assert (str(loc), loc.function, loc.statement) == ("/models/llama.py:12", "forward", "return self.proj(x)")
    assert str(loc.caller) == "/models/llama.py:200"


def test_stack_traces_of_the_older_exporter() -> None:
    loc = Locations().of_trace("/torch/activation.py(53): forward\n/torch/module.py(889): _call_impl\n/app/main.py(7): <module>\n")
    assert loc is not None
    assert (str(loc), str(loc.caller)) == ("/torch/activation.py:53", "/torch/module.py:889")


@pytest.mark.parametrize("text", ["", "nothing here", 'File "x", line 99999999999999, in f'])
def test_what_is_no_stack_trace(text: str) -> None:
    assert Locations().of_trace(text) is None


def test_nodes_carry_scope_and_line() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="whatever/else")
    for key, text in {"pkg.torch.onnx.name_scopes": "['', 'act', 'relu']", "pkg.torch.onnx.stack_trace": TRACE}.items():
        node.metadata_props.add(key=key, value=text)
    made = load(model([node])).graph.first
    assert made is not None
    assert (made.scope.path, str(made.loc), made.source) == ("act", "/models/llama.py:12", "onnx::Relu@14")
