"""Texts on the command line that name a file, a folder, a model of an installed package, or the product of a user's script.

    model.onnx  ./llama-folder  timm:resnet18{num_classes=10}  ./train.py:build  ./my_model.py:MyNet{width=64}  jax:./model.py:fn

A file of that name wins. Nothing is imported or run here.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from irscope.diagnostics import few
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.immutable import immutable
from irscope.optiontext import OptionsError, items, json_value, read_options
from irscope.weights.source import Forbidden, Malformed, ModelFolder

PACKAGES: Final = ("torchvision", "timm", "transformers")
SCRIPT: Final = "script"
"""Replaces the package's name where a model is made by the user's own file."""
JAX: Final = "jax"
"""Replaces the package's name where a function of JAX is in the user's own file."""
_OPTIONS: Final = r"(?:\{(?P<options>.*)\})?"
_NAME: Final = re.compile(rf"(?P<package>{'|'.join(PACKAGES)}):(?P<model>[^{{}}]+){_OPTIONS}", re.DOTALL)
_FUNCTION: Final = re.compile(rf"{JAX}:(?P<model>[^{{}}]*\.py:[A-Za-z_]\w*){_OPTIONS}", re.DOTALL)
_SCRIPT: Final = re.compile(rf"(?P<model>[^{{}}]*\.py:[A-Za-z_]\w*){_OPTIONS}", re.DOTALL)
_FOLDER: Final = re.compile(rf"(?P<model>[^{{}}]+){_OPTIONS}", re.DOTALL)
_ALIKE: Final = re.compile(r"(?P<package>[A-Za-z][A-Za-z_-]{2,}):(?P<model>[\w./-]+)(?:\{.*\})?", re.DOTALL)
_WORD: Final = re.compile(r"(?P<word>[A-Za-z0-9][\w.+-]*)(?P<options>\{.*\})?", re.DOTALL)
_OF_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_OPTIONS_EXAMPLE: Final = "for example {num_hidden_layers=2,hidden_size=256}"

OptionValue: TypeAlias = object
"""Value of an option: a number, a truth value, None, a text, a list of these, or JSON in braces."""


@immutable(slots=False)
class Name:
    """A model that is made: of a package, or by the user's own file, with options of its own."""

    text: str
    package: str
    model: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    trusted: bool = False
    """True where code that lies in its folder may run: the user's decision."""


def is_pattern(text: str, folder: str = "") -> bool:
    """Return whether a text stands for several models; a file of that name wins. Options in braces are of each of them."""
    return not os.path.lexists(os.path.join(folder, text)) and any(sign in text.partition("{")[0] for sign in "*?[")


def is_name(text: str) -> bool:
    """Return whether a text names a model that is made rather than a file that is read; a file of that name wins."""
    return _parts(text) is not None


def is_script(text: str) -> bool:
    """Return whether a text names what a file of the user's makes."""
    parts = _parts(text)
    return parts is not None and parts[0] in (SCRIPT, JAX)


def is_function(text: str) -> bool:
    """Return whether a text names a function of JAX in a file of the user's."""
    parts = _parts(text)
    return parts is not None and parts[0] == JAX


def looks_like_name(text: str) -> str:
    """Return the package that a text seems to mean where there is neither such a file nor such a package; else empty."""
    match = _ALIKE.fullmatch(text)
    return match["package"] if match is not None and not os.path.lexists(text) else ""


def parse_name(text: str) -> Name:
    """Return the parts of a name; UsageError where its options do not parse."""
    parts = _parts(text)
    if parts is None:
        hint = f"for example torchvision:resnet50; packages: {', '.join(PACKAGES)}"
        raise UsageError(f"{text!r} names no model", code="IRS670", hint=hint)
    package, model, options = parts
    given = _parsed_options(text, options)
    if package == "timm" and os.path.isdir(model):
        config = settings_in(Path(model))
        if "num_classes" in config:
            given.setdefault("num_classes", config["num_classes"])
        model = str(config["architecture"])
    return Name(text, package, model, tuple(given.items()))


