"""The page on the screens of the UI against the UI."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from irscope.tui.actions import SCREENS, ScreenRecord
from irscope.tui.browse.filter import HELP, parse_filter

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tui-screens.md").read_text("utf-8")


@pytest.mark.parametrize("record", SCREENS, ids=lambda record: record.name)
def test_every_screen_has_a_part_with_a_picture(record: ScreenRecord) -> None:
    _, heading, rest = PAGE.partition(f"## {record.key} {record.title}\n")
    assert heading
    assert f"![{record.title}](images/tui-" in rest.partition("\n## ")[0]


def test_every_picture_is_there_and_fetches_no_font() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", PAGE)
    assert pictures
    for picture in pictures:
        text = (ROOT / "docs" / picture).read_text("utf-8")
        assert "</svg>" in text
        assert "@font-face" not in text


@pytest.mark.parametrize("word", [word for word, _ in HELP if word != "word"])
def test_every_word_of_a_filter_is_explained_and_makes_sense(word: str) -> None:
    parse_filter(word)
    name, colon, _ = word.partition(":")
    assert not colon or f"`{name}:" in PAGE
