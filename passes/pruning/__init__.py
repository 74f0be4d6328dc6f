"""Shared by the passes about pruning: which slices of tensors are coupled, which may be removed, and what that saves."""
