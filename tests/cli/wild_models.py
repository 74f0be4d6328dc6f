"""Models like those that people install, each with something that its file leaves open: detectors, speech, text, loops, lists, strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.build import BOOL, FLOAT, INT64, graph, model, value

STRING = TensorProto.STRING


def _node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, ["" if name == "_" else name for name in inputs.split()], outputs.split(), **attributes)


def _ints(**named: Sequence[int] | int) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.array(numbers, np.int64), name) for name, numbers in named.items()]


def _floats(**named: object) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.array(numbers, np.float32), name) for name, numbers in named.items()]


def _made(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], *weights: onnx.TensorProto, **more: object) -> onnx.ModelProto:
    return model(nodes, inputs, initializers=list(weights), **more)


BACKBONE = [_node("Conv", "image kernel", "features", pads=[1, 1, 1, 1]), _node("Relu", "features", "active")]
KERNEL = _floats(kernel=np.zeros((4, 3, 3, 3)))


def detector_nonzero() -> onnx.ModelProto:
    """Scores above a threshold are kept."""
    nodes = [*BACKBONE, _node("Greater", "active half", "hot"), _node("NonZero", "hot", "places"), _node("Transpose", "places", "rows")]
    return _made([*nodes, _node("GatherND", "active rows", "y")], [value("image", [1, 3, 16, 16])], *KERNEL, *_floats(half=0.5))


def detector_nms() -> onnx.ModelProto:
    """Boxes are suppressed, as many as a constant says are left."""
    nodes = [
        _node("NonMaxSuppression", "boxes scores most", "chosen"),
        _node("Slice", "chosen two end axis", "place"),
        _node("Squeeze", "place axis", "flat"),
        _node("Gather", "boxes flat", "y", axis=1),
    ]
    inputs = [value("boxes", [1, 50, 4]), value("scores", [1, 3, 50])]
    return _made(nodes, inputs, *_ints(most=[5], two=[2], end=[3], axis=[1]))


def detector_topk() -> onnx.ModelProto:
    """As many candidates as there are, up to a limit."""
    nodes = [
        _node("Shape", "scores", "s"),
        _node("Gather", "s one", "count", axis=0),
        _node("Min", "count limit", "k"),
        _node("TopK", "scores k", "y places"),
    ]
    return _made(nodes, [value("scores", [1, "candidates"])], *_ints(one=[1], limit=[100]))


def detector_compress() -> onnx.ModelProto:
    """Boxes whose scores pass."""
    nodes = [_node("Greater", "scores half", "keep"), _node("Compress", "boxes keep", "y", axis=0)]
    return _made(nodes, [value("boxes", [100, 4]), value("scores", [100])], *_floats(half=0.5))


def detector_threshold_input() -> onnx.ModelProto:
    """How many are kept is an input."""
    return _made([_node("TopK", "scores k", "best places"), _node("Relu", "best", "y")], [value("scores", [1, 80]), value("k", [1], INT64)])


def yolo_grid() -> onnx.ModelProto:
    """Centres of cells by floats."""
    nodes = [
        *BACKBONE,
        _node("Shape", "active", "s"),
        _node("Gather", "s two", "rows", axis=0),
        _node("Cast", "rows", "real", to=FLOAT),
        _node("Mul", "real third", "scaled"),
        _node("Range", "zero scaled one", "y"),
    ]
    return _made(nodes, [value("image", [1, 3, "height", "width"])], *KERNEL, *_ints(two=2), *_floats(third=0.3, zero=0.0, one=1.0))


def resize_by_input() -> onnx.ModelProto:
    """The size of the mask is an input."""
    return _made([_node("Resize", "image _ _ sizes", "y", mode="nearest")], [value("image", [1, 3, 8, 8]), value("sizes", [4], INT64)])


def text_mask() -> onnx.ModelProto:
    """Words that are not padding."""
    nodes = [_node("NonZero", "mask", "places"), _node("Squeeze", "places first", "flat"), _node("Gather", "hidden flat", "y", axis=0)]
    return _made(nodes, [value("mask", [32], INT64), value("hidden", [32, 8])], *_ints(first=[0]))


def stated_in_part() -> onnx.ModelProto:
    """Names stand where the file could state sizes, so that a session reuses less."""
    nodes = [_node("Shape", "x", "s"), _node("Expand", "row s", "wide"), _node("Add", "wide x", "sum"), _node("Exp", "sum", "y")]
    made = _made(nodes, [value("x", [8, 64])], *_floats(row=np.zeros((1, 64))))
    made.graph.value_info.append(value("wide", ["unk__0", "unk__1"]))
    return made


def text_unique() -> onnx.ModelProto:
    """Each word once."""
    nodes = [_node("Unique", "ids", "words"), _node("Gather", "table words", "y", axis=0)]
    return _made(nodes, [value("ids", [20], INT64)], *_floats(table=np.zeros((50, 4))))


def text_axes() -> onnx.ModelProto:
    """Which axis is summed is an input."""
    return _made([_node("ReduceSum", "x axes", "y", keepdims=0)], [value("x", [2, 3, 4]), value("axes", [1], INT64)])


def text_length() -> onnx.ModelProto:
    """Padded to a length that is an input."""
    nodes = [_node("Range", "zero length one", "places"), _node("Cast", "places", "y", to=FLOAT)]
    return _made(nodes, [value("length", [], INT64)], *_ints(zero=0, one=1))


def text_slices() -> onnx.ModelProto:
    """A window from one input to another."""
    return _made([_node("Slice", "x start end", "y")], [value("x", [100, 4]), value("start", [1], INT64), value("end", [1], INT64)])


def text_split_strings() -> onnx.ModelProto:
    """Words of a line: strings."""
    return _made([_node("StringSplit", "lines", "y counts", delimiter=" ")], [value("lines", [4], STRING)], opset=20)


def text_rankless() -> onnx.ModelProto:
    """An input of which only the type is told."""
    proto = _made([_node("Relu", "x", "a"), _node("Softmax", "a", "y")], [value("x", [1])])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    return proto


def _rates(nodes: list[onnx.NodeProto], condition: str, *inputs: onnx.ValueInfoProto, **weights: int) -> onnx.ModelProto:
    """Two branches with windows of two sizes."""
    one = graph([_node("Slice", "sound zero wide", "a")], outputs=["a"])
    two = graph([_node("Slice", "sound zero narrow", "b")], outputs=["b"])
    made = [*nodes, _node("If", condition, "window", then_branch=one, else_branch=two), _node("Relu", "window", "y")]
    return _made(made, [value("sound", [600]), *inputs], *_ints(zero=[0], wide=[512], narrow=[256], **weights))


def vad_rate() -> onnx.ModelProto:
    """The sampling rate decides the branch."""
    return _rates([_node("Equal", "sr fast", "is_fast")], "is_fast", value("sr", [], INT64), fast=16000)


def vad_two_rates() -> onnx.ModelProto:
    """Two rates are allowed."""
    nodes = [_node("Equal", "sr fast", "a"), _node("Less", "sr slow", "b"), _node("Not", "b", "c"), _node("Or", "a c", "either")]
    return _rates(nodes, "either", value("sr", [], INT64), fast=16000, slow=8000)


def vad_arithmetic() -> onnx.ModelProto:
    """The rate is divided before it is compared."""
    nodes = [
        _node("Cast", "sr", "real", to=FLOAT),
        _node("Cast", "thousand", "under", to=FLOAT),
        _node("Div", "real under", "kilo"),
        _node("Cast", "kilo", "whole", to=INT64),
        _node("GreaterOrEqual", "whole sixteen", "is_fast"),
    ]
    return _rates(nodes, "is_fast", value("sr", [], INT64), thousand=1000, sixteen=16)


def vad_flag() -> onnx.ModelProto:
    """A truth value that is an input."""
    return _rates([], "use_cache", value("use_cache", [], BOOL))


def vad_from_sound() -> onnx.ModelProto:
    """What is heard decides the branch."""
    nodes = [_node("ReduceMax", "sound", "peak", keepdims=0), _node("Cast", "peak", "loud", to=BOOL)]
    return _rates(nodes, "loud")


def vad_squeeze() -> onnx.ModelProto:
    """An axis goes where it is 1, as exporters write `squeeze`."""
    one = graph([_node("Squeeze", "x second", "a")], outputs=["a"])
    two = graph([_node("Identity", "x", "b")], outputs=["b"])
    nodes = [
        _node("Shape", "x", "s"),
        _node("Gather", "s second", "size", axis=0),
        _node("Equal", "size second", "is_one"),
        _node("If", "is_one", "z", then_branch=one, else_branch=two),
        _node("Relu", "z", "y"),
    ]
    return _made(nodes, [value("x", [4, "channels", 6])], *_ints(second=[1]))


def speech_reshape() -> onnx.ModelProto:
    """Frames of a window; only some lengths fit."""
    nodes = [_node("Conv", "sound window", "frames", strides=[16]), _node("Squeeze", "frames", "y")]
    return _made(nodes, [value("sound", [1, 1, "samples"])], *_floats(window=np.zeros((8, 1, 400))))


STEP = [value("i", [], INT64), value("go", [], BOOL), value("state", [4])]


def loop_trips() -> onnx.ModelProto:
    """As many steps as an input says."""
    body = graph(
        [_node("Identity", "go", "on"), _node("Relu", "state", "next"), _node("Identity", "next", "row")], STEP, ["on", "next", "row"]
    )
    return _made(
        [_node("Loop", "trips _ x", "last rows", body=body), _node("Relu", "rows", "y")], [value("trips", [], INT64), value("x", [4])]
    )


def loop_while() -> onnx.ModelProto:
    """Until the data says stop."""
    nodes = [_node("ReduceSum", "state", "sum", keepdims=0), _node("Cast", "sum", "on", to=BOOL), _node("Relu", "state", "next")]
    body = graph([*nodes, _node("Identity", "next", "row")], STEP, ["on", "next", "row"])
    return _made([_node("Loop", "most yes x", "last rows", body=body), _node("Relu", "rows", "y")], [value("x", [4])], *_ints(most=20), YES)


YES = helper.make_tensor("yes", BOOL, [], [True])


def loop_growing() -> onnx.ModelProto:
    """A state that grows at each step, as a decoder's cache does."""
    body = graph([_node("Identity", "go", "on"), _node("Concat", "state x", "next", axis=0)], STEP, ["on", "next"])
    return _made([_node("Loop", "trips _ x", "last", body=body), _node("Relu", "last", "y")], [value("trips", [], INT64), value("x", [4])])


