"""Shapes of computation that models are made of, found in graphs whatever tool wrote them: used by `arch` and `fusion`."""
