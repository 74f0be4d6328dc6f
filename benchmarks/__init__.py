"""Benchmarks: `make bench`. Machines are noisy, so every figure stands beside a calibration loop and peers of the same run."""
