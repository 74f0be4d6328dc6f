"""Memory of ONNX Runtime: the order in which it runs kernels, which buffers it reuses, and what its arena holds in two runs."""

from __future__ import annotations

from irscope.passes.ort.model import OrtOptions, OrtPlan, plan_ort
from irscope.passes.ort.simulated import OrtFigures, OrtRun, OrtUsage

__all__ = ["OrtFigures", "OrtOptions", "OrtPlan", "OrtRun", "OrtUsage", "plan_ort"]
