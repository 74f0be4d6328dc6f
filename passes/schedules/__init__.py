"""What `schedule`, `reorder` and `plan` stand on: the problem of ordering a model's nodes, and what to say about its answer."""
