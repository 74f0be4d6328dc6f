"""GGUF: tensors and figures as the header says them, and headers that lie."""

from __future__ import annotations

import os
import re
import struct
import tempfile
import tracemalloc
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.gguf import TYPES, read_header
from irscope.frontends.load import load_program
from irscope.frontends.zoo.names import file_in
from irscope.ir.dtypes import DType
from irscope.ir.places import FileRegion
from irscope.ir.program import Program
from irscope.passes.weights.params import count_parameters
from tests.frontends.gguf_files import CODES, LLAMA, Gguf, small


def _loaded(path: Path, sink: DiagnosticSink | None = None) -> Program:
    return load_program(path, LoadOptions(), DiagnosticSink() if sink is None else sink)


def _refused(file: Gguf, path: Path) -> LoadError:
    with pytest.raises(LoadError) as caught:
        _loaded(file.write(path))
    return caught.value


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_every_tensor_is_there_with_its_bytes(tmp_path: Path, version: int, alignment: int) -> None:
    file = small()
    file.version, file.alignment = version, alignment
    path = file.write(tmp_path / "model.gguf")
    program = _loaded(path)
    assert program.format == "gguf"
    assert not program.has_graph
    stored = {str(weight.name): weight for weight in program.weights()}
    assert {name: (one.type.dtype, one.type.shape) for name, one in stored.items()} == dict(file.tensors)
    size = 0
    for name, (dtype, shape) in file.tensors.items():
        place = program.graph.data[stored[name]]
        assert isinstance(place, FileRegion)
        assert place.length == stored[name].type.nbytes == dtype.bytes_of(prod(shape))
        assert place.offset % alignment == 0
        size += place.length
    totals = count_parameters(program)
    assert totals.bytes == size
    assert totals.count == sum(prod(shape) for _, shape in file.tensors.values())
    last = program.graph.data[stored[list(file.tensors)[-1]]]
    assert isinstance(last, FileRegion)
    assert 0 <= path.stat().st_size - last.offset - last.length < alignment


def test_metadata_keeps_figures_and_leaves_vocabularies_out(tmp_path: Path) -> None:
    file = small({**LLAMA, "a.flag": True, "a.float": 0.5, "a.list": [1, 2], "a.long": list(range(5000)), "a.text": "x" * 5000})
    metadata = _loaded(file.write(tmp_path / "model.gguf")).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == "2"
    assert metadata["tokenizer.ggml.tokens"] == "100 items"
    assert (metadata["a.flag"], metadata["a.float"], metadata["a.list"], metadata["a.long"]) == ("true", "0.5", "[1, 2]", "5,000 items")
    assert len(metadata["a.text"]) < 250


