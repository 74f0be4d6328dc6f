"""Words by which the site's search finds pages, and pages that it lists first: mkdocs.yml names this module as a hook."""

from __future__ import annotations

from typing import Any

_WEIGHTS = {"How do I ...": 1.2, "Contributing": 0.3}
"""Weights of pages in a search, by their part of the site: answers come before the inside of irscope."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> None:
    """Give a page the words of readers that its text does not have, from `search_words` of mkdocs.yml, and its part's weight."""
    if words := config["extra"]["search_words"].get(page.file.src_uri):
        page.meta["tags"] = words.split()
    part = page.ancestors[-1].title if page.ancestors else ""
    page.meta["search"] = {"boost": _WEIGHTS.get(part, 1.0)}
