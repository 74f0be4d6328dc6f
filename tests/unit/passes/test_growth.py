"""What large graphs cost: like nodes are inferred once, columns are made where they are printed, and no pass is quadratic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.onnx_big import write_model
from irscope.frontends.base import LoadOptions
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Role
from irscope.ir.places import Literal
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.ops.spec import OpSpec
from irscope.passes.inference.engine import Inference
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext
from irscope.passkit.manager import Manager
from irscope.report.options import RenderOptions
from irscope.report.table import Cells, Column, Table
from irscope.report.text import table_lines
from irscope.session import Model, open_model


def _layers(count: int, rest: int | None = None) -> Program:
    """Layers that compute the shape of a reshape, as exporters write it, and add a bias that has its values in the graph."""
    graph = Graph()
    x = graph.add_input(tensor(DType.F32, (symbol("batch"), symbol("seq"), 16)), "x")
    zero = graph.add_weight(tensor(DType.I64, ()), "zero", Role.CONSTANT, Literal((0,)))
    unknown = tensor(DType.UNKNOWN, None)
    for layer in range(count):
        sizes = graph.add_weight(
            tensor(DType.I64, (2,)), f"sizes{layer}", Role.CONSTANT, Literal((-1, rest if layer == 1 and rest else 16))
        )
        y = graph.append("nn.relu", (x,), (unknown,), names=(f"relu{layer}",)).outputs[0]
        y = graph.append("view.reshape", (y, sizes), (unknown,), names=(f"flat{layer}",)).outputs[0]
        graph.append("tensor.nonzero", (y,), (unknown,), names=(f"found{layer}",))
        x = graph.append("math.add", (x, x), (unknown,), names=(f"sum{layer}",)).outputs[0]
    graph.set_outputs([x, zero])
    return Program(graph)


def _found(program: Program, keeps: bool) -> Inference:
    inference = Inference(program)
    inference.keeps_answers = keeps
    inference.run()
    return inference


@pytest.mark.parametrize("rest", [None, 8])
def test_like_nodes_have_like_results_and_are_inferred_once(rest: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _layers(20, rest)
    alone = _found(program, keeps=False).found
    calls = []
    plain = OpSpec.infer_types
    monkeypatch.setattr(OpSpec, "infer_types", lambda spec, call: calls.append(spec.name) or plain(spec, call))
    kept = _found(program, keeps=True).found
    # Unknown sizes are never shared: each nonzero has its own, as it has without.
    assert list(kept.types) == list(alone.types) and len(set(kept.types.values())) == len(set(alone.types.values()))
    assert {str(type_) for type_ in kept.types.values()} == {str(type_) for type_ in alone.types.values()}
    assert kept.reasons.keys() == alone.reasons.keys() and len(kept.reasons) == 20
    assert kept.values.keys() == alone.values.keys()
    assert all(np.array_equal(kept.values[value], alone.values[value]) for value in alone.values)
    assert calls.count("tensor.nonzero") == 20 and calls.count("math.add") == 1 and calls.count("nn.relu") == 1
    assert calls.count("view.reshape") == (1 if rest is None else 2)


def test_elements_that_no_rule_looks_at_do_not_tell_nodes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer adds a bias with values of its own, and reshapes to sizes of its own, which the rule of a reshape reads."""
    graph = Graph()
    x = graph.add_input(tensor(DType.F32, (symbol("batch"), 2)), "x")
    unknown = tensor(DType.UNKNOWN, None)
    for layer in range(12):
        bias = graph.add_weight(tensor(DType.F32, (2,)), f"bias{layer}", Role.PARAMETER, Literal((0.5, float(layer))))
        sizes = graph.add_weight(tensor(DType.I64, (2,)), f"sizes{layer}", Role.CONSTANT, Literal((-1, 1 + layer % 2)))
        graph.append("math.add", (x, bias), (unknown,))
        graph.append("view.reshape", (x, sizes), (unknown,))
        graph.append("math.add", (bias, bias), (unknown,))
    program = Program(graph)
    alone = _found(program, keeps=False).found
    calls = []
    plain = OpSpec.infer_types
    monkeypatch.setattr(OpSpec, "infer_types", lambda spec, call: calls.append(spec.name) or plain(spec, call))
    kept = _found(program, keeps=True).found
    assert kept.types == alone.types and kept.values.keys() == alone.values.keys()
    assert all(np.array_equal(kept.values[value], alone.values[value]) for value in alone.values)
    assert (calls.count("view.reshape"), calls.count("math.add")) == (2, 1 + 12)


