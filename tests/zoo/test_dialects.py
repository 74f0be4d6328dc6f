"""The same model in three kinds of file: the same parameters, the same products, the same results."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch")

from tests.tools.zoo.dialects import MODELS, differences, read
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import catalogue

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_three_files_of_a_model_agree(name: str) -> None:
    if name not in catalogue():
        pytest.skip("torchvision or transformers is not installed")
    _compare(name)


@pytest.mark.parametrize("name", ["experts"])
def test_three_files_of_a_small_model_agree(name: str) -> None:
    _compare(name)


def _compare(name: str) -> None:
    if importlib.util.find_spec("onnxscript") is None:
        pytest.skip("onnxscript, which torch.onnx.export needs, is not installed")
    entry = catalogue()[name]
    pt2, traced, onnx = (read(exported(entry, form)) for form in ("concrete", "traced", "onnx"))
    assert pt2.uncounted == traced.uncounted == onnx.uncounted == ()
    assert pt2.products == traced.products == onnx.products
    assert pt2.results == traced.results == onnx.results
    assert pt2.parameters == traced.parameters
    found = differences(pt2.program, onnx.program)
    assert found.unexplained == []
    # Every folded normalization had a weight, a bias and two statistics, and left one bias.
    assert len(found.folded) == 4 * len(found.added)
