"""Other counters of FLOPs, run on the same file, so that every difference can be explained. Their packages are never needed."""
