"""Shared by `flops` and `bytes`: the cost of every node, their sums, and where each number comes from."""
