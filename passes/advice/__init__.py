"""Findings of `advise`, and the sources that produce them."""
