"""The graph: what is around a node, and the whole of it as a layered drawing that folds."""
