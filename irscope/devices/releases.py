"""Releases of PyTorch and of ONNX Runtime: all in which they differ, as far as predictions ask."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from dataclasses import replace
from typing import Final, Literal

from irscope.errors import UsageError
from irscope.immutable import immutable

Order = Literal["address", "block", "segment"]
"""The order of free blocks of one size: the lowest address, the block or the segment that was made first."""


@immutable
class Release:
    """One release; defaults are those of the oldest that is known."""

    version: tuple[int, int]
    options: frozenset[str]
    """Those of PYTORCH_CUDA_ALLOC_CONF."""
    cuda: str = "12.8"
    """The version of CUDA that `pip install torch` brings."""
    order: Order = "address"
    old_reader: bool = True
    """Limits of block sizes must exceed a segment, and `>` in roundup_power2_divisions also overrides the size before it."""
    old_fraction: bool = True
    """A memory fraction of 1 set by a program is a limit too, and limits are rounded down."""
    # Workspaces of cuBLAS: aten/src/ATen/cuda/CublasHandlePool.cpp, and the allocator's own traces of each release.
    large_workspace_after_hopper: bool = False
    """Devices newer than capability 9.0 have the large workspace too."""
    cublas_workspace_kept: bool = True
    lt_workspace: Literal["own", "own, kept", "cublas", "own alone"] = "own"
    """The buffer of cuBLASLt: one of its own beside that of cuBLAS, which calls share where it is kept, that of cuBLAS, or nothing else."""
    # Scratch memory of kernels.
    truths_in_bytes: bool = False
    """`any` and `all` reduce in one byte."""
    ranges_at_once: bool = False
    """The smallest and the largest element are found in one pass."""
    keeps_bounds: bool = False
    """The smallest and the largest index stay until both are checked."""
    widens_group_norm: bool = False
    """Statistics of a group norm of 16 bits are also made in single precision."""
    copies_after_result: bool = False
    """A group norm makes its result before a contiguous copy of its input."""
    group_norm_of_channels_last: bool = False
    """A group norm takes channels_last as it is, and channels of one element like others."""
    widens_attention: bool = False
    """Attention of fewer than four axes gets the others, and may be efficient attention."""
    seeds_on_device: bool = False
    """Efficient attention without dropout leaves its seeds on the device."""
    samples_from_normalised: bool = False
    """multinomial normalises without a copy of the distribution."""

    @property
    def name(self) -> str:
        """Return the release as texts have it, such as 2.13."""
        return "{}.{}".format(*self.version)


_2_8: Final = Release(
    (2, 8),
    frozenset(
        {
            "backend",
            "expandable_segments",
            "garbage_collection_threshold",
            "max_non_split_rounding_mb",
            "max_split_size_mb",
            "pinned_num_register_threads",
            "pinned_use_background_threads",
            "pinned_use_cuda_host_register",
            "release_lock_on_cudamalloc",
            "roundup_power2_divisions",
        }
    ),
)
_2_9: Final = replace(_2_8, version=(2, 9), options=_2_8.options | {"graph_capture_record_stream_reuse"}, lt_workspace="own, kept")
_2_10: Final = replace(
    _2_9,
    version=(2, 10),
    options=_2_9.options | {"per_process_memory_fraction", "pinned_reserve_segment_size_mb"},
    old_reader=False,
    old_fraction=False,
)
_2_11: Final = replace(_2_10, version=(2, 11), options=_2_10.options | {"large_segment_size_mb"}, cuda="13.0")
_2_12: Final = replace(
    _2_11,
    version=(2, 12),
    options=_2_11.options | {"pinned_free_catch_all", "throw_on_cudamalloc_oom"},
    order="block",
    large_workspace_after_hopper=True,
    lt_workspace="cublas",
    truths_in_bytes=True,
    ranges_at_once=True,
)
_2_13: Final = replace(
    _2_12,
    version=(2, 13),
    options=_2_12.options | {"pinned_max_cached_size_mb", "pinned_max_round_threshold_mb"},
    order="segment",
    keeps_bounds=True,
    widens_group_norm=True,
)
_2_14: Final = replace(_2_13, version=(2, 14), copies_after_result=True, widens_attention=True, seeds_on_device=True)
_2_15: Final = replace(
    _2_14,
    version=(2, 15),
    options=_2_14.options | {"expandable_segments_reserve", "expandable_segments_reserve_by_class"},
    cublas_workspace_kept=False,
    lt_workspace="own alone",
    group_norm_of_channels_last=True,
    samples_from_normalised=True,
)
RELEASES: Final = {one.version: one for one in (_2_8, _2_9, _2_10, _2_11, _2_12, _2_13, _2_14, _2_15)}
"""Releases whose rules irscope knows, oldest first."""
DEFAULT_RELEASE: Final = _2_13
"""The one that is taken where no torch is installed, and whose compiler was compared with what its CUDA build counts."""


def release_named(text: str) -> Release:
    """Return the release of a version such as 2.13 or 2.13.0+cu130. Raises UsageError for one whose rules are not known."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)([.+a-z].*)?", text.strip(), re.ASCII)
    release = RELEASES.get((int(match[1]), int(match[2]))) if match else None
    if release is None:
        known = ", ".join(one.name for one in RELEASES.values())
        raise UsageError(f"the rules of torch {text!r} are not known", code="IRS641", hint=f"versions: {known}")
    return release


# ONNX Runtime: releases whose sessions are predicted, and how an earlier one differs from the newest that is known.

NEWEST_ORT: Final = "1.31"
_ORT_METADATA: Final = re.compile(r"onnxruntime(?:_gpu)?-(\d[^-]*)\.dist-info")


@immutable
class OrtRules:
    """Rules of a release."""

    version: str
    without: frozenset[str] = frozenset()
    """Transformers that NEWEST_ORT has and this release does not."""
    unlike: str = ""
    """Differences that were measured and are not followed."""


ORT_RULES: Final = {
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
    NEWEST_ORT: OrtRules(NEWEST_ORT),
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
    version = _minor(asked) if asked else _minor(_installed_ort()) or NEWEST_ORT
    if not version:
        hint = f"such as {NEWEST_ORT}; rules are known of {', '.join(ORT_RULES)}"
        raise UsageError(f"{asked!r} is not a version of ONNX Runtime", code="IRS641", where="--ort", hint=hint)
    return OrtRelease(version, ORT_RULES.get(version, ORT_RULES[NEWEST_ORT]))


def _minor(text: str) -> str:
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?([a-z.+].*)?", text.strip())
    return match[1] if match else ""


@functools.cache
def _installed_ort() -> str:
    """Return the version of the installed package, from the name of the folder of its metadata: importlib.metadata imports much."""
    spec = importlib.util.find_spec("onnxruntime")
    for package in spec.submodule_search_locations or () if spec is not None else ():
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(os.path.dirname(package))):
                if match := _ORT_METADATA.fullmatch(name):
                    return match[1]
    return ""
