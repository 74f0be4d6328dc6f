"""Files of weights and text, and what PyTorch's formats are stored in: zip archives and pickles."""
