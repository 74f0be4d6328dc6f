"""Running a model to measure it: times and memory of every operator, with PyTorch or ONNX Runtime."""

from __future__ import annotations
