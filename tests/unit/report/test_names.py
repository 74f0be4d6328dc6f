"""Names in little room: what tells them apart stays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from irscope.report.names import cut_name, cut_names
from irscope.report.printable import display_width, printable
from tests.tables import every

WEIGHT = "model.layers.17.self_attn.q_proj.weight"
BLOCK = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LLAMA = [f"model.layers.{layer}.{part}.weight" for layer in (1, 2, 17, 31) for part in BLOCK] + [
    "model.embed_tokens.weight",
    "lm_head.weight",
]
RESNET = [
    f"/layer{stage}/layer{stage}.{block}/{part}/{op}_output_0"
    for stage in (1, 2, 3, 4)
    for block in (0, 1, 2)
    for part, op in (("conv1", "Conv"), ("conv2", "Conv"), ("relu", "Relu"))
]

part = st.sampled_from(
    ["model", "layers", "encoder", "decoder", "0", "1", "11", "17", "q_proj", "k_proj", "attn", "mlp", "weight", "bias", "h1"]
)
name = st.lists(part, min_size=1, max_size=9).map(".".join)
text = st.text(max_size=60).map(printable)


def is_made_of(cut: str, whole: str, ellipsis: str, at: int = 0) -> bool:
    """Whether the pieces between the ellipses stand in the text, one behind the other. Of dots in a row, any three may be the ellipsis."""
    places = [place for place in range(len(cut)) if cut.startswith(ellipsis, place)]
    if not places:
        return whole.find(cut, at) >= 0
    starts = ((place, whole.find(cut[:place], at)) for place in places)
    return any(start >= 0 and is_made_of(cut[place + len(ellipsis) :], whole, ellipsis, start + place) for place, start in starts)


@pytest.mark.parametrize(
    ("whole", "width", "cut"),
    [
        (WEIGHT, 39, WEIGHT),
        (WEIGHT, 30, "…17.self_attn.q_proj.weight"),
        (WEIGHT, 25, "…17…attn.q_proj.weight"),
        (WEIGHT, 18, "…17…q_proj.weight"),
        ("/layer1/layer1.0/conv1/Conv_output_0", 31, "…layer1.0/conv1/Conv_output_0"),
        ("encoder.layer.3.attention.q", 10, "…3…ntion.q"),
        ("日本語日本語", 7, "日…本語"),
    ],
)
def test_numbers_and_the_name_of_the_variable_stay(whole: str, width: int, cut: str) -> None:
    assert cut_name(whole, width) == cut


@every("names", [LLAMA, RESNET], ids=["llama", "resnet"])
@every("width", [14, 16, 18, 24, 30])
@every("ellipsis", ["…", "..."])
def test_names_of_a_column_stay_different(names: list[str], width: int, ellipsis: str) -> None:
    if ellipsis == "..." and width < 18:
        width = 18
    cut = cut_names(names, width, ellipsis)
    assert len(set(cut)) == len(names)
    if width >= 18 and ellipsis == "…":
        numbers = [[part for part in whole.replace("/", ".").split(".") if part.isdigit()] for whole in names]
        assert all(number in short for short, found in zip(cut, numbers, strict=True) for number in found)


def test_what_all_names_of_a_column_have_goes_first() -> None:
    cut = cut_names([f"transformer.encoder.block.{number}.dense.kernel" for number in range(12)], 24)
    assert cut[7] == "…block.7.dense.kernel"
    ends = cut_names([f"net.{part}.of.a.very.long.tail.of.names.weight" for part in ("left", "right")], 18)
    assert [part in cut for part, cut in zip(("left", "right"), ends, strict=True)] == [True, True]


def test_long_columns_and_hostile_names_are_cut_in_reasonable_time() -> None:
    names = [f"model.layers.{number}.self_attn.q_proj.weight" for number in range(5_000)]
    cut = cut_names(names, 24)
    assert all(len(set(cut[at : at + 1_000])) == 1_000 for at in range(0, 5_000, 1_000))
    assert display_width(cut_name("a." * 500_000, 20)) <= 20
    assert display_width(cut_name("x" * 1_000_000, 20)) <= 20
    assert len(set(cut_names(["a" * 100_000 + end for end in "xyz"], 20))) == 3


@example(["11.layers"], 8, "...")
@given(st.lists(name | text, max_size=12), st.integers(0, 45), st.sampled_from(["…", "..."]))
def test_cuts_fit_and_are_made_of_the_name(names: list[str], width: int, ellipsis: str) -> None:
    found = cut_names(names, width, ellipsis)
    assert len(found) == len(names)
    for whole, cut in zip(names, [*found, *(cut_name(name, width, ellipsis) for name in names)][: len(names)], strict=True):
        assert display_width(cut) <= width
        assert (cut == whole) == (display_width(whole) <= width) or width <= len(ellipsis) or ellipsis in whole
        assert width <= len(ellipsis) or ellipsis in whole or is_made_of(cut, whole, ellipsis)
    for name in names:
        alone = cut_name(name, width, ellipsis)
        assert display_width(alone) <= width
        assert width <= len(ellipsis) or ellipsis in name or is_made_of(alone, name, ellipsis)


def room_to_differ(names: list[str]) -> int:
    """The room in which the characters at which names differ, each between ellipses, are told apart."""
    order = sorted(names)
    places = [next((at for at, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), None) for a, b in pairwise(order)]
    return 0 if None in places else 1 + 2 * len(set(places))


@given(st.lists(name, min_size=2, max_size=8, unique=True), st.integers(0, 30))
def test_different_names_are_never_shown_as_one_where_the_room_is_enough(names: list[str], more: int) -> None:
    room = room_to_differ(names)
    if room:
        cut = cut_names(names, room + more)
        assert len(set(cut)) == len(names), cut
