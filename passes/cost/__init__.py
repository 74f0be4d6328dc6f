"""What a model computes and moves, and the least time and energy that takes: `flops`, `bytes`, `layers`, `roofline`, `energy`."""
