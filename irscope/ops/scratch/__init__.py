"""Rules for the memory that PyTorch's CUDA kernels take besides their results, by family; records of operators name them."""
