"""View models: what the screen shows and how it reacts, in plain Python without Textual."""
