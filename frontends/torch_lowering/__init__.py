"""Common parts of the readers of PyTorch's files: element types, symbolic sizes, and the meaning of ATen operators."""
