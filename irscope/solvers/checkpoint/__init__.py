"""Checkpointing: which storages of a training step are freed after the forward and recomputed for the backward."""
