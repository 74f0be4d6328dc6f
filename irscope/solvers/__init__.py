"""Searches with proven bounds: orders of least memory, what a training step recomputes, addresses of buffers in one arena."""
