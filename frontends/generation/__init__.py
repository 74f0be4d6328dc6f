"""Language models that generate: what they are loaded from, and the program that loads and runs them on a simulated device."""
