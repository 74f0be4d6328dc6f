"""The Memory screen: what is alive at each step, what it is made of, and why."""
