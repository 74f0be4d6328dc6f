"""A graph that holds forward and backward as a training step: phases and categories by the flow of data, never by names."""

from __future__ import annotations

import json
from collections.abc import Sequence

from irscope.errors import LoadError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import SymDim
from irscope.ir.graph import Graph, Names, Node, Role, Value
from irscope.ir.places import Scope, root_scope
from irscope.ir.types import TensorType
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.passes.graph.alias import Alias, Aliases, written_operand
from irscope.passes.lifetimes.traced import Ranges
from irscope.passkit.manager import Manager
from irscope.training import Category, Phase, Piece, Span, StepOp, Trace, label, module_of, piece_name

_LOSS, _GRADIENT = "loss_output", "gradient_to_parameter"
_PARAMETERS = frozenset({"parameter", "gradient"})
_RESIDENT: dict[Role, Category] = {Role.PARAMETER: "parameter"}
_WHERE = "save torch.export's joint export, or name a live module: `irscope train-plan torchvision:resnet50`"


@immutable(slots=False)
class JointOutputs:
    """Meaning of the results of a joint graph."""

    forward: tuple[Value, ...]
    gradients: dict[Value, str]
    """Gradients by value, with the parameter each belongs to."""


def joint_trace(manager: Manager) -> Trace:
    """Return the one step of a graph that holds a forward and its backward; LoadError where it holds none."""
    program = manager.program
    return _Reader(manager, joint_outputs(program.graph, program.metadata.get("outputs", ""), program.path)).trace()


def joint_outputs(graph: Graph, said: str, path: str) -> JointOutputs:
    """By what the file says of its results; else the results behind a scalar that have the types of all parameters, in their order."""
    outputs = graph.outputs
    if said:
        roles = [str(role).partition(":")[::2] for role in json.loads(said)]
        gradients = {value: name for value, (kind, name) in zip(outputs, roles, strict=True) if kind == _GRADIENT}
        forward = tuple(value for value, (kind, _) in zip(outputs, roles, strict=True) if not kind.startswith("gradient"))
        return JointOutputs(forward, gradients)
    parameters = [weight for weight in graph.weights if weight.role is Role.PARAMETER]
    count = len(parameters)
    behind = outputs[len(outputs) - count :] if 0 < count < len(outputs) else ()
    forward = outputs[: len(outputs) - count]
    same = behind and all(_shape(value) == _shape(weight) for value, weight in zip(behind, parameters, strict=True))
    if not same or not any(_is_scalar(value) for value in forward):
        raise LoadError(
            "the graph holds a forward only: its results are not a loss and a gradient for each parameter",
            code="IRS388",
            where=path,
            hint=_WHERE,
        )
    return JointOutputs(forward, {value: weight.name or "" for value, weight in zip(behind, parameters, strict=True)})


def _shape(value: Value) -> object:
    return (value.type.dtype, value.type.shape) if isinstance(value.type, TensorType) else value.type


def _is_scalar(value: Value) -> bool:
    return value.type.numel == 1


