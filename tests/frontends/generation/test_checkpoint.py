"""Hub folders are read by their headers, and what does not agree is said in one line."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.files.folders import Tensors, read_folder
from irscope.frontends.generation.program import hollow
from irscope.ir.dtypes import DType
from tests.forked import python


def _safetensors(path: Path, tensors: dict[str, list[int]], *, cut: int = 0) -> None:
    header, end = {}, 0
    for name, shape in tensors.items():
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end - cut))


def _folder(path: Path, config: str = '{"model_type": "llama"}') -> Path:
    (path / "config.json").write_text(config)
    return path


def test_tensors_are_those_of_the_header(tmp_path: Path) -> None:
    _safetensors(_folder(tmp_path) / "model.safetensors", {"a": [4, 8], "b": [3]})
    config, tensors = read_folder(tmp_path, DiagnosticSink())
    assert config["model_type"] == "llama"
    assert tensors == Tensors({"model.safetensors": {"a": (DType.BF16, (4, 8)), "b": (DType.BF16, (3,))}})
    assert tensors.bytes == 70
    assert tensors.by_dtype == {DType.BF16: 70}


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    _safetensors(folder / "one.safetensors", {"a": [2]})
    _safetensors(folder / "two.safetensors", {"b": [2]})
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    _, tensors = read_folder(folder, DiagnosticSink())
    assert tensors is not None
    assert {name: list(held) for name, held in tensors.files.items()} == {"one.safetensors": ["a"], "two.safetensors": ["b"]}


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"a": "one.safetensors", "lost": "one.safetensors"}, "the index says that 'lost' is in 'one.safetensors'"),
        ({"a": "../one.safetensors"}, "outside its own folder"),
        ({"a": "three.safetensors"}, "is missing"),
    ],
)
def test_an_index_that_disagrees_is_refused(tmp_path: Path, places: dict[str, str], said: str) -> None:
    folder = _folder(tmp_path)
    _safetensors(folder / "one.safetensors", {"a": [2]})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(LoadError, match=said):
        read_folder(folder, DiagnosticSink())


def test_a_shard_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    _safetensors(_folder(tmp_path) / "model.safetensors", {"a": [64]}, cut=1)
    with pytest.raises(LoadError, match="does not fit the file"):
        read_folder(tmp_path, DiagnosticSink())


@pytest.mark.parametrize(("config", "said"), [("{", "not valid JSON"), ("[1]", "not a JSON object"), ("[" * 100_000, "not valid JSON")])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, config: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        read_folder(_folder(tmp_path, config), DiagnosticSink())


def test_a_folder_without_a_configuration_says_so(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no config\.json"):
        read_folder(tmp_path, DiagnosticSink())


def test_a_hollow_checkpoint_takes_no_space_and_leaves_nothing() -> None:
    tensors = Tensors({"one": {"a": (DType.BF16, (1 << 16, 1 << 14))}, "two": {"b": (DType.F32, (3,))}})
    with hollow(tensors) as folder:
        files = sorted(path.name for path in folder.iterdir())
        assert files == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
        status = (folder / files[0]).stat()
        assert status.st_size > 1 << 31
        assert status.st_blocks * 512 < 1 << 20
        (folder / "config.json").write_text("{}")
        _, found = read_folder(folder, DiagnosticSink())
        assert found is not None
        assert found.bytes == tensors.bytes
    assert not folder.exists()


MAPPED = """
import resource
from irscope.frontends.files.folders import Tensors
from irscope.frontends.generation.program import hollow
from irscope.ir.dtypes import DType
import torch

private = torch.UntypedStorage.from_file
with hollow(Tensors({"model.safetensors": {"a": (DType.F32, (30 << 28,))}})) as folder:
    # The limit counts what is mapped privately and writable: what Linux sets memory aside for.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, most))
    file = folder / "model.safetensors"
    print(file.stat().st_size >= 30 << 30, file.stat().st_blocks * 512 < 1 << 20)
    print(torch.UntypedStorage.from_file(str(file), shared=False, nbytes=30 << 30).nbytes() == 30 << 30)
    try:
        from safetensors import safe_open
        with safe_open(str(file), framework="pt") as opened:
            print(opened.get_tensor("a").shape == (30 << 28,))
    except ImportError:
        print(True)
print(torch.UntypedStorage.from_file == private)
"""


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="what a limit of data counts")
def test_a_checkpoint_larger_than_the_memory_takes_none() -> None:
    done = python(MAPPED)
    assert done.stdout.split() == ["True"] * 5, done.stderr
