"""Loops over plain arrays as machine code, by numba where it is installed (`pip install numba`).

Whoever has such a loop has another way, too, with numpy alone; a search, whose answer may differ, says which was taken. Compiling
takes seconds, so the code is kept in irscope's own cache folder: one folder for each version of the source, of how it is compiled
(this module), of numba and of Python, so that it is never stale. Within it numba itself tells one kind of processor from another.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from irscope.files import cache_folder, private_folder

F = TypeVar("F", bound=Callable[..., Any])


@cache
def can_compile() -> bool:
    """Return whether numba is installed and wanted; IRSCOPE_COMPILED=0 says that it is not."""
    return os.environ.get("IRSCOPE_COMPILED", "1") != "0" and importlib.util.find_spec("numba") is not None


def is_kept(module: str) -> bool:
    """Return whether what the module compiles need not be compiled: it is loaded, or lies in the cache folder."""
    if module in sys.modules:
        return True
    spec = importlib.util.find_spec(module)
    folder = _folder(spec.origin) if spec is not None and spec.origin else None
    return folder is not None and any(folder.rglob("*.nbc"))


def machine_code(function: F) -> F:
    """Compile a function of numbers and arrays when it is first called; it runs without the interpreter's lock. As it is without numba.

    It must make no arrays: what counts references to them is left out, which would take two thirds of the time of a search's small steps.
    """
    return _compiled(function, _nrt=False)


def machine_code_for_sums(function: F) -> F:
    """Return the same, where floats are finite and sums may be made in another order, so that vectors can be used."""
    return _compiled(function, fastmath=True)


def _compiled(function: F, **options: bool) -> F:
    if not can_compile():
        return function
    numba: Any = importlib.import_module("numba")
    folder = _folder(inspect.getfile(function))
    if folder is None:
        return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        return numba.njit(nogil=True, cache=True, no_cfunc_wrapper=True, **options)(function)  # type: ignore[no-any-return]
    finally:
        numba.config.CACHE_DIR = before


@cache
def _folder(source: str) -> Path | None:
    """Return the private folder for what is compiled from a file; None where none can be made."""
    try:
        from importlib.metadata import version  # it imports much, for machines with numba alone

        key = hashlib.sha256(f"{version('numba')} {version('llvmlite')} {version('numpy')} {sys.version}".encode())
        for file in (source, __file__):
            key.update(hashlib.sha256(Path(file).read_bytes()).digest())
        parent = private_folder(cache_folder())
        return private_folder(private_folder(parent / "compiled") / f"{Path(source).stem}-{key.hexdigest()[:16]}")
    except (OSError, RuntimeError, ImportError):  # RuntimeError: there is no home folder
        return None
