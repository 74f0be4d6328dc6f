"""How right the inferred shapes are, over the models that the installed onnx package brings with their reference results."""
