"""Calibrates this machine and records real runs: the only part of irscope that executes a model file."""

from __future__ import annotations
