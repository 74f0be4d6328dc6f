"""The command line that gives the same answers as the screen."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.ir.spelling import typed_input
from irscope.ir.types import Type
from irscope.passkit.settings import Settings


@immutable(slots=False)
class Source:
    """The options with which the model was opened."""

    path: str
    inputs: Mapping[str, Type] = field(default_factory=dict)
    bind: Mapping[str, int] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    step: Sequence[str] | None = None
    """The options of a training step; None for a forward."""
    compiled: Sequence[str] = ()
    """Options that it is compiled with."""

    def arguments(self) -> list[str]:
        """MODEL and its options."""
        arguments = [self.path or "MODEL", *self.compiled]
        for name, type_ in self.inputs.items():
            arguments += ["--input", typed_input(name, type_)]
        if self.bind:
            arguments += ["--bind", ",".join(f"{name}={size}" for name, size in self.bind.items())]
        if self.settings.device and not self.settings.chosen:
            arguments += ["--device", self.settings.device]
        if self.settings.torch:
            arguments += ["--torch", self.settings.torch]
        if self.settings.alloc_conf:
            arguments += ["--alloc-conf", self.settings.alloc_conf]
        return arguments


def compile_words(compile: bool | Mapping[str, object]) -> Sequence[str]:
    """Return the options that a model is compiled with."""
    if isinstance(compile, bool):
        return ("--compile",) if compile else ()
    return ("--compile-with", ",".join(f"{name}={value}" for name, value in compile.items()))


def run_command(source: Source, passes: str) -> str:
    """Return the command that prints the numbers of the screen."""
    of_step = () if source.step is None else source.step
    return shlex.join(["irscope", "run" if source.step is None else "train-plan", *of_step, *source.arguments(), "--passes", passes])


def compare_eager_command(source: Source) -> str:
    """Return the command that lays a model as it runs eagerly beside the compiled one."""
    model, *options = replace(source, compiled=()).arguments()
    return shlex.join(["irscope", "compare", *options, "--compile-b", model, model])


def picture_command(source: Source, around: str, hops: int) -> str:
    """Return the command that draws the graph, or what is around a node of it."""
    near = ["--around", around, "--hops", str(hops)] if around else []
    return shlex.join(["irscope", "export", *source.arguments(), *near, "-o", "graph.svg"])


def show_command(source: Source, node: Node) -> str:
    """Return the command that prints the nodes of this operator in this module."""
    scope = ["--scope", node.scope.path] if node.scope.path else []
    return shlex.join(["irscope", "show", *source.arguments(), *scope, "--op", node.op, "--locations"])
