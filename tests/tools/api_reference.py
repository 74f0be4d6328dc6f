"""docs/api.md from the docstrings of what irscope offers to scripts (make pages)."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator

FACADES = ("irscope", "irscope.ir", "irscope.ops", "irscope.passkit", "irscope.report", "irscope.memory")
_HEAD = """# Python interface

What scripts, passes and packages may import. `irscope` itself is enough to load models and run passes; the other modules are for those who
write passes, operators or reports. `help(irscope.fit)` prints a docstring whole, `help(irscope.ir.SymDim)` also what is not listed here.
See [reports in Python](reports.md#in-python-and-notebooks) and [extending irscope](extending.md).
"""

_MEMBERS = {
    "Graph",
    "Node",
    "Program",
    "Value",
    "OpCall",
    "Analysis",
    "PassContext",
    "Transform",
    "CachingAllocator",
}
"""Classes whose members authors of passes, operators and reports use; of the classes that scripts use all have them."""


def api_page() -> str:
    """The whole page."""
    listed: dict[int, str] = {}
    return "\n".join([_HEAD, *(part for name in FACADES for part in _facade(name, listed))])


def _facade(name: str, listed: dict[int, str]) -> Iterator[str]:
    """Yield the part of one module; what an earlier one has `listed` is only named."""
    module = importlib.import_module(name)
    yield f"## {name}\n\n{_doc(module)}\n"
    public_names = [public for public in sorted(module.__all__, key=str.lower) if not public.startswith("__")]
    repeated = [public for public in public_names if id(getattr(module, public)) in listed]
    if repeated:
        yield f"Above, and also here: {', '.join(f'`{public}`' for public in repeated)}.\n"
    offered = {public: getattr(module, public) for public in public_names if public not in repeated}
    listed |= {id(made): public for public, made in offered.items()}
    for public, found in offered.items():
        if inspect.isclass(found):
            members = [line for member, made in vars(found).items() if not member.startswith("_") and (line := _member(member, made))]
            members = members if name == FACADES[0] or public in _MEMBERS else []
            yield "\n".join([f"### {public}\n\n{_doc(found)}\n", *members, *([""] if members else [])])
        elif name == FACADES[0] and inspect.isfunction(found):
            yield f"### {public}\n\n```python\n{_signature(public, found, defaults=True)}\n```\n\n{_doc(found)}\n"
    rest = {public: found for public, found in offered.items() if not inspect.isclass(found)}
    if name != FACADES[0] and rest:
        yield "### Functions and values\n"
        for public, found in rest.items():
            if inspect.isfunction(found):
                yield f"- `{_signature(public, found)}`: {_clause(found)}"
            else:
                yield f"- `{public}`: {_summary_of_value(found)}"
        yield ""


def _summary_of_value(offered: object) -> str:
    return ", ".join(map(str, offered)) if hasattr(offered, "keys") else f"`{str(offered)[:100]}`"


def _member(name: str, found: object) -> str:
    function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    if inspect.isfunction(function) and function.__doc__:
        return f"- `{_signature(name, function)}`: {_clause(function)}"
    if not isinstance(found, property) or not found.__doc__:
        return ""
    return f"- `{name}`: {_clause(found)}"


def _doc(offered: object) -> str:
    """Return the first paragraph of a docstring on one line."""
    text = inspect.getdoc(offered) or ""
    made = isinstance(offered, type) and dataclasses.is_dataclass(offered) and text.startswith(f"{offered.__name__}(")
    if made or (isinstance(offered, type) and issubclass(offered, enum.Enum) and text == enum.Enum.__doc__):
        return ""
    return " ".join(text.split("\n\n")[0].split())


def _clause(member: object) -> str:
    """Return the first paragraph of a docstring up to its first full stop, without Return: what follows a colon is the result."""
    text = re.sub("^Return (?!whether )", "", _doc(member).split(". ")[0].rstrip("."))
    return f"{text[:1].upper()}{text[1:]}"


def _signature(name: str, function: object, *, defaults: bool = False) -> str:
    """Return a signature: the names of its parameters, or these with their defaults and what it returns."""
    assert callable(function)
    signature = inspect.signature(function)
    if not defaults:
        return f"{name}({', '.join(parameter for parameter in signature.parameters if parameter not in ('self', 'cls'))})"
    parameters = [
        parameter if isinstance(parameter.default, _SHOWN) else parameter.replace(default=...)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=[parameter.replace(annotation=parameter.empty) for parameter in parameters]))
    return name + re.sub(r"-> '([^']*)'", r"-> \1", text.replace("Ellipsis", "..."))


_SHOWN = (bool, int, float, str, type(None), type)
"""Defaults that stand in a signature as they are; others, such as the environment of the process, as three dots."""
