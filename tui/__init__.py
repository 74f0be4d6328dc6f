"""The terminal UI: an app over a loaded model. View models hold the logic, widgets draw them, actions.py names every key."""
