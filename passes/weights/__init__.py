"""Parameters and buffers, and the values that they hold: `params`, `quantize-error`."""
