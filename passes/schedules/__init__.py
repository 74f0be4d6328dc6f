"""Shared by `schedule`, `reorder` and `plan`: the scheduling problem of a model's nodes, and the explanation of its solution."""
