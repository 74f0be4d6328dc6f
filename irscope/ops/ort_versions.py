"""Releases of ONNX Runtime whose sessions are predicted, and how an earlier one differs from the newest that is known."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from typing import Final

from irscope.errors import UsageError
from irscope.immutable import immutable

NEWEST: Final = "1.31"
_METADATA: Final = re.compile(r"onnxruntime(?:_gpu)?-(\d[^-]*)\.dist-info")


@immutable
class OrtRules:
    """Rules of a release."""

    version: str
    without: frozenset[str] = frozenset()
    """Transformers that NEWEST has and this release does not."""
    unlike: str = ""
    """Differences that were measured and are not followed."""


RULES: Final = {
    "1.20": OrtRules(
        "1.20",
        # From what sessions of 1.20.1 and 1.31.1 log of the same file (log_severity_level = 0).
        frozenset(
            {
                "SliceConcatToSpaceToDepthFusion",
                "WeightBiasQuantization",
                "WhereDummyDq",
                "GroupQueryAttentionFusion",
                "BiasSkipLayerNormFusion",
                "GroupQueryAttentionPreNormFusion",
                "FuseFp16InitializerToFp32NodeTransformer",
            }
        ),
        # Operators of 57 graphs that 1.20.1 and 1.31.1 saved as optimized_model_filepath: 17 differ beyond the list above.
        "its sessions keep more of the operators that compute shapes for Reshape, Gelu apart from a bias, additions after quantised "
        "products, and reorders of blocked channels",
    ),
    NEWEST: OrtRules(NEWEST),
}


@immutable
class OrtRelease:
    """The release that a prediction is for, and the rules that it follows."""

    version: str
    rules: OrtRules

    @property
    def text(self) -> str:
        """Such as "1.31", or "1.25 by the rules of 1.31"."""
        return self.version if self.version == self.rules.version else f"{self.version} by the rules of {self.rules.version}"

    @property
    def note(self) -> str:
        """Return what is not known of the release, empty where it is the one whose rules were measured."""
        if self.version != self.rules.version:
            return f"the rules are those of onnxruntime {self.rules.version}: how {self.version} differs was not measured"
        return f"of onnxruntime {self.version} not all is followed: {self.rules.unlike}" if self.rules.unlike else ""


def ort_release(asked: str) -> OrtRelease:
    """Return the release named as in onnxruntime.__version__, 1.31 or 1.31.1; without a name the installed one, else the newest known."""
    version = _minor(asked) if asked else _minor(_installed()) or NEWEST
    if not version:
        hint = f"such as {NEWEST}; rules are known of {', '.join(RULES)}"
        raise UsageError(f"{asked!r} is not a version of ONNX Runtime", code="IRS641", where="--ort", hint=hint)
    return OrtRelease(version, RULES.get(version, RULES[NEWEST]))


def _minor(text: str) -> str:
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?([a-z.+].*)?", text.strip())
    return match[1] if match else ""


@functools.cache
def _installed() -> str:
    """Return the version of the installed package, from the name of the folder of its metadata: importlib.metadata imports much."""
    found = importlib.util.find_spec("onnxruntime")
    for package in found.submodule_search_locations or () if found is not None else ():
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(os.path.dirname(package))):
                if match := _METADATA.fullmatch(name):
                    return match[1]
    return ""
