"""Shared by `training` and `activations`: allocator requests of whole training steps, in order."""
