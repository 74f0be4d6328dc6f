"""Crafted models read nothing that is not theirs: shown by a file whose bytes must not appear, and by what was opened."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from irscope.errors import LoadError
from irscope.ir.places import Blob, FileRegion
from irscope.session import Model, open_model
from tests.frontends.onnx.crafted import CASES, HARMLESS, MARKER, Crafted, write
from tests.frontends.onnx.watch import cpu_limit, opened_files

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and FIFOs")
_PASSES = "shapes,stats,params,flops,liveness"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write(tmp_path_factory.mktemp("crafted"))


def _analyse(path: Path) -> Model:
    with cpu_limit(5):
        model = open_model(path)
        model.run(_PASSES)
    return model


def _check(case: Crafted, path: Path, canary: Path) -> None:
    with opened_files() as opened:
        if case.expected == HARMLESS:
            model = _analyse(path)
        else:
            with pytest.raises(LoadError) as caught:
                _analyse(path)
            message = str(caught.value)
            assert "\n" not in message
            assert message.isprintable()
            assert caught.value.code
            model = None
    assert not [name for name in opened if name.startswith(str(canary.parent))], opened
    assert not [name for name in opened if name.endswith(("fifo.bin", "hard-link.bin", "/dev/zero"))], opened
    if model is not None:
        _check_weights(model, canary)


def _check_weights(model: Model, canary: Path) -> None:
    """Weights lie in the model's own folders, and none has taken bytes of the canary along."""
    for body in model.program.bodies():
        for data in body.data.values():
            if isinstance(data, FileRegion):
                assert not os.path.realpath(data.path).startswith(str(canary.parent))
            elif isinstance(data, Blob):
                assert MARKER not in data.data


def test_there_are_as_many_cases_as_promised() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == 32


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_crafted_model(case: Crafted, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = models[case.name]
    folder = models["good"].parent.parent
    _check(case, path, folder / "outside" / "secret.bin")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_crafted_model_by_bare_name(case: Crafted, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without a folder must not switch the checks off."""
    path = models[case.name]
    monkeypatch.chdir(path.parent)
    _check(case, Path(path.name), models["good"].parent.parent / "outside" / "secret.bin")


def test_the_hub_layout_finds_its_weights(models: dict[str, Path]) -> None:
    graph = open_model(models["hub_cache"]).graph
    (region,) = graph.data.values()
    assert not isinstance(region, FileRegion) or Path(region.path).read_bytes() == MARKER


def test_the_same_hub_model_elsewhere_does_not(models: dict[str, Path], tmp_path: Path) -> None:
    """Copied away from its data, a model has none: links of the old place do not count."""
    shutil.copy(models["hub_cache"], tmp_path / "model.onnx")
    model = open_model(tmp_path / "model.onnx")
    assert not model.graph.data
    assert any("model.onnx.data" in diagnostic.message for diagnostic in model.diagnostics)


def test_a_writable_swap_is_noticed(models: dict[str, Path], tmp_path: Path) -> None:
    """A file replaced by a link after it was checked is not followed."""
    from irscope.frontends.onnx.tensors import ExternalFiles

    shutil.copy(models["good"], tmp_path / "model.onnx")
    data = tmp_path / "good.bin"
    data.write_bytes(b"0" * len(MARKER))
    files = ExternalFiles(tmp_path / "model.onnx")
    checked = files.find("good.bin", "w")
    assert checked is not None
    data.unlink()
    data.symlink_to(models["good"].parent.parent / "outside" / "secret.bin")
    assert files.read(checked, 0, len(MARKER)) is None
