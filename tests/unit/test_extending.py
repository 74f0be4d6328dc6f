"""The walk of docs/extending.md: each package is made of the files that stand there, and its commands print what is shown.

IRSCOPE_UPDATE_DOCS=1 writes the outputs anew, up to the lines that `...` stands for.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.hygiene.test_docs import agree, outputs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
_FILE = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.S)
_COMMANDS = re.compile(r"```console package\n(.*?)```", re.S)
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M))
MOST_FILES = 3
"""Files of the product that one addition may touch."""


def install(files: dict[str, str], folder: Path) -> None:
    """Lay a package out as pip would: its files, and what tells Python its entry points."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


@pytest.mark.parametrize("title", SECTIONS)
def test_each_package_works_as_it_stands(title: str, tmp_path: Path) -> None:
    text = SECTIONS[title]
    files = dict(_FILE.findall(text))
    package, here = tmp_path / "package", tmp_path / "here"
    package.mkdir()
    install(files, package)
    here.mkdir()
    for sample in ("tagger.irs", "pyramid.irs"):
        shutil.copy(ROOT / "samples" / sample, here)
    for name in files:
        if name.endswith((".irs", ".toy")):
            shutil.copy(package / name, here)
    environ = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "120"}
    [block] = _COMMANDS.findall(text)
    for command, shown in outputs(block):
        arguments = [sys.executable, "-m", *shlex.split(command.removeprefix("python -m "))]
        done = subprocess.run(arguments, cwd=here, env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        if os.environ.get("IRSCOPE_UPDATE_DOCS") and not agree(shown, done.stdout):
            PAGE.write_text(
                PAGE.read_text(encoding="utf-8").replace(f"$ {command}\n{shown}", f"$ {command}\n{done.stdout}"), encoding="utf-8"
            )
        else:
            assert agree(shown, done.stdout), done.stdout


@pytest.mark.parametrize("title", SECTIONS)
def test_none_touches_more_than_three_files(title: str) -> None:
    own = [name for name in dict(_FILE.findall(SECTIONS[title])) if not name.endswith((".irs", ".toy"))]
    assert len(own) <= MOST_FILES
    [touched] = re.findall(r"\*\*Touched inside irscope\*\*: (.*?), the test\.", SECTIONS[title], re.S)
    assert len(re.split(r",\s(?![^()]*\))", touched)) <= MOST_FILES
