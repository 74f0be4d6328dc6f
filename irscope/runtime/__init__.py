"""Measuring real runs on this machine; the only part of irscope that executes anything."""
