"""ONNX Runtime's arena (best fit with coalescing): the same decisions in the same order, without ONNX Runtime."""

from __future__ import annotations

from irscope.memory.bfc.arena import BfcArena
from irscope.memory.bfc.chunks import Chunk, Region
from irscope.memory.bfc.growth import Strategy

__all__ = ["BfcArena", "Chunk", "Region", "Strategy"]
