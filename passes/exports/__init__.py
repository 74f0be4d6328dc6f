"""The predicted timeline of memory in the formats of other viewers: PyTorch's memory_viz, Perfetto, spreadsheets."""