def scan_frames() -> onnx.ModelProto:
    """A scan over frames that were chosen by the data."""
    body = graph(
        [_node("Add", "state row", "next"), _node("Identity", "next", "made")], [value("state", [4]), value("row", [4])], ["next", "made"]
    )
    nodes = [
        _node("Compress", "frames keep", "chosen", axis=0),
        _node("Scan", "first chosen", "last rows", body=body, num_scan_inputs=1),
        _node("Relu", "rows", "y"),
    ]
    return _made(nodes, [value("frames", [30, 4]), value("keep", [30], BOOL), value("first", [4])])


def sequence_split() -> onnx.ModelProto:
    """A list of parts, of which an input picks one."""
    nodes = [_node("SplitToSequence", "x sizes", "parts", axis=0), _node("SequenceAt", "parts place", "part"), _node("Relu", "part", "y")]
    return _made(nodes, [value("x", [10, 4]), value("place", [], INT64)], *_ints(sizes=[3, 7]))


def sequence_length() -> onnx.ModelProto:
    """The length of a list of parts of an open axis."""
    nodes = [
        _node("SplitToSequence", "x _", "parts", axis=0, keepdims=1),
        _node("SequenceLength", "parts", "n"),
        _node("Range", "zero n one", "y"),
    ]
    return _made(nodes, [value("x", ["rows", 4])], *_ints(zero=0, one=1))


