"""Passes from plain functions: `@analysis("narrow-convs")` and `@transform("drop-dropout")`.

    @analysis("narrow-convs")
    def narrow_convs(graph, ctx, *, below: int = 16):
        \"\"\"Convolutions with few input channels.\"\"\"
        rows = [(n.name, n.inputs[0].type.shape[1]) for n in graph.walk() if n.op == "nn.conv"]
        return Table.of([r for r in rows if r[1] < below], columns=["node", "channels:count"], title="Narrow convolutions")

Keyword-only parameters become options, and pipelines of this process may name the pass.
An analysis may return a Table, several, a Report, a mapping (the summary) or anything else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from typing import Any, cast, get_type_hints

from irscope.errors import UsageError
from irscope.ir.graph import Facet, Graph
from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.registry import default_registry, register, same_name
from irscope.report.report import Report
from irscope.report.table import Table


def analysis(name: str, *, reads: str = "") -> Callable[[Callable[..., Any]], type[Analysis[Any]]]:
    """Make an analysis of a function `(graph, ctx, *, options...)`. `reads`: facets it depends on, default all."""

    def decorate(function: Callable[..., Any]) -> type[Analysis[Any]]:
        def compute(self: Analysis[Any], graph: Graph, ctx: PassContext) -> Any:
            return function(graph, ctx, **_options_of(self))

        def report(self: Analysis[Any], result: Any, ctx: PassContext) -> Report:
            return as_report(self, result)

        members = {"compute": compute, "report": report, "reads": _facets(reads)}
        return cast("type[Analysis[Any]]", _make_class(name, function, Analysis, members))

    return decorate


def transform(name: str) -> Callable[[Callable[..., Any]], type[Transform]]:
    """Make a transform of a function `(graph, ctx, *, options...) -> bool` that says whether it changed the graph."""

    def decorate(function: Callable[..., Any]) -> type[Transform]:
        def apply(self: Transform, graph: Graph, ctx: PassContext) -> bool:
            return bool(function(graph, ctx, **_options_of(self)))

        return cast("type[Transform]", _make_class(name, function, Transform, {"apply": apply}))

    return decorate


def as_report(subject: Pass, result: Any) -> Report:
    """Whatever an analysis returned, as a report."""
    if isinstance(result, Report):
        return result
    if isinstance(result, Table):
        return Report(pass_name=subject.name, options=subject.text, tables=(result,))
    if isinstance(result, Sequence) and result and all(isinstance(item, Table) for item in result):
        return Report(pass_name=subject.name, options=subject.text, tables=tuple(result))
    summary = dict(result) if isinstance(result, Mapping) else {"result": result if isinstance(result, int | float | str) else str(result)}
    return Report(pass_name=subject.name, options=subject.text, summary=summary)


def _options_of(subject: Any) -> dict[str, Any]:
    return {option.name: getattr(subject, option.name) for option in fields(subject)}


def _make_class(name: str, function: Callable[..., Any], base: type, members: dict[str, Any]) -> type:
    hints = get_type_hints(function)
    options = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            options.append((parameter.name, hints.get(parameter.name, str)))
            continue
        type_ = hints.get(parameter.name, type(default))
        options.append((parameter.name, type_, field(default=default)))  # type: ignore[arg-type]  # make_dataclass takes both forms
    namespace = {**members, "name": name, "__doc__": function.__doc__ or f"The pass {name}."}
    made = make_dataclass(function.__name__, options, bases=(base,), namespace=namespace, frozen=True, kw_only=True)
    made.__module__ = function.__module__  # from Python 3.12 on make_dataclass gives its own caller's, whatever the namespace says
    if not same_name(name, default_registry().entries):  # a name of irscope's own keeps its meaning; the class is still there to be run
        register(made)
    return made


def _facets(text: str) -> tuple[Facet, ...]:
    if not text:
        return tuple(Facet)
    try:
        return tuple(Facet[part.strip().upper()] for part in text.split(","))
    except KeyError as error:
        known = ", ".join(facet.name.lower() for facet in Facet)
        raise UsageError(f"unknown facet {error.args[0].lower()!r}", code="IRS604", hint=f"facets: {known}") from None
