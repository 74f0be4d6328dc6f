"""Measuring the peak rates of this machine for predictions."""

from __future__ import annotations
