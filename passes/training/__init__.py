"""Shared by `training`, `activations` and `checkpoint`: allocator requests of whole training steps, in order."""
