"""Addresses for buffers of known lifetimes in one arena, as low as they go."""
