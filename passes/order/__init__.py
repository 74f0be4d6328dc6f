"""In which order nodes run, and where each tensor lies then: `schedule`, `plan`, `reorder`, `recompute`, and what every order keeps."""
