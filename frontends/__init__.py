"""Readers of model files. Each turns one kind of file into a Program without executing anything in it."""
