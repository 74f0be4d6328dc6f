"""Audits: what is listed, what a row says, what no kill loses, and what bad input gets."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")

import pyarrow.parquet

from irscope.cli.main import main
from irscope.errors import LoadError, UsageError
from irscope.report.card import Card
from irscope.tools.audit import engines
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.engines import Batch, Slot
from irscope.tools.audit.questions import answer, diff_document, report_document
from irscope.tools.audit.run import audit
from irscope.tools.audit.sources import Item, Listing, Local, content_key, list_items, readable
from irscope.tools.audit.worker import Found, Setup, analyse
from irscope.tools.config import chosen_device
from tests.tools.audit_models import checkpoint, perceptron, write_models
from tests.unit.tools.audit_servers import misbehaving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills and links as POSIX has them")


def uris(*sources: str) -> list[str]:
    return [item.uri for item in list_items(sources, Listing())]


def model_bytes(seed: int = 1) -> bytes:
    return perceptron(random.Random(seed))


def rows_of(folder: Path, table: str = "models") -> dict[str, dict[str, Any]]:
    return {row["uri"]: row for row in Dataset(folder).read(table).to_pylist()}


def test_a_folder_is_searched_once_though_links_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one.onnx").write_bytes(model_bytes())
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("no model")
    listing = Listing()
    assert [item.uri for item in list_items([str(tmp_path)], listing)] == [str(tmp_path / "a" / "one.onnx")]
    assert listing.skipped == 1


def test_a_link_to_nothing_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "gone.onnx").symlink_to(tmp_path / "nowhere")
    (tmp_path / "one.onnx").write_bytes(model_bytes())
    gone, one = list_items([str(tmp_path)], Listing())
    assert gone.error == ("IRS100", "cannot be read: No such file or directory") and one.error is None


def test_a_hub_cache_has_each_revision_once_and_its_blobs_never(tmp_path: Path) -> None:
    hub = tmp_path / "models--a--b"
    (hub / "blobs").mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc")
    blob = hub / "blobs" / ("0" * 64)
    blob.write_bytes(model_bytes())
    (hub / "snapshots" / "abc").mkdir(parents=True)
    link = hub / "snapshots" / "abc" / "model.onnx"
    link.symlink_to(blob)
    assert uris(str(tmp_path)) == [str(link)]


def test_a_blob_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    """A hostile cache has, under the digest of an honest model, another one: each has its own numbers."""
    links = []
    for name, seed in (("evil", 1), ("good", 2)):
        hub = tmp_path / f"models--{name}--m"
        (hub / "blobs").mkdir(parents=True)
        (hub / "blobs" / ("a" * 40)).write_bytes(model_bytes(seed))
        (hub / "snapshots" / "abc").mkdir(parents=True)
        links.append(hub / "snapshots" / "abc" / "model.onnx")
        links[-1].symlink_to(hub / "blobs" / ("a" * 40))
    evil, good = (content_key(Item(Local(str(link)))) for link in links)
    assert evil != good and good.startswith("sha256:")


def test_places_that_look_alike_are_two(tmp_path: Path) -> None:
    """A file may be called what a file in an archive is shown as, and one with the sign between is no archive."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo("m.onnx")
        info.size = len(model_bytes(1))
        tar.addfile(info, io.BytesIO(model_bytes(1)))
    (tmp_path / "x.tar!m.onnx").write_bytes(model_bytes(2))
    (tmp_path / "wow!.onnx").write_bytes(model_bytes(3))
    (tmp_path / "a!b").mkdir()
    (tmp_path / "a!b" / "one.onnx").write_bytes(model_bytes(4))
    items = list(list_items([str(tmp_path)], Listing()))
    assert len(items) == 4 and len({item.identity for item in items}) == 4 and len({item.uri for item in items}) == 3
    tally = audit([str(tmp_path)], tmp_path / "results", Setup())
    assert (tally.analysed, tally.failed, tally.unchanged) == (4, 0, 0)
    assert uris(f"{tmp_path}/x.tar!m.onnx") == [f"{tmp_path}/x.tar!m.onnx"]


