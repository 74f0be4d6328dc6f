"""Joint graphs of PyTorch, forward and backward in one, as problems of checkpointing; and plans as policies for live modules."""
