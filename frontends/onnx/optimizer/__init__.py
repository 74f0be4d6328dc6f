"""ONNX Runtime's graph optimisations, predicted: its own transformers, in its order, on the graph as the file has it."""
