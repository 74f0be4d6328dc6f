"""What `roofline` and `energy` stand on: rates by element type, where operands come from, and the least time of every node."""
