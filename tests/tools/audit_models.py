"""Makes a folder of many small models, varied, and among them some that are hostile, broken or huge by their header.

python -m tests.tools.audit_models FOLDER COUNT [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BAD_SHARE = 0.02


def perceptron(rng: random.Random) -> bytes:
    """Layers of products, with or without an open batch."""
    widths = [rng.choice((8, 16, 24, 32, 48, 64)) for _ in range(rng.randint(2, 7))]
    nodes, weights = [], []
    for at, (one, two) in enumerate(pairwise(widths)):
        weights.append(numpy_helper.from_array(np.full((one, two), 0.01 * at, np.float32), f"w{at}"))
        nodes.append(helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"m{at}"]))
        nodes.append(helper.make_node(rng.choice(("Relu", "Tanh", "Sigmoid", "Gelu")), [f"m{at}"], [f"x{at + 1}"]))
    batch = rng.choice(("batch", 1, 4, 16))
    return _model(nodes, weights, ("x0", [batch, widths[0]]), (f"x{len(widths) - 1}", [batch, widths[-1]]))


def convolutions(rng: random.Random) -> bytes:
    """Convolutions over a small picture, with a global mean and a product at the end."""
    channels = [3, *(rng.choice((4, 8, 12, 16)) for _ in range(rng.randint(1, 5)))]
    nodes, weights = [], []
    for at, (one, two) in enumerate(pairwise(channels)):
        weights.append(numpy_helper.from_array(np.zeros((two, one, 3, 3), np.float32), f"w{at}"))
        nodes.append(helper.make_node("Conv", [f"x{at}", f"w{at}"], [f"c{at}"], pads=[1, 1, 1, 1], strides=[rng.choice((1, 2))] * 2))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"x{at + 1}"]))
    last = len(channels) - 1
    nodes.append(helper.make_node("GlobalAveragePool", [f"x{last}"], ["y"]))
    side = rng.choice((16, 24, 32))
    return _model(nodes, weights, ("x0", [rng.choice((1, 2, "n")), 3, side, side]), ("y", None))


def attention(rng: random.Random) -> bytes:
    """One head of attention over an open sequence."""
    width = rng.choice((16, 32, 64))
    weights = [numpy_helper.from_array(np.zeros((width, width), np.float32), name) for name in ("wq", "wk", "wv")]
    nodes = [helper.make_node("MatMul", ["x0", weight.name], [weight.name[1:]]) for weight in weights]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    return _model(nodes, weights, ("x0", ["batch", "seq", width]), ("y", ["batch", "seq", width]))


def odd_operator(rng: random.Random) -> bytes:
    """A graph with an operator that nobody knows."""
    node = helper.make_node(rng.choice(("Swirl", "Twist")), ["x0"], ["y"], domain="org.example")
    return _model([node], [], ("x0", [1, rng.randint(2, 64)]), ("y", None), [helper.make_opsetid("org.example", 1)])


def _model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], given: tuple, made: tuple, opsets: list | None = None) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, given[1])],
        [helper.make_tensor_value_info(made[0], TensorProto.FLOAT, made[1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), *(opsets or [])], ir_version=10)
    return model.SerializeToString()


def checkpoint(rng: random.Random, *, size: int | None = None) -> bytes:
    """A safetensors file; with `size` only its header says that it is so large."""
    header, at = {}, 0
    for number in range(rng.randint(2, 9)):
        shape = [rng.randint(4, 64), rng.randint(4, 64)]
        count = shape[0] * shape[1] * 4
        header[f"layer.{number}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + count]}
        at += count
    if size is not None:
        header["huge.weight"] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


GOOD: tuple[tuple[str, Callable[[random.Random], bytes], int], ...] = (
    ("onnx", perceptron, 45),
    ("onnx", convolutions, 30),
    ("onnx", attention, 13),
    ("onnx", odd_operator, 2),
    ("safetensors", checkpoint, 10),
)


def _truncated(rng: random.Random) -> bytes:
    whole = convolutions(rng)
    return whole[: rng.randint(1, len(whole) - 1)]


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 4_000))


def _huge_shape(rng: random.Random) -> bytes:
    node = helper.make_node("ConstantOfShape", ["n"], ["y"])
    shape = numpy_helper.from_array(np.array([1 << 40, 1 << 20], np.int64), "n")
    return _model([node], [shape], ("x0", [1]), ("y", None))


def _outside(rng: random.Random) -> bytes:
    weight = numpy_helper.from_array(np.zeros((4, 4), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../" * rng.randint(1, 9) + "etc/passwd"
    return _model([helper.make_node("MatMul", ["x0", "w"], ["y"])], [weight], ("x0", [1, 4]), ("y", [1, 4]))


def _header_of_terabytes(rng: random.Random) -> bytes:
    return struct.pack("<Q", rng.choice((1 << 39, 1 << 62))) + b'{"a":1}'


def _doubling(rng: random.Random) -> bytes:
    """Each node joins its operand with itself: a size that doubles two hundred times."""
    nodes = [helper.make_node("Concat", [f"x{at}", f"x{at}"], [f"x{at + 1}"], axis=0) for at in range(200)]
    return _model(nodes, [], ("x0", [3]), ("x200", None))


BAD: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
    ("onnx", _truncated),
    ("onnx", _noise),
    ("pt", _noise),
    ("onnx", lambda rng: b""),
    ("onnx", _huge_shape),
    ("onnx", _outside),
    ("safetensors", _header_of_terabytes),
    ("onnx", _doubling),
)


def write_models(folder: Path, count: int, seed: int = 1) -> int:
    """Write models into sub-folders of 500; how many of them are bad."""
    rng = random.Random(seed)
    kinds = [one for *one, weight in GOOD for _ in range(weight)]
    bad = 0
    for number in range(count):
        below = folder / f"{number // 500:04}"
        if number % 500 == 0:
            below.mkdir(parents=True, exist_ok=True)
        is_bad = rng.random() < BAD_SHARE
        suffix, make = rng.choice(BAD) if is_bad else rng.choice(kinds)
        bad += is_bad
        path = below / f"{'bad' if is_bad else 'model'}{number:06}.{suffix}"
        if is_bad and rng.random() < 0.1:
            os.mkfifo(path)
            continue
        data = make(rng)
        if suffix == "onnx" and not is_bad:  # no two have the same content: the name of their producer is another one
            data += b"\x12" + bytes([len(str(number))]) + str(number).encode()
        path.write_bytes(data)
        if suffix == "safetensors" and not is_bad and rng.random() < 0.1:  # huge by its header: a file with a hole
            path.write_bytes(head := checkpoint(rng, size=40 << 30))
            os.truncate(path, len(head) + (40 << 30))
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    bad = write_models(args.folder, args.count, args.seed)
    print(f"{args.count:,} files in {args.folder}, {bad:,} of them bad")


if __name__ == "__main__":
    main()
