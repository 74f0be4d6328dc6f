"""Frontends of installed packages: when they are asked, what they may not do, and how a broken one is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError
from irscope.frontends import detect as detection
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from tests.frontends.test_detect import FILES

READER = """
from irscope.ir import DType, Graph, Program, tensor

def recognises(head, path):
    return head.startswith(b"toy ")

def load(path, options, sink):
    graph = Graph()
    x = graph.add_input(tensor(DType.F32, (2, 3)), "x")
    graph.set_outputs([graph.append("nn.relu", (x,), (x.type,)).outputs[0]])
    return Program(graph, format="toy")
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lay out packages as pip would; each has one module and one entry point."""
    site = tmp_path / "site"

    def lay_out(text: str, kind: str = "toy", package: str = "acme-toy") -> None:
        module = f"{package.replace('-', '_')}_{tmp_path.name}"
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(text, encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[irscope.frontends]\n{kind} = {module}\n", encoding="utf-8")

    monkeypatch.syspath_prepend(site)
    return lay_out


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "model.toy"
    path.write_bytes(b"toy 1\n")
    return path


def load(path: Path) -> str:
    """The format of the program in a file."""
    return load_program(path, LoadOptions(), DiagnosticSink()).format


def refused(path: Path) -> IrscopeError:
    with pytest.raises(IrscopeError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_file_that_irscope_does_not_know(install: Install, toy: Path) -> None:
    assert refused(toy).code == "IRS103"
    install(READER)
    assert load(toy) == "toy"


def test_it_is_asked_before_what_only_looks_like_onnx(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "model.toy"
    path.write_bytes(b"B toy\n")
    assert detection.detect(path).name == "onnx"
    install(READER.replace('b"toy "', 'b"B toy"'))
    assert load(path) == "toy"


@pytest.mark.parametrize("kind", [name for name, kind in detection.KINDS.items() if kind.frontend is not None])
def test_it_is_not_asked_about_files_that_are_known(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("packages are asked")

    monkeypatch.setattr(detection, "plugins_by_name", asked)
    path = tmp_path / "model.onnx"
    path.write_bytes(FILES[kind])
    assert detection.detect(path).name == kind


def test_a_kind_without_a_reader_is_claimed_by_its_name(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(FILES["tflite"])
    assert refused(path).code == "IRS104"
    install(READER, kind="tflite")
    assert load(path) == "toy"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name", "frontends 'toy' of acme-toy cannot be imported: ModuleNotFoundError"),
        ("def load(path, options, sink): ...", "frontend 'toy' of acme-toy has no function recognises"),
        (READER.replace("head.startswith", "head.no_such"), "frontend 'toy' of acme-toy cannot tell what model.toy is: AttributeError"),
        ("import sys; sys.exit('no')", "frontends 'toy' of acme-toy cannot be imported: SystemExit"),
    ],
    ids=["import", "functions", "question", "exit"],
)
def test_a_broken_package(text: str, said: str, install: Install, toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(text)
    error = refused(toy)
    assert (error.code, str(error)[: len(said)]) == ("IRS101", said)
    assert main(["run", "--passes", "stats", str(toy)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    # Files of other kinds are read as before, and so is what a sound package recognises.
    (tmp_path / "model").write_bytes(FILES["onnx"])
    assert detection.detect(tmp_path / "model").name == "onnx"
    install(READER, kind="zoy", package="zen-toy")
    assert load(toy) == "toy"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return {}", "IRS107"),
        ("raise KeyError('size')", "IRS107"),
        ("g = Graph(); g.set_outputs([g.append('nn.relu', (), ()).outputs[0]]); return Program(g)", "IRS107"),
        ("g, h = Graph(), Graph(); g.set_outputs([h.add_input(tensor(DType.F32, (2,)), 'x')]); return Program(g)", "IRS122"),
    ],
    ids=["no program", "raises", "index", "breaks the rules"],
)
def test_what_it_makes_is_checked(body: str, code: str, install: Install, toy: Path) -> None:
    install(READER.partition("def load")[0] + f"def load(path, options, sink):\n    {body}\n")
    error = refused(toy)
    assert error.code == code
    assert "acme-toy" in (error.hint or "") or code != "IRS107"


def test_two_packages_of_one_kind_and_one_of_irscopes_own(install: Install, toy: Path) -> None:
    install(READER)
    install(READER, package="other-toy")
    assert refused(toy).code == "IRS602"


def test_a_kind_that_irscope_reads_is_not_to_be_taken(install: Install, toy: Path) -> None:
    install(READER, kind="safetensors")
    error = refused(toy)
    assert (error.code, "irscope" in str(error)) == ("IRS602", True)


def test_methods_are_not_for_it(install: Install, toy: Path) -> None:
    install(READER)
    with pytest.raises(IrscopeError, match="no methods"):
        load_program(toy, LoadOptions(method="step"), DiagnosticSink())


def test_nothing_heavy_is_imported_to_ask(toy: Path, install: Install) -> None:
    install(READER.replace("from irscope.ir import DType, Graph, Program, tensor", "import sys"))
    before = set(sys.modules)
    detection.detect(toy)
    assert not {"torch", "onnx"} & (set(sys.modules) - before)
