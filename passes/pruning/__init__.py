"""What `prune-report` stands on: which slices of tensors must go together, which may go, and what that saves."""
