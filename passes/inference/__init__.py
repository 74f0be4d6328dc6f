"""How the `shapes` pass works types out: one engine over the operators' rules, and what control flow and lists need besides."""

from __future__ import annotations

import irscope.passes.inference.regions  # noqa: F401  # the engine asks it how control flow and lists are inferred
