"""Tests over tables: one test for all rows, which lists every offender."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

_SHOWN = 10
"""Offenders whose traceback is printed; the names of all stand in the message."""


def every(names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], Any] | Iterable[str] | None = None) -> Any:
    """Run a test for each row of a table, as `pytest.mark.parametrize` would, but as one case.

    A case costs some milliseconds of collecting, sending and reporting, which is more than most rows take. Rows share the
    test's fixtures, so that it is for tests that leave nothing behind. A row that skips counts as passed.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = list(rows)
    labels = [str(label) for label in (map(ids or _label, table) if ids is None or callable(ids) else ids)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: dict[str, Exception] = {}
            for label, row in zip(labels, table, strict=True):
                values = dict(zip(keys, [row] if isinstance(names, str) and len(keys) == 1 else row, strict=True))
                try:
                    test(**values, **fixtures)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception) as error:  # every offender is listed
                    failures[label] = error if isinstance(error, Exception) else AssertionError(str(error))
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)}: {', '.join(failures)}", list(failures.values())[:_SHOWN])

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


def _label(row: Any) -> str:
    return " ".join(map(str, row)) if isinstance(row, (tuple, list)) else str(row)
