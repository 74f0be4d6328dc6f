"""The composite action and the pre-commit hook, as far as they run without GitHub and pre-commit: their YAML, and the commands in it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_check import FIXED

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]
"""What `shell: bash` means to a runner."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What a job has checked out."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "model.irs").write_text(FIXED, encoding="utf-8")
    (folder / "irscope.toml").write_text('budgets = ["parameters = 32"]\nmodels = ["model.irs"]\n', encoding="utf-8")
    return folder


def programs(tmp_path: Path) -> Path:
    """A folder whose `irscope` is this one, and whose `python` only tells what it was asked to do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tools = {
        "irscope": f'exec {shlex.quote(sys.executable)} -m irscope "$@"\n',
        "python": f'printf "%s\\n" "$@" >> {shlex.quote(str(tmp_path / "asked"))}\n',
    }
    for name, text in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def run_action(tmp_path: Path, repository: Path, **inputs: str) -> tuple[int, str, dict[str, str]]:
    """Run the steps as a runner would: exit code, what was printed, and the files that a runner reads."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(inputs) <= set(action["inputs"])
    known = {f"inputs.{name}": inputs.get(name, one["default"]) for name, one in action["inputs"].items()}
    known["github.action_path"] = str(ROOT)
    runner = {name: str(tmp_path / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{programs(tmp_path)}{os.pathsep}{os.environ['PATH']}"

    def filled(text: str) -> str:
        return _EXPRESSION.sub(lambda match: known[match[1]], text)

    code, printed = 0, ""
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert not _EXPRESSION.search(step["run"]), "an input as part of a script could run anything"
        script = tmp_path / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        env = {**os.environ, "PATH": path, **runner, **{name: filled(value) for name, value in step.get("env", {}).items()}}
        folder = repository / filled(step.get("working-directory", "."))
        done = subprocess.run([*BASH, str(script)], cwd=folder, env=env, capture_output=True, text=True, check=False)
        code, printed = done.returncode, printed + done.stdout + done.stderr
        if code:
            break
    kept = {name: Path(file).read_text(encoding="utf-8") for name, file in runner.items() if Path(file).exists()}
    return code, printed, kept


def test_the_action_says_that_budgets_are_kept(tmp_path: Path, repository: Path) -> None:
    code, printed, kept = run_action(tmp_path, repository)
    assert code == 0, printed
    assert "::notice title=irscope check::passed: 1 budget of 1 model" in printed
    assert "passed: 1 budget of 1 model" in printed
    assert kept["GITHUB_OUTPUT"] == "exit-code=0\n"
    assert kept["GITHUB_STEP_SUMMARY"].startswith("**irscope check passed**")
    assert (repository / "irscope-check.md").read_text(encoding="utf-8") == kept["GITHUB_STEP_SUMMARY"]
    assert '<testsuites name="irscope check" tests="1" failures="0"' in (repository / "irscope-check.xml").read_text(encoding="utf-8")
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    assert asked[:3] == ["-m", "pip", "install"] and Path(asked[-1]).resolve() == ROOT


def test_the_action_fails_with_the_code_of_the_command_and_annotates(tmp_path: Path, repository: Path) -> None:
    (repository / "irscope.toml").write_text('budgets = ["parameters = 3"]\nmodels = ["model.irs"]\n', encoding="utf-8")
    code, printed, kept = run_action(tmp_path, repository, package="none", junit="", markdown="", file="irscope.toml")
    assert code == 1
    assert "::error file=irscope.toml,line=1,title=model.irs@h200%3A parameters = 3::it is 32, 29 too much\n" in printed
    assert kept["GITHUB_OUTPUT"] == "exit-code=1\n" and "**exceeded**" in kept["GITHUB_STEP_SUMMARY"]
    assert not (repository / "irscope-check.md").exists() and not (tmp_path / "asked").exists()


def test_what_inputs_of_the_action_hold_is_not_run(tmp_path: Path, repository: Path) -> None:
    code, printed, _ = run_action(tmp_path, repository, file='"; touch pwned; "$(touch pwned)')
    assert code == 2 and "touch pwned" in printed
    assert not (repository / "pwned").exists()


@pytest.mark.slow
def test_the_hook_runs_and_looks_at_models(tmp_path: Path, repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["id"] == "irscope-check" and hook["language"] == "python"
    assert {"id", "name", "entry", "language", "files", "pass_filenames", "description"} == set(hook)
    wanted = re.compile(hook["files"])
    for name in ("a.onnx", "models/b.pt2", "c.safetensors", "irscope.toml", "sub/irscope.toml", "irscope-baseline.json"):
        assert wanted.search(name), name
    assert not any(wanted.search(name) for name in ("a.py", "README.md", "other.json", "notirscope.toml.bak"))
    path = f"{programs(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    for budget, code in (("parameters = 32", 0), ("parameters = 3", 1)):
        (repository / "irscope.toml").write_text(f'budgets = ["{budget}"]\nmodels = ["model.irs"]\n', encoding="utf-8")
        done = subprocess.run(
            shlex.split(hook["entry"]), cwd=repository, env={**os.environ, "PATH": path}, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr
