"""One-line errors where a model cannot be captured: the line of its source, and what to pass."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from irscope.errors import IrscopeError, LoadError
from irscope.frontends.eager.recorder import Recorder

_LONGEST = 160


@contextmanager
def told_clearly(recorder: Recorder) -> Iterator[None]:
    """Convert exceptions of the model to one-line errors with place and remedy."""
    try:
        yield
    except IrscopeError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        where, statement = _place(recorder, error.__traceback__)
        shown = f": {statement}" if statement else ""
        raise LoadError(
            f"the model looks at values of tensors, which are not computed while it is captured{shown}",
            code="IRS188",
            where=where,
            hint=_what_to_pass(recorder),
        ) from error
    except UnsupportedOperatorException as error:
        where, _ = _place(recorder, error.__traceback__)
        raise LoadError(
            f"torch cannot run {error.func} without data",
            code="IRS190",
            where=where,
            hint="register a fake implementation for it: torch.library.register_fake",
        ) from error
    except Exception as error:
        where, statement = _place(recorder, error.__traceback__)
        text = " ".join(str(error).split())[:_LONGEST]
        shown = f" at {statement}" if statement else ""
        raise LoadError(
            f"the model failed while it was captured: {type(error).__name__}: {text}{shown}",
            code="IRS189",
            where=where,
            hint="it has to run with these arguments on one device; try it once without irscope",
        ) from error


def _place(recorder: Recorder, trace: TracebackType | None) -> tuple[str, str]:
    """The innermost source line outside torch, with its text; the module where the model has no code of its own."""
    found: tuple[str, int] | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if recorder.frames.shows(code):
            found = (code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    if found is None:
        scope = recorder.calls.failed
        return (f"module {scope.path} ({scope.cls})" if scope is not None and scope.path else ""), ""
    return f"{found[0]}:{found[1]}", linecache.getline(*found).strip()


def _what_to_pass(recorder: Recorder) -> str:
    """The unknown tensors on which the value depends."""
    missing = list(recorder.values.missing)
    inputs = list(dict.fromkeys(one.name for one in missing if one.kind == "input"))
    weights = list(dict.fromkeys(one.name for one in missing if one.kind in ("parameter", "buffer")))
    if inputs:
        return f"pass real tensors, not fake or meta ones, for {', '.join(inputs)}"
    if weights:
        return f"it depends on {', '.join(weights[:3])}: use a model with real weights, or one whose control flow does not depend on them"
    return "the value depends on the whole computation; pass arguments for which the model does not read it"
