"""What a plain start of irscope leaves in sys.modules: none of the heavy packages."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import irscope

HEAVY = {"networkx", "onnx", "onnxruntime", "rich", "sympy", "textual", "torch"}

PROGRAM = """
import json, sys
{statement}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""

COMMAND = """
from irscope.cli.main import main
try:
    code = main({arguments!r})
except SystemExit as end:
    code = end.code
assert not code, f"irscope ended with {{code}}"
"""

needs_cli = pytest.mark.skipif(importlib.util.find_spec("irscope.cli.main") is None, reason="there is no command line")


def modules_after(statement: str, folder: Path) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement=statement)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def modules_after_command(arguments: list[str], folder: Path) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a run of the command line."""
    return modules_after(COMMAND.format(arguments=arguments), folder)


def test_import_is_light(tmp_path: Path) -> None:
    assert modules_after("import irscope", tmp_path) & (HEAVY | {"numpy"}) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["passes"], ["explain", "IRS100"]], ids=" ".join)
@needs_cli
def test_commands_without_a_model_are_light(arguments: list[str], tmp_path: Path) -> None:
    assert modules_after_command(arguments, tmp_path) & (HEAVY | {"numpy"}) == set()


@pytest.mark.parametrize("name", ["run", "check", "fit", "compare"])
@needs_cli
def test_help_imports_nothing_that_only_answers_need(name: str, tmp_path: Path) -> None:
    program = COMMAND.format(arguments=[name, "--help"]) + "\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = set(done.stderr.split())
    assert "numpy" not in imported and "irscope.session" not in imported and f"irscope.cli.{name}" not in imported


@needs_cli
def test_running_a_text_model_is_light(tmp_path: Path, root: Path) -> None:
    models = sorted((root / "samples").glob("*.irs"))
    assert models, "samples/ holds no .irs model"
    assert modules_after_command(["run", str(models[0])], tmp_path) & HEAVY == set()


@needs_cli
def test_a_predicted_time_loads_no_module_that_takes_longer_than_it(tmp_path: Path, root: Path) -> None:
    command = COMMAND.format(arguments=["run", str(root / "samples" / "mlp.irs"), "--passes", "time"])
    modules_after(command + "\nimport sys\nassert 'numpy' in sys.modules and 'numpy.ma' not in sys.modules", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "compare", "show", "fit"])
@needs_cli
def test_commands_on_a_model_take_no_library_for_networks(command: str, tmp_path: Path, root: Path) -> None:
    model = str(root / "samples" / "mlp.irs")
    (tmp_path / "irscope.toml").write_text(f"budgets = ['nodes < 100']\nmodels = ['{model}']\n")
    more = {"check": [], "compare": [model, model], "show": [model], "fit": [model, "--counter", "activation", "--memory", "1GiB"]}
    loaded = modules_after_command([command, *more[command]], tmp_path)
    assert loaded & (HEAVY | {"email", "http", "ssl", "xml"}) == set()


@pytest.mark.slow
@needs_cli
def test_an_onnx_file_takes_the_messages_of_onnx_alone(tmp_path: Path, root: Path) -> None:
    command = COMMAND.format(arguments=["run", str(root / "samples" / "models" / "cnn.onnx")])
    loaded = modules_after(command + "\nimport sys\nassert 'onnx' not in sys.modules", tmp_path)
    assert loaded & (HEAVY - {"onnx"} | {"email", "ml_dtypes"}) == set()


@pytest.mark.slow
@needs_cli
def test_a_small_run_reads_no_schema_and_writes_no_init_that_it_does_not_need(tmp_path: Path, root: Path) -> None:
    """Hundreds of records and of classes of values are imported, of which a small model has a few."""
    counted = """
import dataclasses
from irscope import immutable
from irscope.ops import spec
made = dict.fromkeys(("schemas", "inits", "dataclasses"), 0)
def counting(module, name, what):
    original = getattr(module, name)
    def counted(*args, **kwargs):
        made[what] += 1
        return original(*args, **kwargs)
    setattr(module, name, counted)
counting(spec, "parse_schema", "schemas")
counting(immutable, "_init_of", "inits")
counting(dataclasses, "_process_class", "dataclasses")
"""
    command = COMMAND.format(arguments=["run", str(root / "samples" / "models" / "cnn.onnx")])
    counts = "\nimport json, sys\nprint(json.dumps(made), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", counted + command + counts], cwd=tmp_path, capture_output=True, text=True, check=True)
    made = json.loads(done.stderr.splitlines()[-1])
    assert 0 < made["schemas"] < 20 and 0 < made["inits"] < 200 and 0 < made["dataclasses"] < 50, made


def test_the_probe_sees_a_heavy_import(tmp_path: Path) -> None:
    assert "onnx" in modules_after("import irscope, onnx", tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("irscope.api") is None, reason="there is no irscope.api")
def test_every_public_name_is_there() -> None:
    assert [name for name in irscope.__all__ if not hasattr(irscope, name)] == []
    assert set(irscope.__all__) <= set(dir(irscope))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonesuch"):
        irscope.nonesuch  # noqa: B018
