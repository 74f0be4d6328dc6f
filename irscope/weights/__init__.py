"""Values of weights, read in windows: statistics, structure, rounding errors. Only numpy is needed."""
