"""Finding an operator's record by name. Families load on first use; plugins add theirs by entry point."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Sequence

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import UsageError
from irscope.ir.graph import Graph, Node
from irscope.ops.facts import Control, Factors, FusedAttention, OpRole
from irscope.ops.spec import OpSpec
from irscope.plugins import plugins

FAMILY_MODULES: tuple[str, ...] = (
    "elementwise",
    "binary",
    "casts",
    "creation",
    "reshapes",
    "views",
    "move",
    "indexing",
    "reduction",
    "sorting",
    "sequence",
    "matmul",
    "linalg",
    "norm",
    "quantization",
    "attention",
    "recurrent",
    "signal",
    "learning",
    "gradients",
    "windows",
    "vision",
    "general",
)
"""Modules with a tuple `OPS` of records each."""
ENTRY_POINT_GROUP = "irscope.ops"


class OpRegistry:
    """Operators by name. Registering a name twice is an error that names both owners."""

    def __init__(self) -> None:
        self._specs: dict[str, OpSpec] = {}
        self._owner: dict[str, str] = {}
        self._plugins_loaded = False
        self.problems: list[Diagnostic] = []
        """Plugins that could not be imported and were skipped."""

    def register(self, specs: Iterable[OpSpec], owner: str) -> None:
        """Add records; `owner` is named when two claim one operator."""
        for spec in specs:
            if spec.name in self._specs:
                raise UsageError(
                    f"operator {spec.name!r} comes from both {self._owner[spec.name]} and {owner}",
                    code="IRS602",
                    hint="uninstall one of them",
                )
            self._specs[spec.name] = spec
            self._owner[spec.name] = owner

    def define(self, specs: Iterable[OpSpec], owner: str) -> None:
        """Add the records of a script, which may be loaded again with others of the same names."""
        specs = tuple(specs)
        for spec in specs:
            _ = spec.schema  # what cannot be read is said now, not where a model has the operator
            if self._owner.get(spec.name) == owner:
                del self._specs[spec.name], self._owner[spec.name]
        self.register(specs, owner)

    def get(self, name: str) -> OpSpec | None:
        """Return the record of an operator, None for a foreign one."""
        spec = self._specs.get(name)
        if spec is None and not self._plugins_loaded:
            self._load_plugins()
            spec = self._specs.get(name)
        return spec

    def extend(self, name: str, **rules: object) -> None:
        """Replace rules of an existing record, for plugins that know better: extend("nn.conv", cost=my_rule)."""
        spec = self.get(name)
        if spec is None:
            raise UsageError(f"no operator {name!r} to extend", code="IRS603", hint="`irscope ops` lists them")
        self._specs[name] = dataclasses.replace(spec, **rules)  # type: ignore[arg-type]  # checked by replace()

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(sorted(self._specs.values(), key=lambda spec: spec.name))

    def __len__(self) -> int:
        return len(self._specs)

    def _load_plugins(self) -> None:
        self._plugins_loaded = True
        for plugin in plugins(ENTRY_POINT_GROUP):
            try:
                specs = plugin.load()
                if not isinstance(specs, Sequence) or not all(isinstance(spec, OpSpec) for spec in specs):
                    raise UsageError(f"ops {plugin.name!r} of {plugin.owner} are no sequence of operator records", code="IRS101")
                for spec in specs:
                    _ = spec.schema  # what cannot be read is said now, not where a model has the operator
            except UsageError as error:  # a broken plugin must not take every other operator with it
                self.problems.append(Diagnostic(Severity.WARNING, error.code, f"{error}; they are left out"))
            else:
                self.register(specs, plugin.owner)


_default: OpRegistry | None = None


def default_registry() -> OpRegistry:
    """Return the operators that come with irscope, and those of installed plugins."""
    global _default
    if _default is None:
        registry = OpRegistry()
        for module in FAMILY_MODULES:
            registry.register(importlib.import_module(f"irscope.ops.{module}").OPS, owner=f"irscope.ops.{module}")
        _default = registry
    return _default


def find_op(name: str) -> OpSpec | None:
    """Return the record of an operator in the default registry, None for a foreign one."""
    registry = _default if _default is not None else default_registry()
    spec = registry._specs.get(name)  # passes ask this many times a node
    return spec if spec is not None else registry.get(name)


def spec_of(node: Node) -> OpSpec | None:
    """Return the record of a node's operator; None also for a use that lacks an operand, as only a damaged file has it."""
    spec = find_op(node.op)
    if spec is not None:
        inputs = node.inputs
        for place in spec.needed:
            if place >= len(inputs) or inputs[place] is None:
                return None
    return spec


def control_of(node: Node) -> Control | None:
    """Return which bodies a node runs; None for all but control flow."""
    spec = find_op(node.op)
    return None if spec is None else spec.control


def callee_of(node: Node) -> str | None:
    """Return the function of the program that a node calls; None where it calls none."""
    return str(node.attrs.get("callee")) if control_of(node) is Control.CALL else None


def runs_bodies(node: Node) -> bool:
    """Return whether a node runs regions or a function."""
    return bool(node.regions) or control_of(node) is Control.CALL


def has_bodies(graph: Graph) -> bool:
    """Return whether a node of this level runs regions or a function; each operator is asked once."""
    told: set[str] = set()
    for node in graph:
        if node.regions:
            return True
        if node.op not in told:
            if control_of(node) is Control.CALL:
                return True
            told.add(node.op)
    return False


def roles_of(node: Node) -> frozenset[OpRole]:
    """Return the parts that a node's operator plays in patterns; one without a record plays none."""
    spec = spec_of(node)
    return frozenset() if spec is None else spec.roles


def plays(node: Node, *roles: OpRole) -> bool:
    """Return whether a node's operator plays one of these parts in patterns."""
    return not roles_of(node).isdisjoint(roles)


def factors_of(node: Node) -> Factors | None:
    """Return which operands a matrix product multiplies; None for all other nodes."""
    spec = spec_of(node)
    return None if spec is None else spec.factors


def attention_of(node: Node) -> FusedAttention | None:
    """Return which operands of a whole attention are what; None for all other nodes."""
    spec = spec_of(node)
    return None if spec is None else spec.attention
