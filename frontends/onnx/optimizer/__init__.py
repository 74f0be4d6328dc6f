"""What ONNX Runtime's graph optimisations make of a model: its own transformers, in its order, on the graph as the file has it."""
