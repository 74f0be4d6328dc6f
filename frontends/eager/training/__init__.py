"""Whole training steps of live modules, recorded under fake tensors."""
