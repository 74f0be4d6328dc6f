"""Packages of AOTInductor: a zip archive with generated C++, the library that it was compiled to, kernels and weights."""

from __future__ import annotations

from pathlib import Path

from irscope.budget import admit
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.archive import Archive
from irscope.frontends.inductor.cpp import CppWrapper
from irscope.frontends.inductor.wrapper import MOST_BYTES
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program

_FOLDER = "data/aotinductor/"
_AGAIN = "package the model again with torch._inductor.aoti_compile_and_package"


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The plan of one model in a package; libraries and kernels stay unread."""
    with Archive(path) as archive, paused_gc():
        names = archive.names(_FOLDER)
        models = list(dict.fromkeys(name.removeprefix(_FOLDER).partition("/")[0] for name in names if "/" in name.removeprefix(_FOLDER)))
        model = _chosen(models, options, sink, str(path))
        own = [name for name in names if name.startswith(f"{_FOLDER}{model}/")]
        code = [name for name in own if name.endswith(".cpp") and not name.endswith((".kernel.cpp", "interface.cpp"))]
        if len(code) != 1:
            what = "no generated code, only a library" if not code else f"{len(code)} files of generated code where one is read"
            raise LoadError(f"the package has {what}", code="IRS128", where=str(path), hint=_AGAIN)
        kernels = "\n".join(_text_of(archive, name) for name in own if name.endswith(".kernel.cpp"))
        text = _text_of(archive, code[0])
        program = CppWrapper(text, kernels, f"{path}:{code[0].rpartition('/')[2]}", options, sink).read()
        program.metadata["model"] = model
        return program


def _chosen(models: list[str], options: LoadOptions, sink: DiagnosticSink, where: str) -> str:
    """The model to read: the one that was asked for, else the one called `model`, else the first."""
    if not models:
        raise LoadError("the package holds no model", code="IRS128", where=where, hint=_AGAIN)
    if options.method and options.method not in models:
        raise LoadError(f"the package has no model {options.method!r}", code="IRS137", where=where, hint=f"it has {', '.join(models)}")
    chosen = options.method or ("model" if "model" in models else models[0])
    others = [name for name in models if name != chosen]
    if others and not options.method:
        more = f"; there are {', '.join(others)}" if len(others) > 1 else ""
        hint = f"`--method {others[0]}` reads another{more}"
        sink.warn("IRS137", f"the package holds several models; {chosen!r} was read", hint=hint, about="programs")
    return chosen


def _text_of(archive: Archive, name: str) -> str:
    size = archive.entries[name].size
    if size > MOST_BYTES:
        raise LoadError(f"code of more than {MOST_BYTES >> 20} MiB is not read", code="IRS128", where=str(archive.path))
    admit(size)
    try:
        return archive.read(name).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{name.rpartition('/')[2]} is not UTF-8 at byte {error.start}"
        raise LoadError(message, code="IRS128", where=str(archive.path), hint=_AGAIN) from None
