"""Level 3: convolutions and what stands around them in blocks of channels (NCHWc), and those of 8-bit integers with channels last.

It follows the transformer of onnxruntime 1.31, except for one thing that is left to chance there: it inserts the reorders back in the order
of a hash map of addresses, which changes from session to session. Here they come in the order in which their values were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from irscope.frontends.onnx.optimizer.graph import (
    CPU,
    MICROSOFT,
    OrtGraph,
    OrtNode,
    Session,
    Size,
    other_operand,
    static_weight,
    transformer,
)
from irscope.frontends.onnx.optimizer.transposes import optimise_within, transpose_input, transpose_output
from irscope.frontends.onnx.types import AttrValue
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor

BLOCKED: Final = "com.microsoft.nchwc"
_ALIGNED: Final = 4
"""Channels of an image that reorders can read are a multiple of this."""
_FUSED: Final = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid"})
"""Activations that go into a convolution that has taken in a sum."""
_ELEMENTWISE: Final = _FUSED | {"Gelu", "QuickGelu"}
"""Activations that run on blocks."""
_POOLS: Final = frozenset({"MaxPool", "AveragePool"})
_TO_LAST: Final = (0, 2, 3, 1)
_FROM_LAST: Final = (0, 3, 1, 2)

Origin: TypeAlias = tuple[str, int]
"""Where a size comes from: the value that had it first, and how often it was halved since."""
Origins: TypeAlias = tuple[Origin, Origin, Origin, Origin]


@dataclass
class _Blocked:
    """A value of the file that there is in blocks now."""

    node: OrtNode
    """Node that makes it."""
    uses: int
    """Number of times that it was read or returned."""
    left: int
    """Number of these uses that still need it in its original layout."""
    channels: int
    origins: Origins

    @property
    def name(self) -> str:
        return self.node.outputs[0]


@transformer("NchwcTransformer")
def nchwc(graph: OrtGraph, session: Session) -> bool:
    changed = False
    if session.block <= 1:
        return False
    work = _Nchwc(graph, session.block)
    for node in graph.order():
        for body in node.bodies.values():
            changed |= nchwc(body, session)
        if node.provider == CPU and graph.nodes.get(node.index) is node:
            work.visit(node)
    return work.finish(session.reordered) or changed


def _origin(name: str) -> Origins:
    return ((name, 0), (name, 0), (name, 0), (name, 0))


class _Nchwc:
    def __init__(self, graph: OrtGraph, block: int) -> None:
        self.graph = graph
        self.block = block
        self.blocked: dict[str, _Blocked] = {}
        """By the name that the value had."""
        self.removed = 0
        self.reordered: dict[str, str] = {}
        """Values of the file that were reordered for a reader, and the blocks."""
        self.filters: dict[tuple[str, bool], str] = {}
        self.biases: dict[str, str] = {}
        self.split = ""
        self.unsplit = ""

    def visit(self, node: OrtNode) -> None:
        if (node.op == "Conv" and node.is_standard) or (node.op == "FusedConv" and node.domain == MICROSOFT):
            self._conv(node)
        elif node.op in _POOLS and node.is_standard:
            self._pool(node)
        elif not any(name and name not in self.blocked and self.graph.maker(name) is not None for name in node.inputs):
            # ONNX Runtime looks at others only where no node makes their operands any more, in the old layout.
            self._visit_other(node)

    def _visit_other(self, node: OrtNode) -> None:
        if node.op in _ELEMENTWISE:
            self._activation(node)
        visits: dict[str, Callable[[OrtNode], None]] = {
            "Add": self._binary,
            "Sum": self._binary,
            "Mul": self._mul,
            "Concat": self._concat,
            "BatchNormalization": self._batch_norm,
            "Transpose": self._transpose,
            "Resize": self._resize,
            "Upsample": self._resize,
            "GlobalMaxPool": self._pool,
            "GlobalAveragePool": self._pool,
        }
        if node.is_standard and node.op in visits:
            visits[node.op](node)

    def finish(self, order: Sequence[str]) -> bool:
        """Values that are still wanted as they were are reordered back: these first, where they are among them."""
        wanted = [name for name, one in self.blocked.items() if one.left > 0]
        place = {name: at for at, name in enumerate(order)}
        for name in sorted(wanted, key=lambda name: place.get(name, len(place))):
            self._back(self.blocked[name], name, last=0)
        return self.removed > 0

    def _round(self, channels: int) -> int:
        return -(-channels // self.block) * self.block

    def _uses(self, node: OrtNode) -> int:
        return self.graph.edge_count(node) + self.graph.makes_output(node)

    def _made(self, node: OrtNode, blocked: OrtNode, name: str, uses: int, channels: int, origins: Origins) -> None:
        """Note that `blocked`, which has the result of `node` under its old name, now makes it in blocks."""
        made = self.graph.new_name("reorder")
        self._type(made, self.graph.type_of(name), channels)
        self.graph.set_outputs(blocked, [made])
        self.blocked[name] = _Blocked(blocked, uses, uses, channels, origins)

    def _type(self, name: str, like: Type, channels: int) -> None:
        if isinstance(like, TensorType) and like.shape is not None and len(like.shape) == 4:
            shape = [self._round(channels) if axis == 1 else dim for axis, dim in enumerate(like.shape)]
            self.graph.types[name] = tensor(like.dtype, shape, like.device)

    def _replace(
        self, node: OrtNode, op: str, inputs: Sequence[str], attrs: dict[str, AttrValue], suffix: str = "_nchwc"
    ) -> tuple[OrtNode, int]:
        """Return a node of the blocked domain with the same result; and how often that was used."""
        uses, outputs = self._uses(node), list(node.outputs)
        name = self.graph.new_node_name(f"{outputs[0]}{suffix}")
        self.graph.remove_node(node)
        self.removed += 1
        return self.graph.add_node(op, inputs, outputs, attrs, BLOCKED, name, node.provider), uses

    def _back(self, blocked: _Blocked, name: str, last: int) -> OrtNode:
        attrs: dict[str, AttrValue] = {"channels": blocked.channels, "channels_last": last}
        return self.graph.add_node(
            "ReorderOutput", [blocked.name], [name], attrs, BLOCKED, self.graph.new_node_name("ReorderOutput"), blocked.node.provider
        )

    def _to_blocks(self, node: OrtNode, source: str) -> None:
        """Reorder the first operand of a blocked node, once for all its readers; a transpose to channels first is part of that."""
        if source not in self.reordered:
            made = self.graph.new_name("reorder")
            shape = self.graph.shape(source)
            channels = shape[1] if shape is not None and len(shape) == 4 else None
            self._type(made, self.graph.type_of(source), channels if isinstance(channels, int) else self.block)
            name, last, original = self.graph.new_node_name("ReorderInput"), 0, source
            before = self.graph.maker(source)
            if before is not None and before.op == "Transpose" and before.ints("perm") == _FROM_LAST and self._is_alone(before):
                last, original = 1, before.input(0)
                self.graph.set_input(node, 0, made)
                self.graph.remove_node(before)
            self.graph.add_node("ReorderInput", [original], [made], {"channels_last": last}, BLOCKED, name, node.provider)
            self.reordered[source] = made
        self.graph.set_input(node, 0, self.reordered[source])

    def _is_alone(self, node: OrtNode) -> bool:
        return not self.graph.makes_output(node) and self.graph.edge_count(node) == 1

    def _conv(self, node: OrtNode) -> None:
        weight = static_weight(self.graph, node.input(1), 4)
        if weight is None:
            return
        outputs, inputs = weight.shape[:2]
        form = self._form(outputs, inputs, int(node.attr("group", 1)))
        if form is None:
            return
        reorders, is_plain, whole = form
        if node.has_input(2):
            bias = static_weight(self.graph, node.input(2), 1)
            if bias is None or bias.shape[0] != outputs:
                return
        made = self._round(outputs)
        operands = list(node.inputs)
        operands[1] = self._filter(node.input(1), is_plain, (made, whole, *weight.shape[2:]))
        if node.has_input(2) and made != outputs:
            operands[2] = self._bias(node.input(2), made)
        result, source = node.outputs[0], node.input(0)
        attrs = dict(node.attrs)
        if inputs == 1 and outputs == int(node.attr("group", 1)) > 1:
            attrs["group"] = made
        blocked, uses = self._replace(node, "Conv", operands, attrs)
        origins = _origin(result)
        if reorders:
            before = self.blocked.get(source)
            if before is None:
                self._to_blocks(blocked, source)
            else:
                self.graph.set_input(blocked, 0, before.name)
                before.left -= 1
                origins = _follow(node, before.origins, origins, weight.shape[2:])
        self._made(node, blocked, result, uses, outputs, origins)

    def _form(self, outputs: int, inputs: int, groups: int) -> tuple[bool, bool, int] | None:
        """Return whether the image is reordered, whether the filter has no blocks of its inputs, and their number as padded."""
        if groups > 1:
            if inputs == 1 and outputs == groups:
                return None if outputs % _ALIGNED else (True, True, inputs)
            if outputs % self.block or inputs % self.block or outputs % groups or (outputs // groups) % self.block:
                return None
            return True, False, inputs
        if inputs < self.block:
            return False, True, inputs
        if inputs % _ALIGNED:
            return None
        return True, False, self._round(inputs)

    def _filter(self, name: str, is_plain: bool, shape: tuple[int, ...]) -> str:
        if (name, is_plain) not in self.filters:
            made = self.graph.new_name("reorder")
            self.filters[name, is_plain] = self.graph.add_weight(made, None, tensor(DType.F32, shape))
        return self.filters[name, is_plain]

    def _bias(self, name: str, channels: int) -> str:
        if name not in self.biases:
            self.biases[name] = self.graph.add_weight(self.graph.new_name("reorder"), None, tensor(DType.F32, (channels,)))
        return self.biases[name]

    def _pool(self, node: OrtNode) -> None:
        source, result = node.input(0), node.outputs[0]
        shape = self.graph.shape(source)
        if len(node.outputs) > 1 or self.graph.dtype(source) is not DType.F32 or shape is None or len(shape) != 4:
            return
        channels = shape[1]
        if not isinstance(channels, int) or channels % self.block:
            return
        blocked, uses = self._replace(node, node.op, node.inputs, dict(node.attrs))
        origins = _origin(result)
        before = self.blocked.get(source)
        if before is None:
            self._to_blocks(blocked, source)
        else:
            self.graph.set_input(blocked, 0, before.name)
            before.left -= 1
            window = node.ints("kernel_shape")
            if window is not None and len(window) == 2:
                origins = _follow(node, before.origins, origins, window)
        self._made(node, blocked, result, uses, channels, origins)

    def _keep(self, node: OrtNode, sources: Sequence[_Blocked], channels: int, origins: Origins) -> None:
        """Keep the node, which runs on blocks as it is."""
        uses, result = self._uses(node), node.outputs[0]
        self.graph.set_inputs(node, [blocked.name for blocked in sources])
        self._made(node, node, result, uses, channels, origins)

    def _take(self, node: OrtNode, into: _Blocked) -> None:
        """Note that the node became part of a convolution, which makes its result."""
        uses, result = self._uses(node), node.outputs[0]
        self.graph.remove_node(node)
        self.removed += 1
        self.blocked[result] = replace(into, uses=uses, left=uses)

    def _is_open(self, blocked: _Blocked, uses: int = 1) -> bool:
        """Return whether a convolution makes it that nothing else reads and that has no activation yet."""
        node = blocked.node
        return node.op == "Conv" and node.domain == BLOCKED and blocked.uses == uses and node.attr("activation") is None

    def _sources(self, node: OrtNode) -> list[_Blocked] | None:
        found = [self.blocked[name] for name in node.inputs if name in self.blocked]
        return found if found and len(found) == len(node.inputs) else None

    def _activation(self, node: OrtNode) -> None:
        before = self.blocked.get(node.input(0))
        if before is None or self._hard_swish(node, before):
            return
        before.left -= 1
        if node.op in _FUSED and self._is_open(before):
            before.node.attrs["activation"] = node.op
            if node.op == "HardSigmoid":
                before.node.attrs["activation_params"] = (node.attr("alpha", 0.2), node.attr("beta", 0.5))
            self._take(node, before)
        else:
            self._keep(node, [before], before.channels, before.origins)

    def _hard_swish(self, node: OrtNode, before: _Blocked) -> bool:
        """x * HardSigmoid(x) behind a convolution becomes its activation."""
        slope = np.float32(node.attr("alpha", 0.2))
        if node.op != "HardSigmoid" or not np.isclose(slope, 1 / 6) or node.attr("beta", 0.5) != 0.5:
            return False
        edges = self.graph.edges(node)
        if len(edges) != 1 or self.graph.makes_output(node) or not self._is_open(before, uses=2):
            return False
        mul = edges[0][0]
        if not mul.matches("Mul") or self.graph.makes_output(mul) or other_operand(mul, node.outputs[0]) != node.input(0):
            return False
        before.left -= 2
        before.node.attrs["activation"] = "HardSwish"
        self.graph.remove_node(node)
        self._take(mul, before)
        return True

    def _binary(self, node: OrtNode) -> None:
        sources = self._sources(node)
        if sources is None or any(source.channels != sources[0].channels for source in sources):
            return
        if not self._have_one_shape(node, sources):
            self._reshaped(node, sources)
            return
        for source in sources:
            source.left -= 1
        if len(sources) == 2:
            for source, other in (sources, sources[::-1]):
                if self._is_open(source) and len(source.node.inputs) < 4:
                    self.graph.set_input(source.node, 3, other.name)
                    self._take(node, source)
                    return
        self._keep(node, sources, sources[0].channels, sources[0].origins)

    def _have_one_shape(self, node: OrtNode, sources: Sequence[_Blocked]) -> bool:
        first = self._shape_of(node.input(0))
        for name, blocked in zip(node.inputs[1:], sources[1:], strict=True):
            shape = self._shape_of(name)
            for axis in range(4):
                if sources[0].origins[axis] != blocked.origins[axis] and (not first[axis] or first[axis] != shape[axis]):
                    return False
        return True

    def _shape_of(self, name: str) -> Sequence[Size]:
        """Return the sizes as ONNX Runtime knows them: those that windows leave have no names, unless the file says so."""
        shape = self.graph.shape(name) or (None,) * 4
        if name in self.graph.declared:
            return shape
        return [size if axis == 0 or isinstance(size, int) else None for axis, size in enumerate(shape)]

    def _reshaped(self, node: OrtNode, sources: Sequence[_Blocked]) -> None:
        """Convert a sum of images whose sizes may differ, with blocks as an axis of their own."""
        channels, provider = sources[0].channels, node.provider
        uses, result = self._uses(node), node.outputs[0]
        operands = []
        for blocked in sources:
            made = self.graph.new_name("reshape")
            self.split = self.split or self._shape((0, -1, 0, 0, self.block))
            self.graph.add_node("Reshape", [blocked.name, self.split], [made], name=self.graph.new_node_name("Reshape"), provider=provider)
            operands.append(made)
            blocked.left -= 1
        total = self.graph.new_name("reshape")
        self.graph.set_inputs(node, operands)
        self.graph.set_outputs(node, [total])
        self.unsplit = self.unsplit or self._shape((0, -1, 0, 0))
        name = self.graph.new_node_name("Reshape")
        reshape = self.graph.add_node("Reshape", [total, self.unsplit], [result], name=name, provider=provider)
        self._made(node, reshape, result, uses, channels, _origin(result))

    def _shape(self, sizes: tuple[int, ...]) -> str:
        return self.graph.add_weight(self.graph.new_name("Reshape"), np.array(sizes, np.int64))

    def _mul(self, node: OrtNode) -> None:
        sources = self._sources(node)
        if sources is None:
            self._scaled(node)
        elif all(source.channels == sources[0].channels for source in sources) and self._have_one_shape(node, sources):
            for source in sources:
                source.left -= 1
            self._keep(node, sources, sources[0].channels, sources[0].origins)

    def _scaled(self, node: OrtNode) -> None:
        """Convert a product with a constant for each channel into a convolution of each channel alone."""
        for place in (0, 1):
            before = self.blocked.get(node.input(place))
            weight = self.graph.constant(node.input(1 - place))
            if before is None or weight is None or weight.dtype is not DType.F32:
                continue
            if weight.shape not in ((before.channels, 1, 1), (1, before.channels, 1, 1)):
                continue
            self._depthwise(node, before, "_mul_nchwc", ("mul_scale",))
            return

    def _depthwise(self, node: OrtNode, before: _Blocked, suffix: str, weights: Sequence[str]) -> None:
        channels, result = self._round(before.channels), node.outputs[0]
        shapes = ((channels, 1, 1, 1), (channels,))
        names = [
            self.graph.add_weight(self.graph.new_name(name), None, tensor(DType.F32, shape))
            for name, shape in zip(weights, shapes, strict=False)
        ]
        blocked, uses = self._replace(node, "Conv", [before.name, *names], {"group": channels}, suffix)
        before.left -= 1
        self._made(node, blocked, result, uses, before.channels, before.origins)

    def _batch_norm(self, node: OrtNode) -> None:
        before = self.blocked.get(node.input(0))
        if before is None or len(node.outputs) > 1 or int(node.attr("spatial", 1)) != 1:
            return
        for name in node.inputs[1:5]:
            weight = static_weight(self.graph, name, 1)
            if weight is None or weight.shape[0] != before.channels:
                return
        self._depthwise(node, before, "_bn_nchwc", ("bn_scale", "bn_B"))

    def _concat(self, node: OrtNode) -> None:
        sources = self._sources(node)
        if node.attr("axis") != 1 or sources is None or any(source.channels % self.block for source in sources):
            return
        for source in sources:
            source.left -= 1
        batch, _, *rest = sources[0].origins
        origins: Origins = (batch, (node.outputs[0], 0), rest[0], rest[1])
        self._keep(node, sources, sum(source.channels for source in sources), origins)

    def _transpose(self, node: OrtNode) -> None:
        """Convert a transpose to channels last into a reordering from blocks."""
        before = self.blocked.get(node.input(0))
        if before is None or node.ints("perm") != _TO_LAST:
            return
        before.left -= 1
        result = node.outputs[0]
        self.graph.remove_node(node)
        self.removed += 1
        self._back(before, result, last=1)

    def _resize(self, node: OrtNode) -> None:
        before = self.blocked.get(node.input(0))
        mode = node.attr("mode", "nearest")
        if before is None or mode not in ("nearest", "linear"):
            return
        coordinates = node.attr("coordinate_transformation_mode", "half_pixel") if node.version >= 11 else "asymmetric"
        if mode == "nearest":
            floors = node.version < 11 or node.attr("nearest_mode", "round_prefer_floor") == "floor"
            if coordinates != "asymmetric" or not floors:
                return
        elif coordinates not in ("asymmetric", "align_corners", "half_pixel"):
            return
        scales = self._scales(node)
        if scales is None or scales[:2] != (1, 1):
            return
        attrs: dict[str, AttrValue] = {"scales": scales, "mode": mode, "coordinate_transformation_mode": coordinates}
        result = node.outputs[0]
        blocked, uses = self._replace(node, "Upsample", [before.name], attrs)
        before.left -= 1
        self._made(node, blocked, result, uses, before.channels, _origin(result))

    def _scales(self, node: OrtNode) -> tuple[int, ...] | None:
        """Return the growth of each axis, where all are whole numbers."""
        if node.has_input(3):
            sizes, shape = self.graph.values(node.input(3)), self.graph.static_shape(node.input(0))
            if (
                sizes is None
                or shape is None
                or len(sizes) != len(shape)
                or any(size % dim for size, dim in zip(sizes, shape, strict=True))
            ):
                return None
            return tuple(int(size) // dim for size, dim in zip(sizes, shape, strict=True))
        array = self.graph.values(node.input(2 if node.version >= 11 else 1))
        if array is None or array.shape != (4,) or any(scale < 1 or scale != int(scale) for scale in array):
            return None
        return tuple(int(scale) for scale in array)


def _follow(node: OrtNode, before: Origins, made: Origins, window: Sequence[int]) -> Origins:
    """The sizes after a window has gone over the image: kept where padding makes good for the window, halved by a stride of 2."""
    pads, strides, dilations = node.ints("pads"), node.ints("strides"), node.ints("dilations")
    found = [before[0], made[1], made[2], made[3]]
    wrong = (pads is not None and len(pads) != 4) or any(given is not None and len(given) != 2 for given in (strides, dilations))
    auto = str(node.attr("auto_pad", "NOTSET"))
    if wrong or auto not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        return found[0], found[1], found[2], found[3]
    for axis in (0, 1):
        stride = 1 if strides is None else strides[axis]
        if (dilations is not None and dilations[axis] != 1) or stride not in (1, 2):
            continue
        padding = 0 if pads is None or auto != "NOTSET" else pads[axis] + pads[axis + 2]
        if padding + 1 == window[axis] or auto.startswith("SAME"):
            name, halved = before[2 + axis]
            found[2 + axis] = (name, halved + stride - 1)
    return found[0], found[1], found[2], found[3]


@transformer("NhwcTransformer")
def nhwc(graph: OrtGraph, session: Session) -> bool:
    """Convolutions of 8-bit integers, which have kernels for channels last, between transposes that are then pushed away."""
    changed = False
    for node in graph.order():
        for body in node.bodies.values():
            changed |= nhwc(body, session)
    wrapped = [node for node in graph.order() if node.provider == CPU and _has_kernel_for_last(graph, node) and _wrap(graph, node)]
    if wrapped:
        optimise_within(graph, CPU)
    return changed or bool(wrapped)


def _has_kernel_for_last(graph: OrtGraph, node: OrtNode) -> bool:
    is_conv = node.op == "QLinearConv" and (node.is_standard or node.domain == MICROSOFT)
    return is_conv and not node.attr("channels_last", 0) and graph.dtype(node.input(0)) in (DType.U8, DType.I8)


def _wrap(graph: OrtGraph, node: OrtNode) -> bool:
    shape = graph.shape(node.input(0))
    if shape is None or len(shape) < 3:
        return False
    rank = len(shape)
    transpose_input(graph, node, 0, (0, *range(2, rank), 1))
    transpose_output(graph, node, 0, (0, rank - 1, *range(1, rank - 1)))
    outputs, name = list(node.outputs), graph.new_node_name(node.name)
    # What the old node makes gets another name before it goes.
    graph.new_name(node.name)
    graph.remove_node(node)
    graph.add_node("QLinearConv", node.inputs, outputs, {**node.attrs, "channels_last": 1}, MICROSOFT, name, node.provider)
    return True
