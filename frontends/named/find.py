"""From a name to a recipe: which package knows the model, and what to say where none does."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable
from typing import Any, Final

from irscope.errors import LoadError, UsageError
from irscope.frontends.named.names import PACKAGES, Name, parse_name
from irscope.frontends.named.recipe import Recipe
from irscope.ir.dtypes import DType

_NEAR: Final = 4


def is_installed(package: str) -> bool:
    """Whether a package and torch are there."""
    return all(importlib.util.find_spec(one) is not None for one in ("torch", package))


def names_of(package: str) -> list[str]:
    """Every model that a package offers, in its own order."""
    _need(package)
    return _lister(package)()


def find_recipe(name: Name) -> Recipe:
    """How the model is made; UsageError with near matches where the package does not have it."""
    _need(name.package)
    options: dict[str, Any] = dict(name.options)
    dtype = _dtype(options.pop("dtype", None), name)
    try:
        recipe = _maker(name.package)(name.model, options, dtype)
    except (KeyError, RuntimeError) as error:
        known = names_of(name.package)
        if name.model in known:
            raise LoadError(f"{name.package} cannot make it: {error}", code="IRS197", where=name.text) from error
        raise _unknown(name, known) from None
    except ValueError as error:
        raise (_unknown(name, names_of(name.package)) if name.model not in names_of(name.package) else _refused(name, error)) from None
    if name.package == "timm" and name.model not in names_of("timm"):
        raise _unknown(name, names_of("timm"))
    return recipe


def _refused(name: Name, error: Exception) -> LoadError:
    return LoadError(f"{name.package} cannot make it: {error}", code="IRS197", where=name.text)


def _unknown(name: Name, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(name.model, known, n=_NEAR, cutoff=0.5)
    near += [one for one in known if name.model.lower() in one.lower() and one not in near][: _NEAR - len(near)]
    said = f"near: {', '.join(near)}" if near else f"`irscope zoo {name.package}` lists its {len(known)} models"
    return UsageError(f"{name.package} has no model {name.model!r}", code="IRS196", where=name.text, hint=said)


def check_installed(text: str) -> None:
    """Raise UsageError, with what to install, where the package of a name is missing."""
    _need(parse_name(text).package)


def _need(package: str) -> None:
    missing = [one for one in ("torch", package) if importlib.util.find_spec(one) is None]
    if missing:
        others = [one for one in PACKAGES if is_installed(one)]
        there = f"; installed: {', '.join(others)}" if others else ""
        raise UsageError(f"{' and '.join(missing)} is not installed", code="IRS195", hint=f"pip install {' '.join(missing)}{there}")


def _dtype(given: object, name: Name) -> DType | None:
    if given is None:
        return None
    found = next((one for one in DType if one.text == given), None)
    if found is None or found not in (DType.F16, DType.BF16, DType.F32, DType.F64):
        raise UsageError(f"{given!r} is no element type for weights", code="IRS672", where=name.text, hint="f32, bf16, f16 or f64")
    return found


def _lister(package: str) -> Callable[[], list[str]]:
    if package == "transformers":
        from irscope.frontends.named.language import transformers_names

        return transformers_names
    from irscope.frontends.named import vision

    return vision.timm_names if package == "timm" else vision.torchvision_names


def _maker(package: str) -> Callable[[str, dict[str, Any], DType | None], Recipe]:
    if package == "transformers":
        from irscope.frontends.named.language import transformers_recipe

        return transformers_recipe
    from irscope.frontends.named import vision

    return vision.timm_recipe if package == "timm" else vision.torchvision_recipe
