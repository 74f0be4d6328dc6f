"""Shared by `roofline` and `energy`: peak rates by element type, cache reuse, and the least time of every node."""
