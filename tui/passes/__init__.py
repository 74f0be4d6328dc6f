"""The Passes screen: a pipeline, step by step, over a copy of the model."""
