"""Where programs come from: readers of model files, which execute nothing in them, and captures of live modules and models by name."""
