"""What looks at or changes the graph alone."""
