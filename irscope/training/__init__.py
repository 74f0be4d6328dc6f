"""Training steps as they were captured: operators in order, pieces of memory with their births and deaths."""
