"""Live modules: one forward under fake tensors on a simulated device, recorded with the live ranges of its storages."""
