"""Memory of ONNX Runtime: the order in which it runs kernels, which buffers it reuses, and what its arena holds in two runs."""

from __future__ import annotations

from irscope.passes.ort.figures import OrtFigures, OrtRun, OrtUsage
from irscope.passes.ort.model import OrtOptions, OrtPlan, plan_ort

__all__ = ["OrtFigures", "OrtOptions", "OrtPlan", "OrtRun", "OrtUsage", "plan_ort"]