def _parts(text: str) -> tuple[str, str, str] | None:
    """Package, model and options as text; None for a file."""
    is_folder = os.path.isdir(text)
    if os.path.lexists(text) and not is_folder:
        return None
    for pattern, package in () if is_folder else ((_NAME, ""), (_FUNCTION, JAX), (_SCRIPT, SCRIPT)):
        if (match := pattern.fullmatch(text)) is not None:
            return package or match["package"], match["model"].strip(), match["options"] or ""
    match = _FOLDER.fullmatch(text)
    if match is None or not os.path.isdir(match["model"]):
        return None
    package = _package_of(Path(match["model"]))
    return (package, match["model"], match["options"] or "") if package else None


_GRAPHS: Final = (".onnx", ".pt2", ".irs")
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_GGUF: Final = (".gguf",)
_LATER_PART: Final = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
COREML_COMPILED: Final = "coremldata.bin"
"""File in the folder of a compiled Core ML model, of no form that anybody states."""
_USUAL: Final = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin", "model.onnx")
"""Names that hubs give the weights of a model; the first that exists is taken."""
_MOST_LISTED: Final = 6


def configured_by(folder: Path) -> str:
    """Return the package that makes a model of the configuration in a folder, installed or not; empty where there is none."""
    if is_adapter(folder):
        return "transformers"
    config = settings_in(folder)
    if isinstance(config.get("architecture"), str) and "model_type" not in config:
        return "timm"
    return "transformers" if "model_type" in config or "architectures" in config else ""


def _package_of(folder: Path) -> str:
    """Return the installed package that makes a folder's model; empty where a file in it has to be read instead."""
    package = configured_by(folder)
    if not package or any(importlib.util.find_spec(one) is None for one in ("torch", package)):
        return ""
    names = _files_in(folder)
    return "" if _ending(names, (*_GRAPHS, *_GGUF)) and not _ending(names, _WEIGHTS) else package


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter, which goes on top of a model."""
    return "peft_type" in settings_in(folder, "adapter_config.json")


def settings_in(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return the settings in a folder's config.json; nothing where it has none that may be read."""
    try:
        return ModelFolder(folder).settings(name) or {}
    except (Forbidden, Malformed, OSError):
        return {}


def _is_broken(folder: Path) -> bool:
    """Return whether a folder has a config.json that may be read and is none."""
    try:
        ModelFolder(folder).settings("config.json")
    except (Forbidden, OSError):
        return False
    except Malformed:
        return True
    return False


