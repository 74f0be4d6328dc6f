"""What PyTorch's CUDA allocator counts while a model is loaded and run: its requests in order, and their replay."""
