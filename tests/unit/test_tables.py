"""`every`: a test over a table is one case that lists every offender."""

from __future__ import annotations

import inspect

import pytest

from tests.tables import every


def test_every_offender_is_listed_and_no_row_hides_another() -> None:
    @every(("left", "right"), [(1, 1), (1, 2), (3, 3), (4, 5)])
    def equal(left: int, right: int) -> None:
        assert left == right

    with pytest.raises(ExceptionGroup, match="2 of 4: 1 2, 4 5") as caught:
        equal()
    assert len(caught.value.exceptions) == 2


def test_tables_multiply_and_fixtures_stay() -> None:
    seen = []

    @every("first", "ab")
    @every("second", (1, 2), ids=lambda number: f"no. {number}")
    def pairs(first: str, second: int, given: list[str]) -> None:
        seen.append((first, second))
        if second == 2:
            pytest.skip("as a row may")
        if first == "b":
            pytest.fail("b")

    assert list(inspect.signature(pairs).parameters) == ["given"]
    with pytest.raises(ExceptionGroup, match="1 of 2: b"):
        pairs(given=[])
    assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
