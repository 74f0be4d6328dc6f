"""Bindings of symbols for display only: the model keeps its formulas."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.amounts import read_size
from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, bind

_HINT = "for example batch=8 length=128"


class Binding:
    """Binds symbols; each distinct formula is evaluated once."""

    def __init__(self, env: Mapping[str, int] | None = None) -> None:
        self.env = dict(env or {})
        self._done: dict[SymDim, Dim | None] = {}

    def of(self, value: Dim | None) -> Dim | None:
        """The value under the binding; None where it has none."""
        if not self.env or not isinstance(value, SymDim):
            return value
        if value not in self._done:
            try:
                self._done[value] = bind(value, self.env)
            except UsageError:
                self._done[value] = None
        return self._done[value]

    @property
    def text(self) -> str:
        """The binding as text, as it is typed."""
        return " ".join(f"{name}={size}" for name, size in self.env.items())


def parse_binding(text: str, symbols: Mapping[str, SymDim]) -> Binding:
    """The sizes a text such as `batch=8 length=128` names; raises UsageError with one clear line."""
    env: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        name, equals, number = part.partition("=")
        size = read_size(number)
        if not equals or size is None:
            raise UsageError(f"{part!r} is not of the form NAME=N", hint=_HINT)
        if name not in symbols:
            raise UsageError(f"there is no symbol {name!r}", hint=f"symbols: {', '.join(symbols) or 'none'}")
        env[name] = size
        bind(symbols[name], {name: env[name]})
    return Binding(env)


def example(symbols: Mapping[str, SymDim], binding: Binding) -> tuple[Binding, str]:
    """A complete binding for a chart: unbound symbols get the smallest useful size; with its text."""
    assumed = {name: max(1, size.lo or 1) for name, size in symbols.items() if name not in binding.env}
    return Binding({**assumed, **binding.env}), ", ".join(f"{name}={size}" for name, size in assumed.items())
