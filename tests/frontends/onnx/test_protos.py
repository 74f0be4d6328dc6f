"""Reading a file takes two modules of onnx; whoever imports all of it afterwards gets the same ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from irscope.frontends.onnx import protos
{before}
import onnx
from onnx import checker, helper, shape_inference

assert onnx.ModelProto is protos.ModelProto and onnx.IR_VERSION == protos.IR_VERSION
assert onnx.defs.onnx_opset_version() == protos.onnx_opset_version() and onnx.__version__ == protos.onnx_version()
schema = protos.get_schema("HardSwish", 14, "")
assert protos.function_body(schema) == schema.function_body and schema.function_body.node
node = helper.make_node("Relu", ["x"], ["y"])
value = helper.make_tensor_value_info
float_ = protos.TensorProto.FLOAT
model = helper.make_model(helper.make_graph([node], "g", [value("x", float_, [1])], [value("y", float_, None)]))
checker.check_model(shape_inference.infer_shapes(model))
try:
    protos.get_schema("None", 1, "")
except onnx.defs.SchemaError:
    print("done")
"""


@pytest.mark.parametrize("before", ['assert "onnx" not in sys.modules', "import importlib; importlib.import_module('onnx.defs')"])
def test_all_of_onnx_can_be_imported_afterwards(before: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_all_of_onnx_may_be_there_already() -> None:
    done = subprocess.run([sys.executable, "-c", "import onnx\n" + PROGRAM.format(before="")], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
