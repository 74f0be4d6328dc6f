"""What `flops` and `bytes` stand on: the cost of every node, their sums, and where each number comes from."""
