"""Build the wheel and the source archive, install the wheel into a clean environment and try it: `make release-check`.

What a release may hold is checked in both archives; what it does is tried with the installed program, outside this folder.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from irscope._version import __version__

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
_TYPED = """
from importlib.resources import files
import irscope
assert files(irscope).joinpath("py.typed").is_file()
print(irscope.__version__)
"""
MOST_BYTES = 5_000_000
"""An archive is no larger: what tests need stays out of it."""
EXTRAS = {"torch", "ort", "cuda", "zoo", "audit", "mcp"}
"""Extras that the documentation names."""
SAMPLE = "samples/mlp.irs"


def main() -> None:
    """Print a line for each fault, and end with 1 if there is one."""
    build()
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    faults = [*faults_of_wheel(wheel), *faults_of_source(source), *faults_of_texts()]
    faults += faults_when_installed(wheel)
    for path in (wheel, source):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    sys.exit("\n".join(faults) if faults else 0)


def build() -> None:
    """Make both archives in dist/, with the build tools of this environment."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr or done.stdout)


def faults_of_wheel(path: Path) -> Iterator[str]:
    """What is wrong with a wheel: its size, files, metadata and entry points."""
    if path.stat().st_size > MOST_BYTES:
        yield f"{path.name} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}"
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        info = f"irscope-{__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        entries = archive.read(f"{info}/entry_points.txt").decode()
    yield from (f"the wheel lacks {name}" for name in ("irscope/py.typed", f"{info}/licenses/LICENSE") if name not in names)
    folders = ("irscope/", f"{info}/", f"irscope-{__version__}.data/")
    yield from (f"the wheel has {name}" for name in sorted(names) if not name.startswith(folders) or "/tests/" in name)
    for key, expected in (("Version", __version__), ("License-Expression", "Apache-2.0"), ("Requires-Python", ">=3.11")):
        if metadata[key] != expected:
            yield f"{key} of the wheel is {metadata[key]}, not {expected}"
    if missing := EXTRAS - set(metadata.get_all("Provides-Extra", [])):
        yield f"the wheel has no extras {', '.join(sorted(missing))}"
    if "irscope = irscope.__main__:main" not in entries:
        yield "the wheel has no program irscope"


def faults_of_source(path: Path) -> Iterator[str]:
    """What is wrong with a source archive."""
    if path.stat().st_size > MOST_BYTES:
        yield f"{path.name} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}"
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "docs/irscope.1", "irscope/py.typed", "frontends/__init__.py")
    yield from (f"the source archive lacks {name}" for name in wanted if name not in names)
    yield from (f"the source archive has {name}" for name in sorted(names) if name.startswith("tests/"))


def faults_of_texts() -> Iterator[str]:
    """What does not name the version that is released."""
    if not re.search(rf"^## \[{re.escape(__version__)}\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        yield f"CHANGELOG.md has no section for {__version__}"
    if f"\nversion: {__version__}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        yield f"CITATION.cff is not of version {__version__}"


def faults_when_installed(wheel: Path) -> Iterator[str]:
    """What goes wrong in an environment that has the wheel and what it requires alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        programs = folder / "venv" / "bin"
        shutil.copy(ROOT / SAMPLE, folder)
        constraints = str(ROOT / "constraints.txt")
        python = str(programs / "python")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints, str(wheel)], check=True
        )
        model = Path(SAMPLE).name
        for command, expected in (
            ([python, "-c", _TYPED], __version__),
            ([str(programs / "irscope"), "--version"], f"irscope {__version__}"),
            ([str(programs / "irscope"), "--device", "l4", model], "fits as modelled at batch=1"),
            ([str(programs / "irscope"), "run", "--format", "json", "--passes", "flops", "--bind", "batch=2", model], '"total_flops"'),
            ([str(programs / "irscope"), "doctor"], "irscope"),
            ([str(programs / "irscope"), "fit", "--help"], "--help all"),
        ):
            yield from _fault(command, expected, folder)


def _fault(command: Sequence[str], expected: str, folder: Path) -> Iterator[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or expected not in done.stdout:
        words = " ".join(Path(word).name for word in command)
        yield f"`{words}` ends with {done.returncode}, without {expected!r}: {done.stderr.strip()[-300:]}"


if __name__ == "__main__":
    main()
