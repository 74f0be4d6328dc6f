"""Plans of what to recompute in live modules: made from a recorded step, applied by `torch.utils.checkpoint`, and measured."""