def packed_tar(path: Path, entries: Any, mode: Any = "w:bz2") -> Path:
    """A tar of these names with so many zeros each, or a header of that many, without writing them anywhere first."""
    with tarfile.open(path, mode) as tar:
        for name, size in entries:
            info = tarfile.TarInfo(name)
            info.size = size
            if name.startswith("header"):
                info.type = tarfile.XHDTYPE
            tar.addfile(info, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("make", ["header", "long", "many", "directory"])
def test_an_archive_takes_no_more_than_it_may_while_it_is_listed(tmp_path: Path, make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.tools.audit import archives

    monkeypatch.setattr(archives, "_UNPACKED", 1 << 20)
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 100)
    if make == "header":
        path = packed_tar(tmp_path / "x.tar.bz2", [("header", 60 << 20), ("m.onnx", 1)])
    elif make == "long":
        path = packed_tar(tmp_path / "x.tar.bz2", [("skipped", 60 << 20), ("m.onnx", 1)])
    elif make == "many":
        path = packed_tar(tmp_path / "x.tar", ((f"{at}.onnx", 0) for at in range(200)), "w")
    else:
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w") as packed:
            for at in range(101):
                packed.writestr(f"{at}.onnx", b"")
    (item,) = list_items([str(path)], Listing())
    assert item.error is not None and item.error[0] == "IRS106"
    found = analyse(item, Setup(), (chosen_device(),))
    assert (found.model["status"], found.model["reason"]) == ("failed", "over budget")


def altered(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


@pytest.mark.parametrize("kind", ["encrypted", "compression", "name", "checksum", "pax nul", "cut"])
def test_what_cannot_be_unpacked_is_unreadable_and_no_bug(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x.tar" if kind == "pax nul" else "x.zip")
    name = "n" * 300 + ".onnx" if kind == "name" else "m.onnx"
    data = model_bytes()
    if kind == "pax nul":
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("m.onnx")
            info.size, info.pax_headers = len(data), {"path": "a\0b.onnx"}
            tar.addfile(info, io.BytesIO(data))
    else:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(name, data)
        content = path.read_bytes()
        if kind == "encrypted":  # bit 0 of the flags, in the entry and in the directory
            content = altered(
                altered(content, b"PK\x03\x04\x14\0\0", b"PK\x03\x04\x14\0\1"), b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"
            )
        elif kind == "compression":
            content = altered(content, b"PK\x01\x02\x14\x03\x14\0\0\0\0", b"PK\x01\x02\x14\x03\x14\0\0\0\x63")
        elif kind == "checksum":
            content = altered(content, data, data[:-1] + bytes([data[-1] ^ 1]))
        elif kind == "cut":
            content = content[: len(content) // 2]
        path.write_bytes(content)
    if kind == "cut":  # the archive as a whole, which was named
        with pytest.raises(UsageError, match=r"unpacked|listed"):
            list(list_items([str(path)], Listing()))
        return
    (row,) = (analyse(item, Setup(), (chosen_device(),)).model for item in list_items([str(path)], Listing()))
    assert (row["status"], row["reason"], row["code"]) == ("failed", "unreadable", "IRS100"), row


@pytest.mark.slow
def test_what_lies_beside_a_model_is_bounded_in_all(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("m.onnx", model_bytes())
        for at in range(12):
            packed.writestr(f"{at}.json", bytes(60 << 20))
    (item,) = list_items([str(path)], Listing())
    with readable(item) as staged:
        assert sum(file.stat().st_size for file in Path(staged).parent.iterdir()) < 130 << 20


def test_a_list_runs_no_script_without_trust(tmp_path: Path) -> None:
    script = tmp_path / "evil.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef build(): pass\n")
    (tmp_path / "list.txt").write_text(f"{script}:build\n")
    for line in (f"@{tmp_path / 'list.txt'}",):
        with pytest.raises(UsageError, match="--trust"):
            list(list_items([line], Listing()))
        assert [item.uri for item in list_items([line], Listing(trust=True))] == [f"{script}:build"]
    assert not (tmp_path / "ran").exists()


def test_a_killed_process_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its model was brought to is in a folder of the driver's."""
    import multiprocessing.util
    import tempfile

    multiprocessing.util.get_temp_dir()  # multiprocessing keeps the first that it made, and its sockets are to have short names
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    slot = Slot(Setup(), target=_stage_and_die)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("m.onnx", model_bytes())
    (found,) = slot.run(Batch("analyse", tuple(list_items([str(path)], Listing()))))
    assert isinstance(found, Found) and found.model["reason"] == "crash"
    assert not list(temporary.glob("irscope-*"))


def _stage_and_die(pipe: Any, setup: Setup) -> None:
    _, (item,) = pipe.recv()
    pipe.send(("begin", 0))
    with readable(item) as staged:
        assert Path(staged).exists()
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_folder_of_a_hub_is_one_model_beside_its_graphs(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(checkpoint(random.Random(1)))
    (tmp_path / "onnx" / "model.onnx").write_bytes(model_bytes())
    assert uris(str(tmp_path)) == [str(tmp_path), str(tmp_path / "onnx" / "model.onnx")]


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_an_archive_has_its_models_though_two_have_one_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m.{suffix}"
    files = [("a/x.onnx", model_bytes(1)), ("a/x.onnx", model_bytes(2)), ("../up.onnx", model_bytes(3)), ("a/readme.md", b"")]
    if suffix == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            for name, data in files:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that a name is there already, which is the point
                    packed.writestr(name, data)
    else:
        with tarfile.open(path, "w:gz" if suffix.endswith("gz") else "w") as tar:
            for name, data in files:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    items = list(list_items([str(path)], Listing()))
    assert [item.uri.partition("!")[2] for item in items] == ["a/x.onnx", "a/x.onnx#2", "../up.onnx"]
    for item, (_, data) in zip(items, files, strict=False):
        with readable(item) as staged:
            assert Path(staged).read_bytes() == data
            assert Path(staged).parent.name.startswith("irscope-")  # also of the one that would lie above
    assert uris(f"{path}!a/x.onnx") == [f"{path}!a/x.onnx"]


def test_a_member_that_unpacks_to_more_than_is_allowed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.onnx", bytes(8 << 20))
    (item,) = list_items([str(path)], Listing())
    with pytest.raises(LoadError, match="8,388,608 bytes"), readable(item, fetch=1 << 20):
        pass


def test_of_a_checkpoint_in_a_store_the_header_is_enough() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    data = checkpoint(random.Random(3))
    store.pipe("/hub/a/model.safetensors", data)
    store.pipe("/hub/a/config.json", b"{}")
    (item,) = list_items(["memory://hub"], Listing())
    assert item.uri == "memory:///hub/a/model.safetensors" and item.size == len(data)
    head = 8 + int.from_bytes(data[:8], "little")
    with readable(item) as staged:
        read = Path(staged).read_bytes()
        assert read[:head] == data[:head] and len(read) == len(data) and not any(read[head:])
        assert (Path(staged).parent / "config.json").read_text() == "{}"
    with readable(item, whole=True) as staged:
        assert Path(staged).read_bytes() == data


def test_a_list_names_sources_and_no_other_list(tmp_path: Path) -> None:
    (tmp_path / "one.onnx").write_bytes(model_bytes())
    listed = tmp_path / "list.txt"
    listed.write_text(f"# models\n\n{tmp_path / 'one.onnx'}\n")
    assert uris(f"@{listed}") == [str(tmp_path / "one.onnx")]
    listed.write_text(f"@{listed}\n")
    with pytest.raises(UsageError, match="another list"):
        uris(f"@{listed}")


@pytest.mark.parametrize("source", ["nowhere", "@nowhere", "nowhere/*.onnx", "what://x/y"])
def test_a_source_that_cannot_be_listed_is_one_line(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        uris(source)
    assert "\n" not in str(error.value)


def test_the_content_of_a_large_file_is_known_by_its_header_unless_values_are_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    data = checkpoint(random.Random(1), size=65 << 20)
    for path, last in ((one, b"a"), (two, b"b")):
        with path.open("wb") as file:
            file.write(data)
            file.seek(len(data) + (65 << 20) - 1)
            file.write(last)
    assert content_key(Item(Local(str(one)))) == content_key(Item(Local(str(two))))
    assert content_key(Item(Local(str(one))), reads_values=True) != content_key(Item(Local(str(two))), reads_values=True)


def found_at(names: list[str], setup: Setup) -> list[Any]:
    slot = Slot(setup, misbehaving)
    try:
        return [found.model for found in slot.run(Batch("analyse", tuple(Item(Local(name)) for name in names))) if isinstance(found, Found)]
    finally:
        slot.close()


def test_a_crash_is_a_row_and_costs_nobody_else() -> None:
    first, second, third = found_at(["a", "abort", "b"], Setup())
    assert first["status"] == third["status"] == "ok"
    assert (second["reason"], second["message"]) == ("crash", "its process ended (SIGABRT)")


def test_a_model_whose_process_is_killed_once_is_begun_again(tmp_path: Path) -> None:
    rows = found_at(["a", f"die-once:{tmp_path / 'mark'}", "die"], Setup())
    assert [row["reason"] for row in rows] == [None, None, "killed"]


def test_a_model_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_GRACE", 0.5)
    rows = found_at(["hang", "a"], Setup(seconds=0.1))
    assert [row["reason"] for row in rows] == ["time", None]


@pytest.mark.slow
def test_memory_and_time_of_a_model_are_limited_by_the_system() -> None:
    [hungry] = found_at(["hog"], Setup(memory=1 << 30))
    late, fine = found_at(["spin", "a"], Setup(seconds=0.2))
    assert (hungry["reason"], late["reason"], fine["reason"]) == ("memory", "time", None)
    assert "CPU time" in late["message"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    write_models(folder, 60, seed=5)
    (folder / "0000" / "cut.onnx").write_bytes(model_bytes()[:50])
    (folder / "0000" / "copy.onnx").write_bytes(
        (folder / "0000" / "twin.onnx").read_bytes() if (folder / "0000" / "twin.onnx").exists() else model_bytes(9)
    )
    shutil.copy(folder / "0000" / "copy.onnx", folder / "0000" / "twin.onnx")
    return folder


@pytest.fixture(scope="module")
def results(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "r"
    audit([str(hub)], folder, Setup(("h200", "l4"), passes="flops"), jobs=2)
    return folder


def files_of(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.*") if path.is_file() or path.is_fifo()}


@pytest.mark.slow
def test_every_file_has_a_row_and_a_second_run_analyses_nothing(hub: Path, results: Path) -> None:
    rows = rows_of(results)
    assert set(rows) == files_of(hub)
    cut = rows[str(hub / "0000" / "cut.onnx")]
    assert (cut["status"], cut["reason"], cut["code"]) == ("failed", "unreadable", "IRS141")
    tally = audit([str(hub)], results, Setup(("h200", "l4"), passes="flops"), jobs=2)
    assert (tally.analysed, tally.copies, tally.unchanged) == (0, 0, len(rows))


def test_a_row_has_the_numbers_of_the_card(hub: Path, results: Path) -> None:
    from irscope import card

    good = [row for row in rows_of(results).values() if row["format"] == "onnx" and row["status"] == "ok" and row["fits"] is not None][:5]
    assert good
    for row in good:
        fields = card(row["uri"], device="h200").fields()
        assert {key: row[key] for key in ("peak", "parameters", "flops", "nodes")} == {
            key: fields[key] for key in ("peak", "parameters", "flops", "nodes")
        }
        assert row["peak@l4"] == card(row["uri"], device="l4").fields()["peak"]
    flops = rows_of(results, "flops")
    assert flops[good[0]["uri"]]["total_flops"] == good[0]["flops"]


def test_two_files_of_one_content_have_one_analysis_and_two_rows(hub: Path, results: Path) -> None:
    rows = rows_of(results)
    one, two = rows[str(hub / "0000" / "copy.onnx")], rows[str(hub / "0000" / "twin.onnx")]
    assert one["content"] == two["content"] and one["name"] == "copy.onnx" and two["name"] == "twin.onnx"
    assert {**one, "uri": "", "name": ""} == {**two, "uri": "", "name": ""}


def test_a_changed_file_replaces_its_row(tmp_path: Path) -> None:
    folder, out = tmp_path / "m", tmp_path / "r"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.onnx").write_bytes(model_bytes(1))
    audit([str(folder)], out, Setup(), jobs=1)
    before = rows_of(out)
    (folder / "a.onnx").write_bytes(model_bytes(2))
    tally = audit([str(folder)], out, Setup(), jobs=1)
    after = rows_of(out)
    assert tally.analysed == 1 and len(after) == 2 == Dataset(out).read().num_rows
    assert after[str(folder / "b.onnx")] == before[str(folder / "b.onnx")]
    assert after[str(folder / "a.onnx")]["parameters"] != before[str(folder / "a.onnx")]["parameters"]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_the_program_is_killed(hub: Path, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    command = [
        sys.executable,
        "-m",
        "irscope",
        "audit",
        str(hub),
        "-o",
        str(out),
        "--device",
        "h200,l4",
        "--passes",
        "flops",
        "--jobs",
        "1",
        "-q",
    ]
    deadline = time.monotonic() + 60
    with subprocess.Popen(command) as running:
        while time.monotonic() < deadline and running.poll() is None:
            if (out / "index.sqlite-wal").exists() and (out / "index.sqlite-wal").stat().st_size > 100_000:
                running.kill()
            time.sleep(0.01)
    assert running.returncode in (-signal.SIGKILL, 5)
    audit([str(hub)], out, Setup(("h200", "l4"), passes="flops"), jobs=2)
    assert _without_times(rows_of(out)) == _without_times(rows_of(results))
    assert Dataset(out).read("operators").num_rows == Dataset(results).read("operators").num_rows


def _without_times(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {uri: {key: value for key, value in row.items() if key != "cpu_seconds"} for uri, row in rows.items()}


def test_a_file_that_was_being_written_is_written_again(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    shutil.copytree(results, out)
    shutil.copy(out / "models" / "part-000001.parquet", out / "models" / "part-000007.parquet")
    Dataset(out, writable=True).close()
    assert [path.name for path in sorted((out / "models").iterdir())] == ["part-000001.parquet"]


def test_questions_add_up(results: Path) -> None:
    dataset = Dataset(results)
    table = dataset.read().to_pylist()
    reasons = answer(dataset, "reasons").reports[0].tables[0]
    assert sum(row["models"] for row in reasons.to_dicts()) == sum(row["status"] != "ok" for row in table)  # type: ignore[misc]
    census = answer(dataset, "operators").reports[0].tables[0].to_dicts()
    assert sum(row["nodes"] for row in census) == sum(row["nodes"] or 0 for row in table)  # type: ignore[misc]
    page = report_document(dataset)
    for key, series in zip(("parameters", "peak", "flops", "time"), page.reports[0].series, strict=True):
        assert sum(series.data["models"]) == sum(bool(row[key]) for row in table)  # type: ignore[call-overload]


def test_what_changed_between_two_audits_is_told(tmp_path: Path) -> None:
    for name, seeds in (("old", (1, 2, 3)), ("new", (1, 4))):
        (tmp_path / name).mkdir()
        for at, seed in enumerate(seeds):
            (tmp_path / name / f"m{at}.onnx").write_bytes(model_bytes(seed))
        audit([str(tmp_path / name)], tmp_path / f"r-{name}", Setup(), jobs=1)
    (report,) = diff_document(Dataset(tmp_path / "r-old"), Dataset(tmp_path / "r-new")).reports
    assert report.headline == ("1 models changed, 0 are new, 1 are gone, 1 are the same",)
    assert {row["model"] for row in report.table("changed").to_dicts()} == {"m1.onnx"}


@pytest.mark.slow
def test_the_command_answers_and_its_exit_code_says_whether_all_have_numbers(
    hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "r")
    assert main(["audit", str(hub / "0000" / "copy.onnx"), "-o", out, "--jobs", "1", "-q"]) == 0
    assert main(["audit", str(hub / "0000"), "-o", out, "--jobs", "2"]) == 5
    said = capsys.readouterr().err
    assert "are not ok: " in said and "1 known already" in said
    assert main(["audit", "ask", out, "--set", "failed", "--format", "csv"]) == 0
    assert "cut.onnx" in capsys.readouterr().out
    assert main(["audit", "ask", out, "--where", "parameters > 1 and status = ok", "--format", "csv"]) == 0
    assert "cut.onnx" not in capsys.readouterr().out
    assert main(["audit", "report", out]) == 0
    assert (tmp_path / "r" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["models"], "IRS721"),
        (["ask", "nowhere"], "IRS724"),
        (["ask", "."], "IRS724"),
        (["ask", "{results}", "--set", "what"], "IRS725"),
        (["ask", "{results}", "--where", "what > 1"], "IRS450"),
        (["diff", "{results}"], "IRS721"),
        (["{results}", "-o", "{results}", "--device", "h100"], "IRS724"),
        (["nowhere", "-o", "new"], "IRS720"),
        (["{results}", "-o", "new", "--again", "boredom"], "IRS721"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], code: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["audit", *(argument.format(results=results) for argument in arguments)]) in (2, 3)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and code in said


def test_results_that_another_audit_writes_to_are_left_alone(results: Path) -> None:
    held = Dataset(results, writable=True)
    try:
        with pytest.raises(UsageError, match="another audit is writing there"):
            Dataset(results, writable=True)
        assert Dataset(results).read().num_rows
    finally:
        held.close()


def test_results_of_another_schema_and_damaged_ones_are_one_line(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    shutil.copytree(results, out)
    (out / "models" / "part-000001.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(LoadError, match="cannot be read"):
        Dataset(out).read()
    (out / "audit.json").write_text('{"schema": "irscope.audit/0"}')
    with pytest.raises(LoadError, match=r"irscope\.audit/0"):
        Dataset(out)


def test_a_name_of_a_file_that_is_no_text_has_a_row(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.onnx")
    Path(path).write_bytes(model_bytes())
    audit([str(tmp_path)], tmp_path / "r", Setup(), jobs=1)
    (row,) = pyarrow.parquet.read_table(tmp_path / "r" / "models").to_pylist()
    assert row["status"] == "ok" and row["uri"].isprintable()


def test_a_contradiction_and_missing_weights_are_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    hub, results = tmp_path / "hub", tmp_path / "results"
    hub.mkdir()
    (hub / "good.onnx").write_bytes(model_bytes())
    head = '<ir_version: 9, opset_import: ["" : 17]> g '
    wrong = onnx.parser.parse_model(f"{head}(float[2,4] x, float[5,3] w) => (float[2,3] y) {{ y = MatMul(x, w) }}")
    onnx.save(wrong, hub / "wrong.onnx")
    far = onnx.parser.parse_model(f"{head}(float[2,4] x) => (float[2,4] y) {{ y = Add(x, w) }}")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=(4,), data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="gone.bin")
    far.graph.initializer.append(tensor)
    onnx.save(far, hub / "far.onnx")
    assert main(["audit", str(hub), "-o", str(results), "-q"]) == 5
    rows = {Path(uri).name: row for uri, row in rows_of(results).items()}
    said = {name: (row["status"], row["reason"], row["code"]) for name, row in rows.items()}
    assert said == {
        "good.onnx": ("ok", None, None),
        "wrong.onnx": ("failed", "contradiction", "IRS201"),
        "far.onnx": ("failed", "missing data", "IRS156"),
    }
    assert rows["far.onnx"]["parameters"] == 4
    capsys.readouterr()
    assert main(["run", str(hub / "far.onnx")]) == 0
    assert "gone.bin" in capsys.readouterr().err
    (tmp_path / "irscope.toml").write_text('models = ["hub/far.onnx"]\nbudgets = ["parameters < 1M"]\n')
    assert main(["check", str(tmp_path / "irscope.toml")]) == 0
    assert "gone.bin" in capsys.readouterr().err


def test_a_number_that_nobody_declared_is_a_number_in_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Card.fields
    monkeypatch.setattr(Card, "fields", lambda self: {**before(self), "bits_each": 16.5, "columns": 7})
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "one.onnx").write_bytes(model_bytes())
    results = tmp_path / "results"
    item = Item(Local(str(tmp_path / "hub" / "one.onnx")))
    dataset = Dataset(results, writable=True)
    dataset.settle(Setup(), "local")
    dataset.add([(item, "key", analyse(item, Setup(), (chosen_device("h100"),)))])
    dataset.flush()
    dataset.close()
    [row] = rows_of(results).values()
    assert (row["bits_each"], row["columns"]) == (16.5, 7)