class _Reader:
    def __init__(self, manager: Manager, outputs: JointOutputs) -> None:
        self._program = manager.program
        self._outputs = outputs
        self._aliases: Aliases = manager.get(Alias())
        self._lifetimes = manager.get(Ranges(model="ssa"))
        self._nodes: Sequence[Node] = self._lifetimes.steps
        self._gradients = {self._aliases.storage(value): name for value, name in outputs.gradients.items()}
        self._pieces: dict[Value, Piece] = {}
        self._names = Names()
        self._modules = root_scope()

    def trace(self) -> Trace:
        begins = self._backward_begins()
        resident = self._make_resident()
        self._make_pieces(begins)
        ops = [self._op(number, node, "forward" if number < begins else "backward") for number, node in enumerate(self._nodes)]
        pieces = list(self._pieces.values())
        dead = sorted((piece for piece in pieces if piece.died is not None), key=lambda piece: (piece.died, piece.number))
        for rank, piece in enumerate(dead):
            piece.rank = rank
        trace = Trace(self._program.path, ops, pieces, [Span("step", 0, len(ops))], resident, len(dead), "none")
        trace.settings = {"graph": "joint, without an optimizer's step"}
        return trace

    def _backward_begins(self) -> int:
        """Return one past the last operator that a result of the forward depends on."""
        place = {node: number for number, node in enumerate(self._nodes)}
        found, stack = -1, [value.node for value in self._outputs.forward if value.node is not None]
        seen: set[Node] = set(stack)
        while stack:
            node = stack.pop()
            found = max(found, place.get(node, -1))
            for value in node.inputs:
                if value is not None and value.node is not None and value.node not in seen:
                    seen.add(value.node)
                    stack.append(value.node)
        return found + 1

    def _make_resident(self) -> list[Piece]:
        graph = self._program.graph
        found: list[Piece] = []
        for value in (*graph.weights, *graph.inputs):
            storage = self._aliases.storage(value)
            if storage in self._pieces or not isinstance(value.type, TensorType):
                continue
            category: Category = "input" if value.role is Role.INPUT else _RESIDENT.get(value.role, "buffer")
            piece = Piece(len(self._pieces), self._size(value), value.name or "", category, None)
            self._pieces[storage] = piece
            found.append(piece)
        return found

    def _make_pieces(self, begins: int) -> None:
        for one in self._lifetimes.ranges:
            if one.value in self._pieces:
                continue
            died = None if one.is_output else one.dies + 1
            name = self._gradients.get(one.value)
            category: Category = "gradient"
            if name is None:
                category = "activation" if one.born < begins and (died is None or died > begins) else "temporary"
                name = one.value.name or ""
            self._pieces[one.value] = Piece(len(self._pieces), self._size(one.value), name, category, one.born, died)

    def _op(self, number: int, node: Node, phase: Phase) -> StepOp:
        made: list[tuple[int, Piece]] = []
        for index, output in enumerate(node.outputs):
            piece = self._pieces.get(output)
            if piece is not None and piece.born == number:
                made.append((index, piece))
        written = written_operand(node)
        changed = [] if written is None else self._of(written)
        spec = find_op(node.op)
        writes = tuple(dict.fromkeys([piece for _, piece in made] + changed))
        reads = tuple(dict.fromkeys(piece for value in node.inputs if value is not None for piece in self._of(value)))
        scope = self._scope(node, [piece for piece in (*reads, *writes) if piece.category in _PARAMETERS])
        name = self._names.unique(label(scope, node.name))
        for index, piece in made:
            if piece.category != "gradient":
                piece.name = piece_name(name, index)
        call = None
        if spec is not None:
            operands = [None if value is None else value.type for value in node.inputs]
            parameters = frozenset(at for at, value in enumerate(node.inputs) if value is not None and value.role is Role.PARAMETER)
            results = [output.type for output in node.outputs]
            call = OpCall(spec, operands, node.attrs, (), results, source=node.source, parameters=parameters)
        return StepOp(
            number,
            name,
            node.source or node.op,
            call,
            phase,
            reads,
            writes,
            tuple(made),
            scope,
            node.loc,
            None,
            "",
            spec is not None and spec.random,
            not writes,
        )

    def _scope(self, node: Node, touched: Sequence[Piece]) -> Scope:
        """Where the file says the node is, else the innermost module that holds the parameters that it reads or makes gradients of."""
        path = "" if node.scope.module else module_of(piece.name for piece in touched)
        if not path:
            return node.scope
        scope = self._modules
        for part in path.split("."):
            scope = scope.child(part)
        return scope

    def _of(self, value: Value) -> list[Piece]:
        return [self._pieces[one] for one in self._aliases.storages(value) if one in self._pieces]

    def _size(self, value: Value) -> int:
        size = value.type.tensor_bytes
        if not isinstance(size, int):
            raise LoadError(
                f"the size of {value.name} is not a number: {size}",
                code="IRS388",
                where=self._program.path,
                hint=typed(bind_option(size.symbols())) if isinstance(size, SymDim) else "",
            )
        return size
