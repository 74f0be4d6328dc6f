"""Which files beside a model may be read, in a plain folder and in the cache of a hub."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.weights.source import Forbidden, ModelFolder

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and FIFOs")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A hub cache: a repository with blobs and one snapshot of links, another repository beside it."""
    repository = tmp_path / "hub" / "models--me--mine"
    snapshot = repository / "snapshots" / "0123abcd"
    (snapshot / "onnx").mkdir(parents=True)
    for one in (repository, tmp_path / "hub" / "models--you--yours"):
        (one / "blobs").mkdir(parents=True, exist_ok=True)
        (one / "blobs" / "aaaa").write_bytes(b"data")
    (tmp_path / "secret").write_bytes(b"secret")
    (snapshot / "model.bin").symlink_to("../../blobs/aaaa")
    (snapshot / "onnx" / "model.bin").symlink_to("../../../blobs/aaaa")
    return repository


def test_links_into_the_own_blobs_are_followed(repository: Path) -> None:
    snapshot = repository / "snapshots" / "0123abcd"
    for folder in (snapshot, snapshot / "onnx"):
        found = ModelFolder(folder / "model.bin").find("model.bin")
        assert found is not None and found.path == str(repository / "blobs" / "aaaa")


@pytest.mark.parametrize(
    "target",
    ["../../../models--you--yours/blobs/aaaa", "../../../../secret", "../../blobs", "../../refs", "/etc/passwd", "../other/model.bin"],
)
def test_links_elsewhere_are_not(target: str, repository: Path) -> None:
    snapshot = repository / "snapshots" / "0123abcd"
    (repository / "snapshots" / "other").mkdir()
    (repository / "snapshots" / "other" / "model.bin").write_bytes(b"another revision")
    (repository / "refs").write_text("main")
    (snapshot / "data").symlink_to(target)
    with pytest.raises(Forbidden):
        ModelFolder(snapshot / "model.bin").find("data")


def test_blobs_that_are_a_link_are_no_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "x"
    snapshot.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_bytes(b"secret")
    (tmp_path / "models--a--b" / "blobs").symlink_to(tmp_path / "home")
    (snapshot / "data").symlink_to("../../blobs/secret")
    with pytest.raises(Forbidden, match="outside"):
        ModelFolder(snapshot / "model.bin").find("data")


def test_only_what_is_one_regular_file(tmp_path: Path) -> None:
    inside, outside = tmp_path / "model", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (inside / "plain").write_bytes(b"data")
    (inside / "link").symlink_to("plain")
    os.link(outside / "secret", inside / "hard")
    os.mkfifo(inside / "pipe")
    (inside / "sub").mkdir()
    folder = ModelFolder(inside / "model.bin")
    for name in ("plain", "link"):
        found = folder.find(name)
        assert found is not None
        os.close(folder.open(found))
    assert folder.find("nothing") is None
    for name, why in {"hard": "hard link", "pipe": "regular file", "sub": "regular file", "../outside/secret": "outside"}.items():
        with pytest.raises(Forbidden, match=why):
            folder.find(name)


def test_a_file_replaced_after_it_was_found_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    data = tmp_path / "m" / "data"
    data.write_bytes(b"data")
    folder = ModelFolder(tmp_path / "m" / "model.bin")
    found = folder.find("data")
    assert found is not None
    data.unlink()
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        folder.open(found)
    data.unlink()
    os.link(tmp_path / "secret", data)
    with pytest.raises(Forbidden):
        folder.open(found)


def test_the_model_itself_is_where_its_user_says(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "model.bin").write_bytes(b"data")
    (tmp_path / "real" / "beside").write_bytes(b"data")
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "model.bin").symlink_to(tmp_path / "real" / "model.bin")
    (tmp_path / "named" / "beside").symlink_to(tmp_path / "real" / "beside")
    folder = ModelFolder(tmp_path / "named" / "model.bin")
    assert folder.find("model.bin") is not None
    with pytest.raises(Forbidden):
        folder.find("beside")


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize("passes", ["params", "params{values}"])
def test_shards_follow_the_same_rules(passes: str, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = repository / "snapshots" / "0123abcd"
    (repository / "blobs" / "bbbb").write_bytes(_safetensors())
    (repository.parent / "outside").write_bytes(_safetensors())
    shard = snapshot / "model-00001-of-00001.safetensors"
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"w": shard.name}}))
    shard.symlink_to("../../blobs/bbbb")
    assert main(["run", "--passes", passes, str(index)]) == 0
    capsys.readouterr()
    shard.unlink()
    shard.symlink_to(repository.parent / "outside")
    assert main(["run", "--passes", passes, str(index)]) == 3
    assert "outside the folder of the model" in capsys.readouterr().err
    shard.unlink()
    os.link(repository.parent / "outside", shard)
    assert main(["run", "--passes", passes, str(index)]) == 3
    assert "hard link" in capsys.readouterr().err
    shard.unlink()
    os.mkfifo(shard)
    assert main(["run", "--passes", passes, str(index)]) == 3
    assert "not a regular file" in capsys.readouterr().err


def test_weights_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is named by a relative path has regions under that path."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "w.safetensors").write_bytes(_safetensors())
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--passes", "params{values}", str(Path("deep", "er", "w.safetensors"))]) == 0
    assert "coverage: 1 of 1" in capsys.readouterr().out
