"""Inputs and outputs of an exported program: which are parameters, buffers, constants, the user's own."""

from __future__ import annotations

from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.body import BodyReader
from irscope.frontends.exported.older import OlderWeights
from irscope.frontends.exported.tensors import Json, Weights
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, scalar

_WEIGHTS = {
    "parameter": ("parameter_name", Role.PARAMETER),
    "buffer": ("buffer_name", Role.BUFFER),
    "tensor_constant": ("tensor_constant_name", Role.CONSTANT),
}
_SCALARS = {"as_sym_int": DType.I64, "as_sym_float": DType.F64, "as_sym_bool": DType.BOOL}


def declare_inputs(body: BodyReader, module: Json, weights: Weights | OlderWeights, options: LoadOptions) -> None:
    """Declare weights and inputs; names of weights are the model's own dotted ones."""
    metas = module["graph"]["tensor_values"]
    position = 0
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in _WEIGHTS:
            key, role = _WEIGHTS[kind]
            _declare_weight(body, content["arg"]["name"], str(content[key]), role, metas, weights)
        elif kind == "user_input":
            _declare_input(body, content["arg"], position, metas, options)
            position += 1
        elif kind == "custom_obj":
            body.env[content["arg"]["name"]] = body.graph.add_weight(
                UNKNOWN_TYPE, body.names.unique(str(content["custom_obj_name"])), Role.CONSTANT
            )
        elif kind == "constant_input":
            position += 1


def _declare_weight(body: BodyReader, name: str, fqn: str, role: Role, metas: Json, weights: Weights | OlderWeights) -> None:
    type_ = body.types.tensor(metas[name])
    small = role is Role.CONSTANT or (role is Role.BUFFER and (type_.dtype.is_integer or type_.dtype is DType.BOOL))
    value = body.graph.add_weight(type_, body.names.unique(fqn), role, weights.payload(fqn, type_, small))
    body.env[name] = value
    if role is Role.PARAMETER and isinstance(metas[name].get("requires_grad"), bool):
        body.graph.trainable[value] = metas[name]["requires_grad"]


def _declare_input(body: BodyReader, arg: Json, position: int, metas: Json, options: LoadOptions) -> None:
    ((kind, content),) = arg.items()
    if kind == "as_tensor":
        name = content["name"]
        type_: Type = body.types.tensor(metas[name])
        given = options.inputs.get(name) or options.inputs.get(str(position))
        if isinstance(given, TensorType):
            type_ = given
        body.env[name] = body.graph.add_input(type_, body.names.unique(name))
    elif kind in _SCALARS and "as_name" in content:
        name = content["as_name"]
        body.graph.add_input(scalar(_SCALARS[kind]), body.names.unique(name))


def set_outputs(body: BodyReader, module: Json) -> list[str]:
    """Declare what the model returns, and write back what it changes in buffers and inputs; the kind of each result comes back."""
    names = _names_of_state(module)
    outputs: list[Value] = []
    kinds: list[str] = []
    for spec in module["signature"]["output_specs"]:
        ((kind, content),) = spec.items()
        if kind.endswith("_mutation"):
            target = body.env.get(names.get((kind.removesuffix("_mutation"), content[_MUTATED[kind]]), ""))
            source = body.value(content["arg"]["name"])
            if isinstance(target, Value):
                body.graph.append("tensor.copy_into", (target, source), (target.type,), {"inplace": 0}, source=f"export::{kind}")
        elif kind != "token":
            found = body.argument(content["arg"]) if kind in ("user_output",) else body.value(content["arg"]["name"])
            if isinstance(found, Value):
                outputs.append(found)
                kinds.append(f"{kind}:{content.get('parameter_name', '')}")
    body.graph.set_outputs(outputs)
    return kinds


_MUTATED = {
    "buffer_mutation": "buffer_name",
    "parameter_mutation": "parameter_name",
    "user_input_mutation": "user_input_name",
}


def _names_of_state(module: Json) -> dict[tuple[str, str], str]:
    """Graph names by what they hold: ("buffer", "bn.running_mean") -> "b_bn_running_mean"."""
    found: dict[tuple[str, str], str] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in ("parameter", "buffer"):
            found[kind, content[_WEIGHTS[kind][0]]] = content["arg"]["name"]
        elif kind == "user_input" and "as_tensor" in content["arg"]:
            name = content["arg"]["as_tensor"]["name"]
            found["user_input", name] = name
    return found
