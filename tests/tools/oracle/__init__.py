"""What predictions are held against: recordings, counts by hand, other runtimes, and what prints them side by side."""
