"""No string of a model file can do anything to a terminal, and widths are what a terminal shows."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report.printable import cut_middle, display_width, pad, printable, well_formed

any_text = st.text(st.characters())


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("conv1.weight", "conv1.weight"),
        ("naïve 日本", "naïve 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("\x9b", "\\x9b"),
        ("\u202e\u2066\u200f\u061c", "\\u202e\\u2066\\u200f\\u061c"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_known_strings(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(any_text)
def test_nothing_dangerous_remains(raw: str) -> None:
    shown = printable(raw)
    assert [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")] == []
    assert [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")] == []


@given(any_text, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_the_result_can_be_written(raw: str, encoding: str) -> None:
    shown = printable(raw, encoding)
    assert shown.encode(encoding).decode(encoding) == shown
    assert printable(shown, encoding) == shown


@given(any_text)
def test_well_formed_changes_lone_surrogates_only(raw: str) -> None:
    fixed = well_formed(raw)
    fixed.encode("utf-8")
    if not any("\ud800" <= c <= "\udfff" for c in raw):
        assert fixed == raw


@pytest.mark.parametrize(("text", "width"), [("", 0), ("abc", 3), ("日本", 4), ("ｗ", 2), ("e\u0301", 1), ("\u20dd", 0), ("…─", 2)])
def test_width(text: str, width: int) -> None:
    assert display_width(text) == width


@given(st.text(), st.integers(1, 30), st.sampled_from(["…", "..."]))
def test_cut_is_both_ends_and_fits(raw: str, width: int, ellipsis: str) -> None:
    text = printable(raw)
    cut = cut_middle(text, width, ellipsis)
    assert display_width(cut) <= width
    if display_width(text) <= width:
        assert cut == text
    elif width > display_width(ellipsis):
        head, _, tail = cut.partition(ellipsis) if ellipsis not in text else ("", "", "")
        assert text.startswith(head)
        assert text.endswith(tail)


def test_cut_keeps_both_ends() -> None:
    assert cut_middle("encoder.layer.3.attention.q", 13) == "encode…tion.q"
    assert cut_middle("日本語日本語", 7) == "日…本語"


def test_pad() -> None:
    assert pad("日", 4) == "日  "
    assert pad("7", 3, right=True) == "  7"