def test_a_column_makes_only_the_cells_that_are_printed() -> None:
    made: list[int] = []
    table = Table(
        "many", (Column("name"), Column("size")), {"name": Cells(range(100_000), str), "size": Cells(range(100_000), made.append)}
    )
    assert len(table) == 100_000 and not made
    lines = list(table_lines(table.assumed(), RenderOptions()))
    assert any("99,980 more rows" in line for line in lines) and len(made) == 20
    assert list(table.first(2).data["name"]) == ["0", "1"] and table.data["name"][-1] == "99999"


def test_the_report_of_shapes_makes_no_cells_for_what_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(_layers(50))
    found = manager.get(Shapes())
    made: list[object] = []
    monkeypatch.setattr("irscope.passes.inference.shapes.shape_cell", lambda type_: made.append(type_) or ())
    report = Shapes().report(found, manager)
    assert len(report.table("values")) == 200 and not made


def _control_flow(path: Path) -> None:
    """A branch and a loop over an input with an open size, whose bodies read what is around them."""
    path.write_bytes(Path("samples/models/control_flow.onnx").read_bytes())


@pytest.mark.parametrize("write", [lambda path: write_model(path, 100), _control_flow])
def test_a_model_bound_from_memory_is_the_file_read_again(write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    write(path)  # type: ignore[operator]
    opened = open_model(path)
    sizes = dict.fromkeys(opened.program.symbols, 3)
    read = open_model(path, LoadOptions(bind=sizes))
    with monkeypatch.context() as patched:
        patched.setattr("irscope.session.load_program", None)
        bound = opened.rebound(sizes)
    assert print_program(bound.program) == print_program(read.program)
    assert bound.program.given == read.program.given and bound.program.symbols == read.program.symbols
    assert list(map(str, bound.program.declared.values())) == list(map(str, read.program.declared.values()))
    assert bound.options.bind == sizes and bound.diagnostics == read.diagnostics
    assert str(bound.run("flops,ort-memory")) == str(read.run("flops,ort-memory"))
    # Neither shares anything that a transform of the other changes.
    before = print_program(opened.program)
    bound.run("cleanup")
    assert print_program(opened.program) == before


def test_a_changed_model_is_read_again_when_it_is_bound(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx", 60)
    opened: Model = open_model(tmp_path / "model.onnx")
    opened.graph.rename(opened.graph.inputs[0], "renamed")
    assert not opened.is_as_read
    bound = opened.rebound({"batch": 2, "seq": 3})
    assert print_program(bound.program) == print_program(open_model(tmp_path / "model.onnx", bound.options).program)


@pytest.mark.parametrize("text", growth.passes())
def test_no_pass_is_quadratic(text: str) -> None:
    """Calls of functions are the same in every run: where those a node double from each size to the next, more than a logarithm grows."""
    for shape in growth.SHAPES:
        found = growth.ladder(text, shape, growth.SIZES_IN_SHORT)
        assert not growth.grows([work.calls for work in found]), (shape, found)


@pytest.mark.full
@pytest.mark.parametrize("text", growth.passes())
def test_no_pass_is_quadratic_over_large_graphs(text: str) -> None:
    """Also where a list is walked within one call, which only time shows: a busy machine may slow one size, but not each more often."""
    for shape in growth.SHAPES:
        found = growth.ladder(text, shape)
        assert not growth.grows([work.calls for work in found]), (shape, found)
        for _ in range(3):
            timed = growth.ladder(text, shape, counted=False)
            if not growth.grows([work.seconds for work in timed]):
                break
        else:
            raise AssertionError((shape, timed))


def test_a_quadratic_pass_is_found() -> None:
    class Pairs(Analysis[int]):
        """Look at each pair of nodes."""

        name = "pairs"

        def compute(self, graph: Graph, ctx: PassContext) -> int:
            return sum(len(node.inputs) for node in graph for other in graph if other is node)

    def work(size: int) -> float:
        return growth.measured(Pairs(), growth.chain(size), counted=True).calls

    assert growth.grows([work(size) for size in growth.SIZES_IN_SHORT])
    assert not growth.grows([100.0, 205.0, 300.0])
