"""What `training` and `activations` stand on: requests of whole training steps, in order."""
