"""Simulation of PyTorch's CUDA allocator while a model is loaded and run: the requests in order, and their replay."""
