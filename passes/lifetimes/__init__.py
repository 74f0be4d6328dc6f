"""What `alias`, `ranges` and `liveness` stand on: strides, Python frames and variables, and what goes on inside a node."""
