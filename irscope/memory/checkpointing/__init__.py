"""Which storages of a training step to free after the forward and to make again for the backward."""
