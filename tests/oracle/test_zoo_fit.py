"""The largest batch that fits, against looking at every batch, on real models."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from irscope.ir.bind import symbol_named
from irscope.session import open_model
from irscope.tools.fit import Search
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import catalogue

pytestmark = [pytest.mark.torch, pytest.mark.full]

NAMES = (
    "alexnet",
    "densenet121",
    "googlenet",
    "llama",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "squeezenet1_0",
    "translator",
    "unet",
    "vgg11",
    "vit_b_16",
)
TARGETS = (3, 17)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_what_looking_at_every_batch_finds(name: str) -> None:
    entry = catalogue().get(name)
    if entry is None or not entry.installed:
        pytest.skip(f"{name} is not installed")
    file = exported(entry, "dynamic")
    assert not file.refused
    model = open_model(file.path)
    search = Search(model)
    symbol = symbol_named(model.program, "batch")
    assert symbol is not None
    high = model.program.symbols[symbol].bounds[1] or 1024
    for target in TARGETS:
        memory = search.need(symbol, target, {}).bytes + 1
        # What is asked for is the least that can be needed: where that does not fit nothing does.
        asked = search.formula_bytes(symbol, range(1, high + 1))
        possible = [batch for batch, size in enumerate(asked, 1) if size <= memory]
        fitting = [batch for batch in possible if search.need(symbol, batch, {}).bytes <= memory]
        found = Search(model).largest(memory, "batch", {})
        assert (found.largest, found.exhaustive) == (fitting[-1], True)