def test_the_card_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small().write(tmp_path / "model.gguf")
    assert main(["run", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "llama (2 layers, context 4,096), GGUF, weights without a graph, 190,208 parameters in 5.58 bits each" in out
    assert "~512 B a token and sequence, ~2.00 MiB for 4,096: 2 bytes of f16 * 2 layers * 2 heads * (32 + 32)" in out
    tokens = re.search(r"at most ~([0-9,]+) tokens of all sequences fit", out)
    assert tokens is not None
    assert 512 * int(tokens[1].replace(",", "")) <= 139.22 * 2**30 < 512 * (int(tokens[1].replace(",", "")) + 50_000)
    assert "training" not in out


def test_types_are_listed_with_the_bits_of_a_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small().write(tmp_path / "model.gguf")
    assert main(["run", str(path), "--passes", "params", "--format", "csv", "-o", f"{tmp_path}/out/"]) == 0
    assert capsys.readouterr().out == ""
    rows = [line.split(",") for line in (tmp_path / "out" / "params-types.csv").read_text().splitlines()]
    assert [(row[0], float(row[4])) for row in rows[1:-1]] == [("q4_k", 4.5), ("q8_0", 8.5), ("q6_k", 6.5625), ("f32", 32.0)]


def test_values_of_blocks_are_not_taken_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small().write(tmp_path / "model.gguf")
    assert main(["run", str(path), "--passes", "params{values}", "--rows", "0", "--format", "csv"]) == 5
    assert "blocks of q4_k are not taken apart" in capsys.readouterr().out


def _part(number: int, count: int, **changed: Any) -> Gguf:
    own = {"split.no": number, "split.count": count, "split.tensors.count": 2, **changed}
    name = f"part{number}.weight"
    return Gguf({**(LLAMA if not number else {}), **own}, {name: (DType.Q4_0, (4, 64))})


def test_parts_of_a_split_file_count_together(tmp_path: Path) -> None:
    paths = [_part(number, 2).write(tmp_path / f"m-{number + 1:05}-of-00002.gguf") for number in range(2)]
    for path in (*paths, file_in(tmp_path)):
        program = _loaded(path)
        assert count_parameters(program).bytes == 2 * 4 * 36
        assert program.metadata["llama.block_count"] == "2"
    paths[1].unlink()
    with pytest.raises(LoadError, match=r"'m-00002-of-00002\.gguf' is missing") as caught:
        _loaded(paths[0])
    assert caught.value.code == "IRS164"


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"split.no": 0}, "says that it is part 1 of 2"), ({"split.count": 3}, "says that it is part 2 of 3")],
)
def test_parts_of_different_models_are_told(tmp_path: Path, changed: dict[str, int], said: str) -> None:
    first = _part(0, 2).write(tmp_path / "m-00001-of-00002.gguf")
    _part(1, 2, **changed).write(tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(LoadError, match=said):
        _loaded(first)


def test_parts_that_hold_another_number_of_tensors_are_told(tmp_path: Path) -> None:
    sink = DiagnosticSink()
    for number in range(2):
        _part(number, 2, **{"split.tensors.count": 9}).write(tmp_path / f"m-{number + 1:05}-of-00002.gguf")
    _loaded(tmp_path / "m-00001-of-00002.gguf", sink)
    assert [one.code for one in sink] == ["IRS167", "IRS165"]


def test_a_part_under_another_name_is_told(tmp_path: Path) -> None:
    assert "not called as parts are" in _refused(_part(0, 2), tmp_path / "model.gguf").message


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    small().write(tmp_path / "model-q4.gguf")
    small().write(tmp_path / "mmproj-model.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert file_in(tmp_path) == tmp_path / "model-q4.gguf"
    small().write(tmp_path / "model-q8.gguf")
    with pytest.raises(LoadError) as caught:
        file_in(tmp_path)
    assert "model-q4.gguf, " in caught.value.hint
    assert "mmproj" not in caught.value.hint


def test_sizes_of_types_are_those_of_the_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    sizes = {one.value: size for one, size in constants.GGML_QUANT_SIZES.items()}
    assert {code: dtype.block or (1, (dtype.bits or 0) // 8) for code, dtype in TYPES.items()} == sizes
    assert {one.value: one.name for one in constants.GGMLQuantizationType} == {code: dtype.name for code, dtype in TYPES.items()}


def test_files_that_the_package_writes(tmp_path: Path) -> None:
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list([f"t{number}".encode() for number in range(1000)])
    writer.add_custom_alignment(64)
    for kind, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        if elements > 1:
            writer.add_tensor(f"{kind.name}.weight", numpy.zeros((6, 3 * size), numpy.uint8), raw_dtype=kind)
    writer.add_tensor("plain.weight", numpy.zeros((2, 3, 5, 7), numpy.float32))
    for step in ("header_to_file", "kv_data_to_file", "tensors_to_file"):
        getattr(writer, f"write_{step}")()
    writer.close()
    program, theirs = _loaded(path), gguf.GGUFReader(path)
    mine = {str(weight.name): (weight.type, program.graph.data[weight]) for weight in program.weights()}
    assert {
        one.name: (one.tensor_type.name.lower(), tuple(reversed([*map(int, one.shape)])), int(one.data_offset), int(one.n_bytes))
        for one in theirs.tensors
    } == {name: (type_.dtype.text, type_.shape, place.offset, place.length) for name, (type_, place) in mine.items()}  # type: ignore[union-attr]


def _text(count: int) -> bytes:
    return struct.pack("<Q", count)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 1}, "its version is 1; versions 2 and 3 are read"),
        ({"version": 4}, "its version is 4"),
        ({"version": 3, "order": ">"}, "it is big-endian"),
        ({"tensor_count": 1 << 60}, "declares 1,152,921,504,606,846,976 tensors"),
        ({"entry_count": 1 << 63}, "entries of metadata"),
        ({"tensor_count": 9}, ""),
        ({"entry_count": 12}, ""),
        ({"cut": 1}, "beyond the end of the file"),
        ({"cut": 100_000}, "beyond the end of the file"),
        ({"offsets": {"blk.1.attn_norm.weight": 33}}, "not a multiple of 32"),
        ({"offsets": {"blk.1.attn_norm.weight": 1 << 63}}, "beyond the end of the file"),
        ({"offsets": {"blk.1.attn_norm.weight": 0}}, "lies over"),
        ({"raw_entries": [_text(1 << 63) + b"key"]}, "a key of the metadata declares"),
        ({"raw_entries": [_text(3) + b"key" + struct.pack("<IQ", 8, 1 << 62)]}, "the metadata 'key' declares"),
        ({"raw_entries": [_text(3) + b"key" + struct.pack("<IIQ", 9, 4, 1 << 62)]}, "the metadata 'key' declares"),
        ({"raw_entries": [_text(3) + b"key" + struct.pack("<IIQ", 9, 8, 1 << 61)]}, "the metadata 'key' declares"),
        ({"raw_entries": [_text(3) + b"key" + struct.pack("<I", 77)]}, "is of type 77, which GGUF does not have"),
        ({"raw_entries": [_text(3) + b"key" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9]}, "nested more than 4 deep"),
        ({"raw_entries": [_text(3) + b"\xff\xfe\xfd"]}, "is not UTF-8"),
        ({"raw_entries": [_text(1) + b"k" + struct.pack("<IB", 0, 1)] * 2}, "has 'k' twice"),
        ({"metadata": {"general.alignment": 48}}, "its alignment is 48"),
        ({"metadata": {"general.alignment": 0}}, "its alignment is 0"),
        ({"metadata": {"general.alignment": "32"}}, "its alignment is 32"),
        ({"tensors": {"a": (DType.Q4_K, (2, 100))}}, "which are not blocks of 256 in q4_k"),
        ({"tensors": {"a": (DType.F32, (1,) * 5)}}, "declares 5 axes"),
    ],
)
def test_a_header_that_lies_is_one_line(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    file = small()
    for name, value in changed.items():
        setattr(file, name, value)
    error = _refused(file, tmp_path / "model.gguf")
    assert error.code == "IRS160"
    assert said in error.message
    assert "\n" not in str(error)


@pytest.mark.parametrize("shape", [(1 << 62, 1 << 62), (1 << 31, 1 << 31, 1 << 31, 256)])
def test_sizes_that_cannot_be(tmp_path: Path, shape: tuple[int, ...]) -> None:
    file = Gguf(LLAMA, {"a": (DType.F32, shape)})
    head = file.header()
    path = tmp_path / "model.gguf"
    path.write_bytes(head + bytes(64))
    with pytest.raises(LoadError, match="declares"):
        _loaded(path)


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    file = Gguf(LLAMA, {"a": (DType.F32, (8,)), "b": (DType.F32, (8,))})
    path = tmp_path / "model.gguf"
    path.write_bytes(file.contents().replace(struct.pack("<Q", 1) + b"b", struct.pack("<Q", 1) + b"a"))
    with pytest.raises(LoadError, match="two tensors 'a'"):
        _loaded(path)


def test_a_type_that_is_newer_leaves_its_bytes_unknown(tmp_path: Path) -> None:
    file = small()
    file.codes = {"output_norm.weight": 200}
    sink = DiagnosticSink()
    program = _loaded(file.write(tmp_path / "model.gguf"), sink)
    totals = count_parameters(program)
    assert [str(one.name) for one in totals.unsized] == ["output_norm.weight"]
    assert [one.code for one in sink] == ["IRS174", "IRS165"]


def test_nothing_is_allocated_by_a_count_that_lies(tmp_path: Path) -> None:
    """A file of a terabyte, which is a hole: its counts fit into what is left, its lists and texts are not there."""
    path = tmp_path / "model.gguf"
    for raw in (
        _text(3) + b"key" + struct.pack("<IIQ", 9, 10, 1 << 36),
        _text(3) + b"key" + struct.pack("<IQ", 8, 1 << 39),
        _text(1 << 39),
    ):
        file = Gguf(raw_entries=[raw])
        path.write_bytes(file.header())
        os.truncate(path, 1 << 40)
        tracemalloc.start()
        try:
            with suppress(LoadError):
                read_header(path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_a_list_of_empty_texts_in_a_huge_hole_ends_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(Gguf(raw_entries=[_text(3) + b"key" + struct.pack("<IIQ", 9, 8, 1 << 36)]).header())
    os.truncate(path, 1 << 40)
    assert main(["run", str(path), "--reading-budget", "1s,1GB"]) == 3
    assert "IRS106" in capsys.readouterr().err


_DTYPES = st.sampled_from(sorted(TYPES.values(), key=str))
_VALUES = st.integers(-(2**62), 2**62) | st.booleans() | st.text(max_size=20) | st.lists(st.integers(0, 2**31), max_size=5)


@st.composite
def _files(draw: st.DrawFn) -> Gguf:
    tensors: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for name in draw(st.lists(st.text(min_size=1, max_size=12), unique=True, min_size=1, max_size=6)):
        dtype = draw(_DTYPES)
        outer = draw(st.lists(st.integers(1, 4), max_size=3))
        tensors[name] = (dtype, (*outer, draw(st.integers(1, 3)) * (dtype.block or (1, 1))[0]))
    metadata = draw(st.dictionaries(st.text(min_size=1, max_size=12).filter(lambda key: key != "general.alignment"), _VALUES, max_size=6))
    return Gguf(metadata, tensors, draw(st.sampled_from([2, 3])), draw(st.sampled_from([1, 8, 32, 64])))


@settings(max_examples=60, deadline=None)
@given(_files())
def test_any_sound_file_reads_as_it_was_written(file: Gguf) -> None:
    with tempfile.TemporaryDirectory() as folder:
        header = read_header(file.write(Path(folder) / "model.gguf"))
    assert {tensor.name: (tensor.dtype, tensor.shape) for tensor in header.tensors} == dict(file.tensors)
    assert [CODES[tensor.dtype] for tensor in header.tensors] == [tensor.code for tensor in header.tensors]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_an_answer_or_one_line(data: st.DataObject) -> None:
    """Bytes of the header are changed, left out or put in; numbers of it become large."""
    contents = bytearray(small().contents())
    head = len(small().header())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, head - 9))
        what = data.draw(st.sampled_from(["byte", "number", "cut", "add", "end"]))
        if what == "byte":
            contents[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
        elif what == "number":
            contents[at : at + 8] = struct.pack("<Q", data.draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])))
        elif what == "cut":
            del contents[at : at + data.draw(st.integers(1, 16))]
        elif what == "add":
            contents[at:at] = data.draw(st.binary(max_size=16))
        else:
            del contents[data.draw(st.integers(4, head * 2)) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(contents)
        tracemalloc.start()
        try:
            code = _answer(path)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
    assert code in ("", "IRS160", "IRS161", "IRS164", "IRS108", "IRS106")


def _answer(path: Path) -> str:
    """The code of what is said of a file, which is one line; empty where it is read."""
    try:
        program = _loaded(path)
    except LoadError as error:
        return error.code if "\n" not in str(error) else str(error)
    assert program.format == "gguf"
    return "" if isinstance(count_parameters(program).count, int) else "no number"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit"], "the file holds weights without a graph"),
        (["sweep", "--over", "batch=1..4"], "the file holds weights without a graph"),
        (["generate", "--prompt", "4", "--new", "2"], "it is a file, and generating needs the code of a model"),
    ],
)
def test_what_needs_a_graph_says_so(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small().write(tmp_path / "model.gguf")
    assert main([words[0], str(path), *words[1:]]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["run"], ["run", "--all"], ["compare", "SELF"], ["ops", "--coverage"], ["show"], ["run", "--format", "md"]]
)
def test_commands_take_files_without_a_graph(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(small().write(tmp_path / "model.gguf"))
    assert main([path if word == "SELF" else word for word in words] + [path]) == 0
    assert capsys.readouterr().out
