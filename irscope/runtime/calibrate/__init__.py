"""Measuring the peak rates of this machine for predictions."""
