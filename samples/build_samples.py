"""Builds the sample models into samples/models: `python samples/build_samples.py [FOLDER]`.

The ONNX models need only the onnx package; where torch is installed, a TorchScript and a torch.export model are added.
All weights are random and small.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save
from onnx.onnx_ml_pb2 import GraphProto, ModelProto, NodeProto

OPSET = 17
RANDOM = np.random.default_rng(0)


def weight(name: str, *shape: int) -> TensorProto:
    """A random weight."""
    return numpy_helper.from_array((RANDOM.standard_normal(shape) * 0.05).astype(np.float32), name)


def integers(name: str, *values: int) -> TensorProto:
    """A small vector of integers, as shape arithmetic uses."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(graph: GraphProto) -> ModelProto:
    """A checked model around a graph."""
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9, producer_name="irscope samples")
    checker.check_model(made)
    return made


def tensor(name: str, dtype: int, *shape: int | str) -> object:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, dtype, list(shape))


def node(op: str, inputs: str, output: str, **attrs: object) -> NodeProto:
    """A node that is named like its first output; inputs and outputs are separated by spaces."""
    outputs = output.split()
    return helper.make_node(op, inputs.split(), outputs, name=outputs[0], **attrs)


def cnn() -> ModelProto:
    """A small residual network for images."""
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def conv(source: str, name: str, channels_in: int, channels: int, stride: int = 1, size: int = 3) -> str:
        weights.extend([weight(f"{name}.weight", channels, channels_in, size, size), weight(f"{name}.bias", channels)])
        pad = size // 2
        nodes.append(
            node(
                "Conv",
                f"{source} {name}.weight {name}.bias",
                f"/{name}/Conv",
                kernel_shape=[size, size],
                strides=[stride, stride],
                pads=[pad] * 4,
            )
        )
        return f"/{name}/Conv"

    nodes.append(node("Relu", conv("image", "stem", 3, 32, stride=2, size=7), "/stem/Relu"))
    nodes.append(node("MaxPool", "/stem/Relu", "/stem/MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    x, channels = "/stem/MaxPool", 32
    for index, width in enumerate((32, 64, 128)):
        stride = 1 if width == channels else 2
        block = f"layer{index}"
        nodes.append(node("Relu", conv(x, f"{block}/conv1", channels, width, stride), f"/{block}/Relu"))
        main = conv(f"/{block}/Relu", f"{block}/conv2", width, width)
        side = x if stride == 1 else conv(x, f"{block}/downsample", channels, width, stride, 1)
        nodes.append(node("Add", f"{main} {side}", f"/{block}/Add"))
        nodes.append(node("Relu", f"/{block}/Add", f"/{block}/out"))
        x, channels = f"/{block}/out", width
    weights.extend([weight("head.weight", 10, channels), weight("head.bias", 10)])
    nodes += [
        node("GlobalAveragePool", x, "/head/pool"),
        node("Flatten", "/head/pool", "/head/flat"),
        node("Gemm", "/head/flat head.weight head.bias", "scores", transB=1),
    ]
    image, scores = tensor("image", TensorProto.FLOAT, "batch", 3, 224, 224), tensor("scores", TensorProto.FLOAT, "batch", 10)
    return model(helper.make_graph(nodes, "cnn", [image], [scores], weights))


def transformer(hidden: int = 128, heads: int = 4) -> ModelProto:
    """One transformer block over tokens, with the shape arithmetic that exporters write."""
    weights = [weight("embed.weight", 1000, hidden), integers("axis0", 0), integers("heads", heads), integers("size", hidden // heads)]
    weights += [
        integers("hidden", hidden),
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array(1, np.int64), "one"),
    ]
    weights += [numpy_helper.from_array(np.array(float(hidden // heads) ** 0.5, np.float32), "scale")]
    for name in ("norm1", "norm2"):
        weights += [weight(f"{name}.weight", hidden), weight(f"{name}.bias", hidden)]
    for name, columns, rows in (("q", hidden, hidden), ("k", hidden, hidden), ("v", hidden, hidden), ("o", hidden, hidden)):
        weights.append(weight(f"attn.{name}.weight", rows, columns))
    weights += [weight("mlp.up.weight", hidden, 4 * hidden), weight("mlp.down.weight", 4 * hidden, hidden)]
    nodes = [
        node("Gather", "embed.weight tokens", "/embed/out"),
        node("LayerNormalization", "/embed/out norm1.weight norm1.bias", "/norm1/out"),
        node("Shape", "/embed/out", "/attn/shape"),
        node("Gather", "/attn/shape zero", "/attn/batch"),
        node("Gather", "/attn/shape one", "/attn/length"),
        node("Unsqueeze", "/attn/batch axis0", "/attn/batch1"),
        node("Unsqueeze", "/attn/length axis0", "/attn/length1"),
        node("Concat", "/attn/batch1 /attn/length1 heads size", "/attn/split", axis=0),
        node("Concat", "/attn/batch1 /attn/length1 hidden", "/attn/merge", axis=0),
    ]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", f"/norm1/out attn.{name}.weight", f"/attn/{name}/out"),
            node("Reshape", f"/attn/{name}/out /attn/split", f"/attn/{name}/heads"),
            node("Transpose", f"/attn/{name}/heads", f"/attn/{name}/T", perm=order),
        ]
    nodes += [
        node("MatMul", "/attn/q/T /attn/k/T", "/attn/scores"),
        node("Div", "/attn/scores scale", "/attn/scaled"),
        node("Softmax", "/attn/scaled", "/attn/weights", axis=-1),
        node("MatMul", "/attn/weights /attn/v/T", "/attn/mixed"),
        node("Transpose", "/attn/mixed", "/attn/back", perm=[0, 2, 1, 3]),
        node("Reshape", "/attn/back /attn/merge", "/attn/merged"),
        node("MatMul", "/attn/merged attn.o.weight", "/attn/o/out"),
        node("Add", "/embed/out /attn/o/out", "/residual1"),
        node("LayerNormalization", "/residual1 norm2.weight norm2.bias", "/norm2/out"),
        node("MatMul", "/norm2/out mlp.up.weight", "/mlp/up/out"),
        node("Relu", "/mlp/up/out", "/mlp/act"),
        node("MatMul", "/mlp/act mlp.down.weight", "/mlp/down/out"),
        node("Add", "/residual1 /mlp/down/out", "features"),
    ]
    tokens = tensor("tokens", TensorProto.INT64, "batch", "length")
    features = tensor("features", TensorProto.FLOAT, "batch", "length", hidden)
    return model(helper.make_graph(nodes, "transformer", [tokens], [features], weights))


def lstm(hidden: int = 64) -> ModelProto:
    """A bidirectional LSTM over a sequence."""
    weights = [weight("lstm.W", 2, 4 * hidden, 32), weight("lstm.R", 2, 4 * hidden, hidden), weight("lstm.B", 2, 8 * hidden)]
    nodes = [node("LSTM", "x lstm.W lstm.R lstm.B", "y y_h y_c", hidden_size=hidden, direction="bidirectional")]
    x = tensor("x", TensorProto.FLOAT, "length", "batch", 32)
    outputs = [tensor("y", TensorProto.FLOAT, "length", 2, "batch", hidden), tensor("y_h", TensorProto.FLOAT, 2, "batch", hidden)]
    return model(helper.make_graph(nodes, "lstm", [x], outputs, weights))


def control_flow() -> ModelProto:
    """An `If` whose branches disagree in shape, and a `Loop` that scans."""
    then_branch = helper.make_graph([node("Relu", "x", "then_out")], "then", [], [tensor("then_out", TensorProto.FLOAT, "n", 8)])
    else_branch = helper.make_graph(
        [node("Concat", "x x", "else_out", axis=0)], "else", [], [tensor("else_out", TensorProto.FLOAT, None, 8)]
    )
    body = helper.make_graph(
        [
            node("Add", "state state", "next_state"),
            node("ReduceSum", "next_state", "step_sum", keepdims=0),
            node("Identity", "going_on", "still_going"),
        ],
        "body",
        [tensor("step", TensorProto.INT64), tensor("going_on", TensorProto.BOOL), tensor("state", TensorProto.FLOAT, "m", 8)],
        [tensor("still_going", TensorProto.BOOL), tensor("next_state", TensorProto.FLOAT, "m", 8), tensor("step_sum", TensorProto.FLOAT)],
    )
    nodes = [
        node("If", "flag", "chosen", then_branch=then_branch, else_branch=else_branch),
        node("Loop", "trips yes chosen", "final sums", body=body),
    ]
    weights = [numpy_helper.from_array(np.array(5, np.int64), "trips"), numpy_helper.from_array(np.array(True), "yes")]
    inputs = [tensor("flag", TensorProto.BOOL), tensor("x", TensorProto.FLOAT, "n", 8)]
    outputs = [tensor("final", TensorProto.FLOAT, None, 8), tensor("sums", TensorProto.FLOAT, 5)]
    return model(helper.make_graph(nodes, "control_flow", inputs, outputs, weights))


def torch_models(folder: Path) -> list[Path]:
    """The same small network as a torch.export and as a TorchScript file."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(width, width, 3, padding=1)
            self.norm1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.relu(self.norm1(self.conv1(x)))
            return self.relu(self.conv2(y) + x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 7, stride=2, padding=3)
            self.blocks = nn.Sequential(Block(32), Block(32))
            self.head = nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features = self.blocks(self.stem(x))
            return self.head(features.mean((2, 3)))

    torch.manual_seed(0)
    net, image = Net().eval(), torch.randn(2, 3, 64, 64)
    with warnings.catch_warnings():
        # TorchScript warns that torch.export is its successor; irscope reads both.
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (image,)), folder / "net.pt2")
        torch.jit.trace(net, image).save(str(folder / "net.pt"))
    return [folder / "net.pt2", folder / "net.pt"]


def main() -> None:
    """Write every sample and say so."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "models"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for make in (cnn, transformer, lstm, control_flow):
        path = folder / f"{make.__name__}.onnx"
        save(make(), path)
        written.append(path)
    if importlib.util.find_spec("torch") is not None:
        written += torch_models(folder)
    for path in written:
        print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
