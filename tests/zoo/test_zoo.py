"""Every tensor of exported models is inferred from the inputs alone, and equals what the file records or a run returns."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

from irscope.ir.dims import symbol, unknown
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from tests.tables import every
from tests.tools.zoo.check import Correspondence, Verdict, check, recheck
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import Entry, catalogue
from tests.tools.zoo.refused import NOT_FOLLOWED, REFUSED

pytestmark = [
    pytest.mark.torch,
    # Exporting warns of whatever the packages' own code uses.
    pytest.mark.filterwarnings("ignore"),
]
PLAIN = ("unet", "translator", "experts", "speech", "waves", "points")
PACKAGED = {"torchvision": ("mobilenet_v3_small",), "transformers": ("llama",)}
LEAST_ACCEPTED = {("torchvision", "concrete"): 105, ("torchvision", "dynamic"): 105, ("transformers", "concrete"): 70}


def verdict_of(entry: Entry, form: str) -> Verdict:
    """Export (or take what was exported before) and check."""
    return check(exported(entry, form))


def complaints(verdict: Verdict) -> list[str]:
    """Everything that is wrong with a verdict."""
    found = [*verdict.mismatches, *(f"no record of {name}" for name in verdict.unknown_operators)]
    if verdict.error:
        found.append(verdict.error)
    wanted = REFUSED[verdict.form].get(verdict.name, "")
    if bool(verdict.refused) is not bool(wanted) or wanted not in verdict.refused:
        found.append(f"the exporter said {verdict.refused!r}, not {wanted!r}")
    return [f"{verdict.name}, {verdict.form}: {text}" for text in found]


@every("form", ["concrete", "dynamic", "decomposed", "traced", "scripted"])
@every("name", PLAIN)
def test_models_of_torch_alone(name: str, form: str) -> None:
    verdict = verdict_of(catalogue()[name], form)
    assert complaints(verdict) == []
    assert verdict.tensors > 0


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in PACKAGED.items() for name in names])
def test_models_of_packages(package: str, name: str) -> None:
    pytest.importorskip(package) if package != "torchvision" else _need_torchvision()
    verdicts = [verdict_of(catalogue()[name], form) for form in ("concrete", "dynamic", "traced")]
    assert [text for verdict in verdicts for text in complaints(verdict)] == []


def _need_torchvision() -> None:
    """torchvision may be importable only with the zoo's help."""
    if not any(entry.package == "torchvision" for entry in catalogue().values()):
        pytest.skip("torchvision is not installed")


@pytest.mark.full
@pytest.mark.parametrize("form", ["concrete", "dynamic", "decomposed", "traced"])
@pytest.mark.parametrize("package", ["torchvision", "transformers"])
def test_all_models(package: str, form: str) -> None:
    entries = [entry for entry in catalogue().values() if entry.package == package]
    if not entries:
        pytest.skip(f"{package} is not installed")
    verdicts = [verdict_of(entry, form) for entry in entries]
    assert [text for verdict in verdicts for text in complaints(verdict)] == []
    assert sum(not verdict.refused for verdict in verdicts) >= LEAST_ACCEPTED.get((package, form), 70)


@pytest.mark.full
def test_all_scripted_models_of_torchvision() -> None:
    _need_torchvision()
    entries = [entry for entry in catalogue().values() if entry.package == "torchvision" and entry.name not in NOT_FOLLOWED]
    verdicts = [verdict_of(entry, "scripted") for entry in entries]
    assert [text for verdict in verdicts for text in complaints(verdict)] == []
    assert len(verdicts) >= 100


def test_a_wrong_record_is_found(tmp_path: Path) -> None:
    """The check itself can fail: a size and an element type are changed in the file."""
    path = exported(catalogue()["unet"], "concrete").path
    assert recheck(path).good
    for key, value in (("sizes", [{"as_int": 3}, {"as_int": 8}, {"as_int": 30}, {"as_int": 23}]), ("dtype", 6)):
        changed = tmp_path / f"{key}.pt2"
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
            for entry in source.infolist():
                content = source.read(entry)
                if entry.filename.endswith("models/model.json"):
                    document = json.loads(content)
                    document["graph_module"]["graph"]["tensor_values"]["leaky_relu_"][key] = value
                    content = json.dumps(document).encode()
                target.writestr(entry.filename, content)
        verdict = recheck(changed)
        assert len(verdict.mismatches) == 1
        assert "leaky_relu_" in verdict.mismatches[0]


def test_sizes_that_depend_on_data_correspond_one_to_one() -> None:
    names = Correspondence()
    theirs, other = unknown("file.u0"), unknown("file.u1")
    ours = unknown("u7")
    assert names.same(tensor(DType.F32, (theirs, 4)), tensor(DType.F32, (ours, 4)))
    assert names.same(tensor(DType.F32, (theirs * 2,)), tensor(DType.F32, (ours * 2,)))
    assert not names.same(tensor(DType.F32, (theirs * 2,)), tensor(DType.F32, (ours * 3,)))
    assert not names.same(tensor(DType.F32, (other * 2,)), tensor(DType.F32, (ours * 2,)))
    assert not names.same(tensor(DType.F32, (symbol("n"),)), tensor(DType.F32, (ours,)))
