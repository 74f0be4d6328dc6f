"""Reads .onnx files: every operator set in the wild, functions, subgraphs, quantised and sparse tensors, external data."""

from irscope.frontends.onnx.program import load, load_model

__all__ = ["load", "load_model"]
