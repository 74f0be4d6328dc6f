"""What a user says about a run besides its passes; analyses that read a setting are computed again when it changes."""

from __future__ import annotations

from irscope.immutable import immutable


@immutable(slots=False)
class Settings:
    """Defaults for options that many passes share."""

    device: str = ""
    """Device profile that sizes, kernels and times are meant for."""
    chosen: str = ""
    """Why it is this one, where nobody named it."""
    torch: str = ""
    """Version of torch whose rules are meant, for example 2.13."""
    alloc_conf: str = ""
    """Options of PyTorch's allocator as the variable PYTORCH_CUDA_ALLOC_CONF holds them."""
    ort: str = ""
    """Version of ONNX Runtime whose sessions are meant; empty for the installed one, else the newest known."""
    strict: bool = False
    """True where anything unknown is an error."""