def _files_in(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return []


def _ending(names: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.endswith(suffixes)]


def file_in(folder: Path) -> Path:
    """Return the model in a folder as hubs have them: its weights, else its only graph. LoadError for others: a user names the file."""
    if is_adapter(folder):
        return folder / "adapter_config.json"
    names = _files_in(folder)
    if _is_broken(folder):
        hint = "copy it again; a file of weights in the folder can be named by itself"
        raise LoadError("its config.json is not a JSON object", code="IRS100", where=str(folder), hint=hint)
    if COREML_COMPILED in names:
        return inside(folder, COREML_COMPILED)  # the refusal of this file says what the folder is
    package = configured_by(folder)
    graphs, weights = _ending(names, _GRAPHS), _ending(names, _WEIGHTS)
    # Of a split file the first part stands for all; what reads pictures lies beside the model that it is for.
    whole = [name for name in _ending(names, _GGUF) if not _LATER_PART.search(name)]
    models = [name for name in whole if not name.startswith("mmproj")] or whole
    usual = next((name for name in _USUAL if name in names), "")
    if not usual and not graphs and not weights and len(models) == 1:
        (usual,) = models
    if not usual and package and len(graphs or weights) == 1:
        (usual,) = graphs or weights
    if usual:
        return inside(folder, usual)
    found = [folder / name for name in (*graphs, *weights, *models)]
    found = found or [path for path in sorted(folder.glob("*/*")) if path.suffix in (*_GRAPHS, *_WEIGHTS, *_GGUF) and path.is_file()]
    # The refusal of such a file says what it is, and what to do.
    foreign = [name for name in names if name == "saved_model.pb"] or [
        str(path.relative_to(folder)) for path in folder.glob("Data/*/*.mlmodel")
    ]
    if foreign and not found:
        return inside(folder, foreign[0])
    problem = "this is a folder" if found else "this is a folder, and no model is in it"
    first = found[0] if found else folder
    many = f"; `irscope run {first.parent}/*{first.suffix}` is a row for each, `irscope audit {folder} -o RESULTS` a dataset"
    hint = (
        f"name the model file: {few(list(map(str, found)), _MOST_LISTED, f'all: ls {folder}')}{many if len(found) > 1 else ''}"
        if found
        else "it has neither a config.json nor a file of weights"
    )
    if not found and package:
        hint = f"its config.json describes a model of {package}, which makes it where it is installed: pip install torch {package}"
    raise LoadError(problem, code="IRS100", where=str(folder), hint=hint)


def inside(folder: Path, name: str) -> Path:
    """Return a file in a folder. LoadError where it is a link that leads out of it."""
    try:
        ModelFolder(folder).find(name)
    except Forbidden as error:
        raise LoadError(f"{name!r} {error}", code="IRS100", where=str(folder), hint=error.hint) from None
    return folder / name


def missing(text: str) -> IrscopeError:
    """Return what is said of a text that is neither a file nor a name. Bare words are asked about in `packages.unknown_word`."""
    if package := looks_like_name(text):
        near = difflib.get_close_matches(package.lower(), PACKAGES, n=1)
        meant = f"did you mean {near[0]}:{text.partition(':')[2]}? " if near else ""
        message = f"there is no file of that name, and models by name are not taken from {package!r}"
        return UsageError(message, code="IRS674", where=text, hint=f"{meant}packages: {', '.join(PACKAGES)}")
    path = Path(text)
    if _OF_HUB.fullmatch(text) and not path.suffix and not path.parent.exists():
        hint = f"`hf download {text} --local-dir {path.name}`, then name that folder; for its kind alone transformers:NAME"
        return LoadError("there is no such folder; a model of the hub is not downloaded", code="IRS100", where=text, hint=hint)
    known = [name for name in _files_in(path.parent) if name.endswith((*_GRAPHS, *_WEIGHTS, *_GGUF, ".json", ".py"))]
    near = difflib.get_close_matches(path.name, known, n=1, cutoff=0.75)
    hint = f"did you mean {path.parent / near[0]}?" if near else ""
    return LoadError("there is no such file", code="IRS100", where=text, hint=hint)


def bare_word(text: str) -> tuple[str, str] | None:
    """Return a word that could be the name of a model without its package, and its options; None for what looks like a file."""
    match = _WORD.fullmatch(text)
    if match is None or os.path.lexists(text) or match["word"].endswith((*_GRAPHS, *_WEIGHTS, *_GGUF, ".json", ".jsonl", ".py", ".pickle")):
        return None
    return match["word"], match["options"] or ""


def definitions(path: Path) -> list[str]:
    """Functions and classes of a script that could make a model, those that look like it first. Nothing is run."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    classes = [stmt.name for stmt in body if isinstance(stmt, ast.ClassDef) and any("Module" in ast.unparse(base) for base in stmt.bases)]
    functions = [
        stmt.name
        for stmt in body
        if isinstance(stmt, ast.FunctionDef) and not stmt.name.startswith("_") and len(stmt.args.defaults) == len(stmt.args.args)
    ]
    likely = [name for name in functions if re.search("build|make|model|create|get", name)]
    return [*likely, *classes, *(name for name in functions if name not in likely)]


def _parsed_options(text: str, options: str) -> dict[str, OptionValue]:
    try:
        given, _ = read_options(f"{options}}}")
    except OptionsError as error:
        raise UsageError(str(error), code="IRS670", where=text, hint=_OPTIONS_EXAMPLE) from None
    parsed_options: dict[str, OptionValue] = {}
    for key, value in given.items():
        whole = None if value is None else json_value(value)
        if value is not None and whole is not None and whole[1] == len(value) and key.isidentifier():
            parsed_options[key] = whole[0]
            continue
        first, *more = (None,) if value is None else items(value)
        if first is None or more or not key.isidentifier():
            wrong = key if first is None or not more else more[0]
            raise UsageError(f"{wrong!r} is not of the form option=value", code="IRS670", where=text, hint=_OPTIONS_EXAMPLE)
        parsed_options[key] = _option_value(first)
    return parsed_options


def _option_value(text: str) -> OptionValue:
    plain = {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)
    if plain is not text:
        return plain
    try:
        value: OptionValue = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value
