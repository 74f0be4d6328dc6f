"""What the readers of PyTorch's files share: archives, pickles, element types and the meaning of ATen operators."""
