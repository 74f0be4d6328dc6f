"""Memory of devices: what models and training steps ask for, what allocators make of it, and how that depends on sizes."""
