"""Reads what Inductor generated: `output_code.py` and packages of AOTInductor. Nothing of it is executed."""

from __future__ import annotations

from pathlib import Path

from irscope.budget import admit
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.files import read_regular
from irscope.frontends.base import LoadOptions
from irscope.frontends.inductor.wrapper import MOST_BYTES, Beside, Wrapper, places_of
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program
from irscope.weights.source import Forbidden, ModelFolder

_GRAPHS = ("fx_graph_transformed.py", "fx_graph_readable.py")


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the plan in a wrapper; the graph beside it tells source lines."""
    text = _text_of(path)
    admit(len(text))
    places = {}
    folder = ModelFolder(path.parent)
    for name in _GRAPHS if path.name == "output_code.py" else ():
        try:
            found = folder.find(name)
            if found is not None:
                places.update(places_of(_text_of(Path(found.path))))
        except (Forbidden, LoadError):
            continue
    with paused_gc():
        return Wrapper(text, str(path), options, sink, Beside(places)).read()


def _text_of(path: Path) -> str:
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", code="IRS128", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise LoadError(f"the text is not UTF-8 at byte {error.start}", code="IRS128", where=str(path)) from None
