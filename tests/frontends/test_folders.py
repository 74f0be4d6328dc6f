"""Folders of models: what their files say, what disagrees, and what is refused; nothing of this needs transformers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.folders import own_cache, own_code, read_adapter, read_folder
from irscope.frontends.load import load_program
from irscope.frontends.zoo.names import file_in
from tests.frontends.hub import llama_tensors, write_adapter, write_llama, write_safetensors


def test_code_beside_a_configuration_is_known_by_its_names(tmp_path: Path) -> None:
    table = {"AutoConfig": "configuration_my.MyConfig", "AutoTokenizer": ["a", None], "AutoModel": "modeling_my.MyModel"}
    assert own_code(write_llama(tmp_path / "a", auto_map=table)) == {key: table[key] for key in ("AutoConfig", "AutoModel")}
    for none in (None, [], "text", {}):
        assert own_code(write_llama(tmp_path / "b", auto_map=none)) == {}
    assert own_code(tmp_path) == {}


@pytest.mark.parametrize(
    ("generation", "config", "said"),
    [
        ({"cache_implementation": "static"}, {}, ("static", "generation_config.json")),
        ({}, {"cache_implementation": "offloaded"}, ("offloaded", "config.json")),
        (None, {"cache_implementation": None}, ("", "")),
        (None, {}, ("", "")),
    ],
)
def test_the_cache_that_a_folder_asks_for(tmp_path: Path, generation: Any, config: dict[str, Any], said: tuple[str, str]) -> None:
    folder = write_llama(tmp_path / "a", **config)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    assert own_cache(folder) == said


def test_the_code_of_a_base_that_an_adapter_names_never_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from irscope.frontends.zoo.packages import may_run

    write_llama(tmp_path / "base")
    folder = write_adapter(tmp_path / "adapter", "../base")
    assert may_run(None, trusted=True)
    assert may_run(read_adapter(folder, str(tmp_path / "base")), trusted=True)
    assert not may_run(read_adapter(folder), trusted=True)
    assert not may_run(None, trusted=False)


def _shards(folder: Path, places: dict[str, str], **held: dict[str, tuple[int, ...]]) -> Path:
    for name, tensors in held.items():
        write_safetensors(folder / f"{name}.safetensors", tensors)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    return index


def test_a_shard_with_more_than_its_index_says_is_told(tmp_path: Path) -> None:
    index = _shards(tmp_path, {"a": "one.safetensors"}, one={"a": (2,), "b": (2,)})
    sink = DiagnosticSink()
    program = load_program(index, LoadOptions(), sink)
    assert len([*program.weights()]) == 2
    assert [one.message for one in sink if one.code == "IRS167"] == [
        "'one.safetensors' holds 1 tensors that the index does not name there, such as 'b'"
    ]


def test_an_index_that_names_what_no_shard_has_is_refused_for_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = _shards(tmp_path, {"a": "one.safetensors", "b": "one.safetensors"}, one={"a": (2,)})
    assert main(["run", str(index)]) == 3
    assert "the index says that 'b' is in 'one.safetensors', which does not have it" in capsys.readouterr().err


@pytest.mark.parametrize("config", ["{", "[1]", "", "null"])
def test_a_configuration_that_is_none_is_told(tmp_path: Path, config: str) -> None:
    (write_llama(tmp_path / "a") / "config.json").write_text(config)
    with pytest.raises(LoadError, match="not a JSON object") as caught:
        file_in(tmp_path / "a")
    assert "named by itself" in caught.value.hint


def test_a_folder_with_nothing_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no model is in it") as caught:
        file_in(tmp_path)
    assert caught.value.hint == "it has neither a config.json nor a file of weights"


def test_weights_of_a_folder_say_how_a_graph_is_had(tmp_path: Path) -> None:
    sink = DiagnosticSink()
    load_program(file_in(write_llama(tmp_path / "a")), LoadOptions(), sink)
    assert [one.hint for one in sink] == [f"with torch and transformers installed, irscope makes the graph of the folder {tmp_path / 'a'}"]


def _module(**changed: Any) -> Any:
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    module.a = torch.nn.Linear(4, 3, bias=False, device="meta")
    module.b = torch.nn.Linear(3, 2, bias=False, device="meta")
    for name, value in changed.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"a.weight": (3, 4), "b.weight": (2, 3)}, []),
        ({"a.weight": (3, 4)}, ["the folder lacks the tensor 'b.weight' of the model that its configuration describes"]),
        ({"a.weight": (3, 4), "b.weight": (2, 9)}, ["'b.weight' is 2x9 in the folder and 2x3 by its configuration"]),
    ],
)
def test_weights_are_held_against_the_module(tmp_path: Path, stored: dict[str, tuple[int, ...]], said: list[str]) -> None:
    module = _module()
    from irscope.frontends.zoo.packages import compare_weights

    write_safetensors(tmp_path / "model.safetensors", stored)
    (tmp_path / "config.json").write_text("{}")
    tensors, sink = read_folder(tmp_path, DiagnosticSink())[1], DiagnosticSink()
    assert tensors is not None
    compare_weights(module, tensors, sink)
    assert [one.message for one in sink] == said


def test_a_tensor_with_two_names_is_stored_under_one(tmp_path: Path) -> None:
    module = _module()
    from irscope.frontends.zoo.packages import compare_weights

    module.c = module.a
    write_safetensors(tmp_path / "model.safetensors", {"a.weight": (3, 4), "b.weight": (2, 3)})
    (tmp_path / "config.json").write_text("{}")
    tensors, sink = read_folder(tmp_path, DiagnosticSink())[1], DiagnosticSink()
    assert tensors is not None
    compare_weights(module, tensors, sink)
    assert not [*sink]


def test_shards_that_are_cut_off_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_safetensors(write_llama(tmp_path / "a") / "model.safetensors", llama_tensors(), cut=1)
    assert main(["run", str(tmp_path / "a" / "model.safetensors")]) == 3
    err = capsys.readouterr().err
    assert "IRS160" in err
    assert err.count("\n") == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_KEYS = ("peft_type", "r", "lora_alpha", "target_modules", "base_model_name_or_path", "rank_pattern", "modules_to_save", "use_dora")


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4), st.booleans())
def test_any_settings_of_an_adapter_are_an_answer_or_one_line(changed: dict[str, Any], weights: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        write_llama(Path(place) / "base")
        folder = write_adapter(Path(place) / "adapter", "../base", weights=weights, **changed)
        _read(folder)


@settings(max_examples=150, deadline=None)
@given(_JSON, _JSON, st.lists(st.integers(0, 200), max_size=3))
def test_any_configuration_and_any_index_are_an_answer_or_one_line(config: Any, index: Any, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = write_llama(Path(place) / "a", **(config if isinstance(config, dict) else {"quantization_config": config}))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        _read(folder)
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors.index.json").unlink()
        for cut in cuts:
            (folder / "model.safetensors").write_bytes(data[: cut * len(data) // 200])
            _read(folder)


def _read(folder: Path) -> None:
    """What is in a folder, without the package; a LoadError is one line."""
    try:
        load_program(file_in(folder), LoadOptions(), DiagnosticSink())
        own_code(folder)
    except LoadError as error:
        said = (error.code, "\n" in str(error))
    else:
        said = ("", False)
    assert said[0] in ("", "IRS100", "IRS102", "IRS103", "IRS160", "IRS161", "IRS164", "IRS168", "IRS197")
    assert not said[1]
