"""Kernels of ONNX Runtime on the processor: products and convolutions of floats, of 8-bit integers and of packed weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from irscope.devices.profile import KERNELS, SESSION_CALL, SESSION_OPERATOR
from irscope.measure.calibrate.engine import Sample, Work, run_time

_ELEMENTS: Final = {"f32": np.float32, "u8": np.uint8, "i8": np.int8, "i32": np.int32}
_INTEGERS: Final = (("u8", "i8"), ("u8", "u8"), ("i8", "i8"))
"""Element types of the left and the right operand. MLAS has kernels of its own for the first two, and a slow one for a signed left side."""

_MAPS: Final = (1, 64, 56, 56)
_HEADS: Final = (1, 128, 12, 64)
_SCORES: Final = (12, 128, 128)

_IMAGES: Final = {
    "convolution": (128, 128, 28, 3, 1),
    "pointwise": (512, 512, 14, 1, 1),
    "depthwise": (144, 144, 56, 3, 144),
    "unfold": (3, 8, 112, 3, 1),
}
"""Channels in and out, side of the image, side of the kernel, groups."""
_ROWS, _SIDE = 128, 768  # a layer of a small transformer
_IN_ROW: Final = 4
"""Convolutions one after the other in a sample: what changes the layout before and after them counts for less."""
_CALLS: Final = ["Neg", "Abs"] * 32  # compute next to nothing, and the call of the session disappears among so many
_BLOCK: Final = 32  # elements for which MatMulNBits has one scale, as quantizers write it by default
_OPSET: Final = 17


class Sessions:
    """ONNX Runtime's processor provider, with so many threads."""

    def __init__(self, threads: int) -> None:
        self.options, self.plain = (ort.SessionOptions() for _ in range(2))
        """`plain` are those of sessions that leave images as they lie in the file."""
        for options in (self.options, self.plain):
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            options.log_severity_level = 4
        self.plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        self._clock = time.process_time if threads == 1 else time.perf_counter

    def seconds(self, work: Work, times: int) -> float:
        return run_time(work, times, self._clock)

    def kernels(self) -> Iterator[tuple[str, str, Callable[[], Sample]]]:
        """Yield kinds of kernels with the element types of their operands, and what measures one."""
        yield "product", "f32", self._product
        yield "product", "u4", self._few_bits
        for left, right in _INTEGERS:
            yield "product", left + right, lambda left=left, right=right: self._integer_product(left, right)  # type: ignore[misc]  # a default that binds the loop's variable
        for kind in KERNELS:
            yield kind, "f32", lambda kind=kind: self._convolution(kind)  # type: ignore[misc]
            for left, right in _INTEGERS:
                yield kind, left + right, lambda kind=kind, left=left, right=right: self._quantized(kind, left, right)  # type: ignore[misc]
        yield "plain_depthwise", "f32", lambda: self._image(_IMAGES["depthwise"], "Conv", "f32", "f32", "f32", {}, self.plain)
        # The filter is the left side of a ConvInteger, which unfolds the image into the right one.
        for kind, name in (("convolution", "unfolded"), ("depthwise", "unfolded_depthwise")):
            for left, right in _INTEGERS:
                yield name, left + right, lambda kind=kind, left=left, right=right: self._unfolded(kind, left, right)  # type: ignore[misc]

    def elements(self) -> Iterator[tuple[str, Callable[[], Sample]]]:
        """Yield kinds of kernels whose time goes by elements, and what measures one."""
        hidden = (_ROWS, _SIDE)
        scale = {"scale": np.float32(0.02), "zero": np.uint8(100)}
        norm = {"scale": np.ones(_SIDE, np.float32), "bias": np.ones(_SIDE, np.float32)}
        yield "elementwise", lambda: self._repeated(["Add"], "f32", _MAPS, "f32", {"other": _drawn("f32", _MAPS)})
        yield "functions", lambda: self._repeated(["Sigmoid", "Tanh", "Erf"], "f32", _MAPS, "f32")
        yield "softmax", lambda: self._repeated(["Softmax"], "f32", _SCORES, "f32")
        yield "normalization", lambda: self._repeated(["LayerNormalization"], "f32", hidden, "f32", norm)
        yield "quantize", lambda: self._repeated(["QuantizeLinear"], "f32", _MAPS, "u8", scale)
        yield "dequantize", lambda: self._repeated(["DequantizeLinear"], "u8", _MAPS, "f32", scale)
        yield "permute", lambda: self._repeated(["Transpose"], "f32", _HEADS, "f32", perm=[0, 2, 1, 3])
        yield "unfold", self._unfolding

    def _repeated(
        self, ops: Sequence[str], element: str, shape: tuple[int, ...], result: str, given: Mapping[str, Any] | None = None, **attrs: Any
    ) -> Sample:
        names = _in_a_row(len(ops))
        nodes = [helper.make_node(op, [names[place], *(given or ())], [names[place + 1]], **attrs) for place, op in enumerate(ops)]
        return self._sample(nodes, element, list(shape), result, given or {}, float(np.prod(shape)) * len(ops))

    def _unfolding(self) -> Sample:
        """Return a convolution of few channels, whose time is that of copying them together for each element of the filter."""
        given = self._scales("u8", "i8")
        sample = self._image(_IMAGES["unfold"], "QLinearConv", "u8", "i8", "u8", given)
        _, _, side, taps, _ = _IMAGES["unfold"]
        return Sample(sample.work, float(side**2 * taps**2))

    def overheads(self) -> dict[str, Sample]:
        """Return what measures calls of a session, and of the cheapest operators within one."""
        return {SESSION_CALL: self._repeated(["Neg"], "f32", (1,), "f32"), SESSION_OPERATOR: self._repeated(_CALLS, "f32", (1,), "f32")}

    def _product(self) -> Sample:
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return self._sample([node], "f32", [_ROWS, _SIDE], "f32", {"w": _drawn("f32", (_SIDE, _SIDE))}, _PRODUCT)

    def _integer_product(self, left: str, right: str) -> Sample:
        node = helper.make_node("MatMulInteger", ["x", "w", "x_zero"], ["y"])
        given = {"w": _drawn(right, (_SIDE, _SIDE)), "x_zero": _drawn(left, ())}
        return self._sample([node], left, [_ROWS, _SIDE], "i32", given, _PRODUCT)

    def _few_bits(self) -> Sample:
        attrs: dict[str, Any] = {"K": _SIDE, "N": _SIDE, "bits": 4, "block_size": _BLOCK}
        node = helper.make_node("MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", **attrs)
        blocks = _SIDE // _BLOCK
        given = {"w": _drawn("u8", (_SIDE, blocks, _BLOCK // 2)), "scales": _drawn("f32", (_SIDE * blocks,))}
        return self._sample([node], "f32", [_ROWS, _SIDE], "f32", given, _PRODUCT)

    def _convolution(self, kind: str) -> Sample:
        return self._image(_IMAGES[kind], "Conv", "f32", "f32", "f32", {})

    def _unfolded(self, kind: str, left: str, right: str) -> Sample:
        return self._image(_IMAGES[kind], "ConvInteger", right, left, "i32", {"x_zero": _drawn(right, ())})

    def _quantized(self, kind: str, left: str, right: str) -> Sample:
        return self._image(_IMAGES[kind], "QLinearConv", left, right, left, self._scales(left, right))

    def _scales(self, left: str, right: str) -> dict[str, Any]:
        scale = np.float32(0.02)
        given = {"x_scale": scale, "x_zero": _drawn(left, ()), "w_scale": scale, "w_zero": np.zeros((), _ELEMENTS[right])}
        return {**given, "y_scale": scale, "y_zero": _drawn(left, ())}

    def _image(
        self,
        sizes: tuple[int, int, int, int, int],
        op: str,
        image: str,
        filters: str,
        result: str,
        given: dict[str, Any],
        options: ort.SessionOptions | None = None,
    ) -> Sample:
        channels, results, side, taps, groups = sizes
        weight = _drawn(filters, (results, channels // groups, taps, taps))
        names = ["x", "w", *given]
        if op == "QLinearConv":
            names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
        attrs: dict[str, Any] = {"pads": [taps // 2] * 4, "group": groups, "kernel_shape": [taps, taps]}
        count = _IN_ROW if image == result and channels == results else 1
        values = _in_a_row(count)
        nodes = [helper.make_node(op, [values[place], *names[1:]], [values[place + 1]], **attrs) for place in range(count)]
        amount = 2.0 * taps**2 * channels // groups * results * side**2 * count
        return self._sample(nodes, image, [1, channels, side, side], result, {"w": weight, **given}, amount, options)

    def _sample(
        self,
        nodes: Sequence[onnx.NodeProto],
        element: str,
        shape: list[int],
        result: str,
        given: Mapping[str, Any],
        amount: float,
        options: ort.SessionOptions | None = None,
    ) -> Sample:
        kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()]
        source, target = (
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(_ELEMENTS[dtype])), sizes)
            for name, dtype, sizes in (("x", element, shape), ("y", result, None))
        )
        graph = helper.make_graph(nodes, "kernel", [source], [target], kept)
        domains = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=8)
        session = ort.InferenceSession(model.SerializeToString(), options or self.options, providers=["CPUExecutionProvider"])
        feeds = {"x": _drawn(element, tuple(shape))}
        return Sample(lambda: session.run(None, feeds), amount)


_PRODUCT: Final = 2.0 * _ROWS * _SIDE * _SIDE


def _in_a_row(count: int) -> list[str]:
    """Return the names of what so many nodes hand on, from the input x to the result y."""
    return ["x", *(f"between{place}" for place in range(1, count)), "y"]


def _drawn(element: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return elements by chance: zeros would be faster where they are denormal, and slower nowhere."""
    drawn = np.random.default_rng(0).integers(1, 100, shape)
    return np.asarray(drawn, _ELEMENTS[element])
