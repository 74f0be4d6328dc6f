"""ONNX Runtime's arena (best fit with coalescing): the same decisions in the same order, without ONNX Runtime."""

from __future__ import annotations

from irscope.memory.bfc.arena import BfcArena, Chunk, Region, Strategy

__all__ = ["BfcArena", "Chunk", "Region", "Strategy"]
