"""Models and operators in the forms whose FLOPs are compared, made with an installed torch."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from irscope.session import open_model
from tests.tools.oracle.flops_figures import FORMS, Figure, keep, measured, references, text_of
from tests.tools.oracle.flops_models import entries
from tests.tools.oracle.flops_singles import SINGLES, Single
from tests.tools.oracle.flops_symbolic import SYMBOLIC, open_text
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import Entry, cheap_weights
from tests.tools.zoo.torchvision_shim import load_torchvision

_SUFFIXES = {"concrete": ".pt2", "traced": ".pt", "onnx": ".onnx"}


def models(forms: tuple[str, ...] = FORMS) -> Iterator[Figure]:
    """The 21 models in every form that the exporters can make."""
    for name, entry in entries().items():
        for form in forms:
            found = exported(entry, form)
            if not found.refused:
                yield measured(name, form, found.path, references()["models"][name]["flops"])


def singles(forms: tuple[str, ...] = ("concrete", "traced")) -> Iterator[Figure]:
    """Single operators. An ONNX file has no outer product, so that form is not compared."""
    with tempfile.TemporaryDirectory() as folder:
        for name, single in SINGLES.items():
            for form in forms:
                path = Path(folder) / f"single{_SUFFIXES[form]}"
                if _save_single(single, form, path):
                    yield measured(name, form, path, 2 * single.macs)


def _save_single(single: Single, form: str, path: Path) -> bool:
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module, args = single.make().eval(), single.args()
        try:
            if form == "concrete":
                torch.export.save(torch.export.export(module, args), path)
            else:
                torch.jit.save(torch.jit.trace(module, args, check_trace=False), path)
        except Exception:  # an operator that an exporter does not take is compared in the other form
            return False
    return True


def published(only: str = "") -> Iterator[Figure]:
    """The classification models of torchvision with the multiply-adds that their weights publish, in thousandths of 10^9."""
    library = load_torchvision().models
    makers = {str(weights): name for name in library.list_models() for weights in library.get_model_weights(name)}
    for entry in references()["published"]:
        if only not in entry["weights"]:
            continue
        found = exported(_classifier(makers[entry["weights"]], entry["crop"]), "concrete")
        yield measured(entry["weights"], "concrete", found.path, round(entry["published_gmac"] * 2e9))


def _classifier(name: str, size: int) -> Entry:
    def make() -> Any:
        options: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        if name.startswith("vit"):
            options["image_size"] = size
        with cheap_weights():
            return load_torchvision().models.get_model(name, weights=None, **options).eval()

    def inputs(batch: int) -> tuple[Any, ...]:
        return (torch.zeros(batch, 3, size, size),)

    return Entry(name=f"{name}_{size}", package="torchvision", recipe=f"classifier of {size}", make=make, inputs=inputs)


def record() -> None:
    """Keep the models and operators as texts, so that tests need no torch."""
    texts: dict[str, dict[str, str]] = {}
    for name, entry in entries().items():
        found = {form: exported(entry, form) for form in FORMS}
        texts[name] = {form: text_of(open_model(one.path)) for form, one in found.items() if not one.refused}
    keep("models", texts)
    texts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, single in SINGLES.items():
            texts[name] = {}
            for form in ("concrete", "traced"):
                path = Path(folder) / f"single{_SUFFIXES[form]}"
                if _save_single(single, form, path):
                    texts[name][form] = text_of(open_model(path))
    keep("operators", texts)
    keep("open", {name: {"dynamic": open_text(name)} for name in SYMBOLIC})