def one_hot_depth() -> onnx.ModelProto:
    """The number of classes is an input."""
    return _made([_node("OneHot", "ids depth values", "y")], [value("ids", [5], INT64), value("depth", [], INT64)], *_floats(values=[0, 1]))


def tile_repeats() -> onnx.ModelProto:
    """Beams: how often rows are repeated is an input."""
    return _made([_node("Tile", "x repeats", "y")], [value("x", [2, 3]), value("repeats", [2], INT64)])


def two_causes() -> onnx.ModelProto:
    """Non-zeros of a part whose length is an input: after one cause the next shows."""
    nodes = [_node("Slice", "x zero end", "part"), _node("NonZero", "part", "places"), _node("Cast", "places", "y", to=FLOAT)]
    return _made(nodes, [value("x", [40]), value("end", [1], INT64)], *_ints(zero=[0]))


def custom_operator() -> onnx.ModelProto:
    """An operator of somebody's package, which declares nothing."""
    made = helper.make_node("Whiten", ["x"], ["a"], domain="acme.audio")
    proto = _made([made, _node("Relu", "a", "y")], [value("x", [4])])
    proto.opset_import.append(helper.make_opsetid("acme.audio", 1))
    return proto


def unknown_operator() -> onnx.ModelProto:
    """An operator that a later version may have."""
    return _made([_node("Relu", "x", "z"), _node("HyperSoftmax", "z", "a"), _node("Relu", "a", "y")], [value("x", [4])])


MODELS: Sequence[Callable[[], onnx.ModelProto]] = (
    detector_nonzero,
    detector_nms,
    detector_topk,
    detector_compress,
    detector_threshold_input,
    yolo_grid,
    resize_by_input,
    text_mask,
    text_unique,
    text_axes,
    text_length,
    text_slices,
    text_split_strings,
    text_rankless,
    vad_rate,
    vad_two_rates,
    vad_arithmetic,
    vad_flag,
    vad_from_sound,
    vad_squeeze,
    speech_reshape,
    loop_trips,
    loop_while,
    loop_growing,
    scan_frames,
    sequence_split,
    sequence_length,
    one_hot_depth,
    tile_repeats,
    two_causes,
    custom_operator,
    unknown_operator,
)
