"""The files of packages: what is listed is well formed, and only that leaves a wheel, under its name here."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.zoo.fetch_onnx import LISTED, WildFile, WrongFileError, listed, take

CONTENT = b"model"
WANTED = WildFile("some==1", "some/model.onnx", "some-model.onnx", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/model.onnx", content)
    return path


def test_listed_files_have_names_of_their_own_and_pinned_versions() -> None:
    files = list(listed())
    models = [file for file in files if file.name.endswith(".onnx")]
    assert len(models) >= 60
    assert len({file.name for file in files}) == len({file.sha256 for file in files}) == len(files)
    assert all("==" in file.package and Path(file.name).name == file.name and len(file.sha256) == 64 for file in files)
    # About a third is held back, by the hash.
    assert 0.2 < sum(model.held_back for model in models) / len(models) < 0.5
    assert "://" not in LISTED.read_text(encoding="utf-8")


def test_a_listed_file_is_taken(tmp_path: Path) -> None:
    assert take(wheel(tmp_path), WANTED, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"other", WANTED),
        (CONTENT * 1000, WANTED),
        (CONTENT, replace(WANTED, member="some/absent.onnx")),
        (CONTENT, replace(WANTED, name="../model.onnx")),
        (CONTENT, replace(WANTED, name="..\\model.onnx")),
        (CONTENT, replace(WANTED, nbytes=1 << 40)),
    ],
)
def test_nothing_else_is_taken(tmp_path: Path, content: bytes, wanted: WildFile) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    with pytest.raises(WrongFileError):
        take(wheel(tmp_path, content), wanted, folder)
    assert list(tmp_path.rglob("*.onnx")) == []
