"""Shared by `alias`, `ranges` and `liveness`: strides, Python frames and variables, and temporaries inside a node."""
