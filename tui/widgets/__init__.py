"""Thin widgets that draw what the view models say, one visible line at a time."""
