"""Predicted timelines and plans of memory in the formats of other viewers: memory_viz, Perfetto, speedscope, Netron, spreadsheets."""
