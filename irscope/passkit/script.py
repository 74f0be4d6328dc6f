"""Files of the user's own that are run: passes in one (`./my_pass.py:MyPass`), modules, and programs as `python file.py` would."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from irscope.errors import IrscopeError, UsageError
from irscope.passkit.base import Pass
from irscope.passkit.options import to_text, unquote

_SCRIPT = re.compile(r'^(?P<path>"(?:\\.|[^"\\])*"|.*?\.py)(?::(?P<symbol>[A-Za-z_]\w*))?$')


def is_script_reference(reference: str) -> bool:
    """Return whether a pipeline element names a file rather than a registered pass."""
    match = _SCRIPT.match(reference)
    return match is not None and unquote(match["path"]).endswith(".py")


def load_script_pass(reference: str) -> type[Pass]:
    """Return the pass class that a reference names; without `:Name` the file must define exactly one."""
    match = _SCRIPT.match(reference)
    assert match is not None
    path, symbol = Path(unquote(match["path"])), match["symbol"]
    module = load_script(path)
    if hasattr(module, "OPS"):
        load_operators(path)
    defined = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module.__name__
    }
    if symbol is None:
        if len(defined) != 1:
            names = ", ".join(sorted(defined)) or "none"
            raise UsageError(f"{path} defines {len(defined)} passes ({names})", code="IRS608", hint=f"name one: {path}:Name")
        symbol = next(iter(defined))
    found = defined.get(symbol) or next((cls for cls in defined.values() if cls.name == symbol), None)
    if found is None:
        names = ", ".join(sorted(defined)) or "none"
        raise UsageError(f"{path} has no pass {symbol!r}", code="IRS608", hint=f"passes there: {names}")
    found.origin = f"{to_text(path)}:{symbol}"
    return found


def load_operators(path: Path) -> None:
    """Let models have the operators whose records a script holds in OPS."""
    from irscope.ops.registry import default_registry
    from irscope.ops.spec import OpSpec

    specs = getattr(load_script(path), "OPS", None)
    if not isinstance(specs, Sequence) or not all(isinstance(spec, OpSpec) for spec in specs):
        hint = "OPS = (op('acme.envelope(Tensor x) -> Tensor', ...),) with op of irscope.ops"
        raise UsageError(f"{path} has no OPS, a sequence of records of operators", code="IRS608", hint=hint)
    default_registry().define(specs, str(path))


def run_script(script: str, arguments: Sequence[str] = (), *, is_module: bool = False) -> None:
    """Run a script, or a module, as `python SCRIPT ARGUMENTS` would."""
    before, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    try:
        if is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before, path


RUNNERS: Final = (__file__, runpy.__file__)
"""Files whose frames stand between irscope and a script that `run_script` runs."""


LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "<frozen", "/torch/", "/lib/python3")
"""Parts of the paths of files that are no user's own."""


def load_script(path: Path) -> ModuleType:
    """Return the module that a user's file is; it finds what lies beside it. UsageError where it cannot be read, or raises."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the script {str(path)!r} cannot be read: {error.strerror}", code="IRS608") from None
    # One module per content: a second run finds the same classes, so cached results stay valid.
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + source).hexdigest()[:16]
    name = f"_irscope_user_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with beside(path):
            # Not by the loader, which may take the machine code of a text of the same second and length.
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except IrscopeError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(f"the script raised {type(error).__name__}: {error}", code="IRS609", where=raised_at(error, path)) from error
    return module


@contextmanager
def beside(path: Path) -> Iterator[None]:
    """Let modules in the folder of a file be imported, and its name be all that it was called with, as `python FILE` does."""
    folder, before = str(path.resolve().parent), sys.argv
    sys.path.insert(0, folder)
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before
        with suppress(ValueError):
            sys.path.remove(folder)


def raised_at(error: BaseException, path: Path) -> str:
    """Return the innermost line of a script that an error came from; the script alone where it has none."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
