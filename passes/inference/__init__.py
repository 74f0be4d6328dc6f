"""How the `shapes` pass works types out: one engine over the operators' rules, and what control flow and lists need besides."""
