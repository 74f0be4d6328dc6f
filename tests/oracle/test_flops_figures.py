"""FLOPs of the 21 models and of single operators, as kept texts, against references; formulas that were derived by hand."""

from __future__ import annotations

import pytest

from irscope.ir.dims import bind
from irscope.ir.parser import parse_program
from irscope.passes.cost.flops import Flops
from irscope.passkit.manager import Manager
from tests.tools.oracle.flops_by_hand import BY_HAND
from tests.tools.oracle.flops_figures import FORMS, from_text, kept, references
from tests.tools.oracle.flops_table import reference

HAND_FORMULAS = {
    "gpt2": "36864*B*S^2 + 247064064*B*S",
    "llama": "36864*B*S^2 + 200146944*B*S",
    "vit_b_16": "35127656448*B",
    "resnet50": "8178368512*B",
}


@pytest.mark.parametrize("name", sorted(references()["models"]))
def test_models(name: str) -> None:
    forms = kept("models")[name]
    # The exporter to ONNX refuses the mixture of experts.
    assert set(forms) == (set(FORMS) - {"onnx"} if name.startswith("mixtral") else set(FORMS))
    figures = [from_text(name, form, text, reference("models", name)) for form, text in forms.items()]
    assert [figure.line() for figure in figures if not figure.good] == []


def test_there_are_21_models_and_39_operators_with_products() -> None:
    assert len(references()["models"]) == 21
    assert sum(macs > 0 for macs in references()["operators"].values()) == 39


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_references_are_those_derived_by_hand(name: str) -> None:
    assert references()["models"][name]["flops"] == 2 * BY_HAND[name]()


@pytest.mark.slow
def test_operators() -> None:
    texts = [(name, form, text) for name, forms in kept("operators").items() for form, text in forms.items()]
    figures = [from_text(name, form, text, reference("operators", name)) for name, form, text in texts]
    assert len(figures) >= 90
    assert [figure.line() for figure in figures if not figure.good] == []


@pytest.mark.parametrize("name", sorted(HAND_FORMULAS))
def test_formulas_in_batch_and_length(name: str) -> None:
    """The count is exactly the polynomial that was derived by hand, whatever the sizes are called in the file."""
    program = parse_program(kept("open")[name]["dynamic"])
    total = Manager(program).get(Flops()).total.matmul
    assert str(total).replace("**", "^") == HAND_FORMULAS[name]


@pytest.mark.parametrize(("batch", "length"), [(1, 128), (1, 1024), (8, 1024)])
def test_a_formula_gives_the_count_at_every_size(batch: int, length: int) -> None:
    program = parse_program(kept("open")["gpt2"]["dynamic"])
    total = Manager(program).get(Flops()).total.matmul
    width = 768
    macs = batch * (12 * (12 * length * width**2 + 2 * length**2 * width) + length * width * 50257)
    assert bind(total, {"B": batch, "S": length}) == 2 * macs
