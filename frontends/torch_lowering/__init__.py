"""What the readers of PyTorch's files share: element types, symbolic sizes, and the meaning of ATen operators."""
