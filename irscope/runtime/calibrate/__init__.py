"""Measuring what this machine reaches, so that predictions can be for it."""
