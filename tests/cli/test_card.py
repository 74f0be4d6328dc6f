"""`irscope MODEL`, `irscope run MODEL` without passes, and `irscope config`."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import jsonschema
import pytest

from irscope.cli.main import main
from irscope.errors import PassError
from irscope.report.cardtext import HEIGHT
from irscope.report.printable import display_width
from irscope.tools import config
from tests.tools.pages import report_schema

SAMPLES = Path(__file__).parents[2] / "samples"
TAGGER, PYRAMID = str(SAMPLES / "tagger.irs"), str(SAMPLES / "pyramid.irs")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config, "local_gpu", lambda: "")
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main([*arguments]) == code
    return capsys.readouterr().out


def test_a_model_alone_is_run_and_shows_its_card(capsys: pytest.CaptureFixture[str]) -> None:
    alone = printed(capsys, TAGGER)
    assert printed(capsys, "run", TAGGER) == alone
    assert printed(capsys, "--device", "h200", TAGGER).splitlines()[1] == alone.splitlines()[1]
    lines = alone.splitlines()
    assert len(lines) <= HEIGHT
    assert lines[1].startswith("fits")


@pytest.mark.parametrize("columns", ["80", "60", "200", ""])
def test_a_card_is_as_wide_as_the_terminal_or_a_hundred_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, printed(capsys, TAGGER).splitlines())) <= int(columns or 100)


@pytest.mark.parametrize("asked", [["--all"], ["--passes", "default"], ["--rows", "5"], ["--sort", "flops"], ["--sweep", "batch=1,2"]])
def test_sections_come_where_something_of_them_is_asked_for(capsys: pytest.CaptureFixture[str], asked: list[str]) -> None:
    out = printed(capsys, "run", *asked, TAGGER)
    assert "\nliveness\n" in out
    assert not out.splitlines()[1].startswith("fits")


def test_json_has_the_card_beside_the_reports(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "run", "--format", "json", "--bind", "batch=2", TAGGER))
    jsonschema.validate(found, json.loads(report_schema()))
    assert [report["pass"] for report in found["reports"]] == ["shapes", "params", "flops", "liveness"]
    fields = found["card"]["fields"]
    assert fields["flops"] == found["reports"][2]["summary"]["total_flops"]
    assert fields["peak"] == found["reports"][3]["summary"]["device_peak_bytes"]
    assert fields["device"] == "h200"
    assert sum(part["bytes"] for part in found["card"]["memory"]["parts"]) == fields["peak"]
    assert "card" not in json.loads(printed(capsys, "run", "--format", "json", "--passes", "default", TAGGER))


def test_a_model_that_does_not_fit_says_how_much_is_missing_and_where_it_would(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "run", "--bind", "batch=2000", "--device", "t4", PYRAMID).splitlines()
    assert lines[1].startswith("does NOT fit")
    verdict = " ".join(lines[1:3])
    assert "too much for 14.16 GiB on NVIDIA T4" in verdict
    assert "would fit on" in verdict
    assert any("explain-peak" in line for line in lines)


def test_exit_codes_stay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "open.irs"
    path.write_text("irscope 1\nsymbol n [1,*]\ngraph @main {\n  input %x: f32[n,8]\n  %y: ?[*] = custom.thing(%x)\n  return %y\n}\n")
    out = printed(capsys, "run", str(path))
    assert "the cost of 1 node: custom.thing" in out
    assert "fits? not known" in out
    printed(capsys, "run", "--strict", str(path), code=5)
    printed(capsys, "run", "--fail-on", "warning", str(path), code=1)
    assert main(["run", str(tmp_path / "nothing.onnx")]) == 3


def test_a_device_is_set_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "h200" in printed(capsys, "config")
    printed(capsys, "config", "device=rtx4090")
    assert "rtx-4090, 23.64 GiB: set by irscope config" in printed(capsys, TAGGER)
    summary = json.loads(printed(capsys, "run", "--passes", "liveness", "--format", "json", "--bind", "batch=1", TAGGER))["reports"][0][
        "summary"
    ]
    assert summary["device"] == "rtx-4090"
    printed(capsys, "config", "--unset", "device")
    assert "h200, 139.80 GiB: the default" in printed(capsys, TAGGER)


@pytest.mark.parametrize("asked", [["colour=red"], ["device"], ["device=gtx9999"], ["--unset", "colour"]])
def test_settings_that_are_none_are_one_line(capsys: pytest.CaptureFixture[str], asked: list[str]) -> None:
    assert main(["config", *asked]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not config.config_file().exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"colour": "red"}', '{"device": 3}', '{"device": "gtx9999"}', "\xff\xfe", "a pipe"])
def test_a_broken_settings_file_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str], content: str) -> None:
    config.config_file().parent.mkdir(parents=True)
    os.mkfifo(config.config_file()) if content == "a pipe" else config.config_file().write_text(content, encoding="latin-1")
    for arguments in (["config"], ["run", TAGGER]):
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "IRS426" in line
        assert "config.json" in line


SECTIONS = (
    "default",
    "liveness",
    "plan",
    "schedule",
    "roofline,energy",
    "advise",
    "layers",
    "params",
    "cuda-memory",
    "ort-memory",
    "arch",
)


@pytest.mark.parametrize("columns", ["60", "80", ""])
@pytest.mark.parametrize("passes", SECTIONS)
def test_sections_are_no_wider_than_the_terminal_or_a_hundred_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, passes: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for model in (str(SAMPLES / "models" / "cnn.onnx"), TAGGER):
        lines = printed(capsys, "run", "--passes", passes, "--bind", "batch=2", model).splitlines()
        assert len(lines) > 10
        assert [line for line in lines if display_width(line) > int(columns or 100)] == []


@pytest.mark.parametrize(
    "place", ["irscope.passes.cost.energy.Energy", "irscope.passes.memory.liveness.Liveness", "irscope.passes.patterns.arch.Arch"]
)
def test_a_pass_that_fails_leaves_the_rest_of_the_card(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PassError("this cannot be", code="IRS501")

    monkeypatch.setattr(f"{place}.compute", fail)
    assert main([TAGGER]) == 4
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == TAGGER
    assert any("222,440 parameters" in line for line in lines)
    assert len(lines) <= HEIGHT
    assert "IRS501" in shown.err
    assert ("not known: " in shown.out) is place.endswith("Liveness")


def test_text_without_symbols_is_opened_as_its_card_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "fixed.irs"
    path.write_text(
        "irscope 1\ngraph @main {\n  input %x: f32[4,16]\n  param %w: f32[32,16]\n  %y: f32[4,32] = nn.linear(%x, %w, _)\n  return %y\n}\n"
    )
    assert main([str(path)]) == 0
    hint = re.search(r"`irscope (fit [^`]*)`", " ".join(capsys.readouterr().out.split()))
    assert hint and "batch" in hint[1]
    assert main([*shlex.split(hint[1]), "--memory", "1MiB", "--format", "json"]) == 0
    # 1 MiB less the 2,048 bytes of weights, over 16 and 32 floats for each row
    assert json.loads(capsys.readouterr().out)["largest"] == ((1 << 20) - 2048) // (4 * 48)


def test_warnings_do_not_drown_the_card(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = "".join(f"  %y{at}: ?[*] = custom.thing{at}(%x)\n" for at in range(40))
    path = tmp_path / "open.irs"
    path.write_text(f"irscope 1\nsymbol n [1,*]\ngraph @main {{\n  input %x: f32[n,8]\n{nodes}  return %y0\n}}\n")
    assert main([str(path)]) == 0
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) <= 5
    assert "more diagnostics (-v shows all)" in shown.err
    assert "the cost of 40 nodes: custom.thing0, custom.thing1, custom.thing10 and 37 more" in " ".join(shown.out.split())
    assert main(["-v", str(path)]) == 0
    assert len(capsys.readouterr().err.splitlines()) > 40


@pytest.mark.slow
def test_the_device_that_is_set_holds_for_other_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "config", "device=l4")
    found = json.loads(printed(capsys, "fit", "--format", "json", TAGGER))
    assert "L4" in found["target"]
    named = json.loads(printed(capsys, "fit", "--device", "h200", "--format", "json", TAGGER))
    assert "H200" in named["target"]


def test_commands_of_a_card_work_when_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--device", "t4", "--bind", "batch=1024", PYRAMID],
        [str(SAMPLES / "models" / "net.pt")],
        [str(SAMPLES / "mlp.irs")],
    ):
        lines = printed(capsys, *arguments).splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith("next"))
        text = "\n".join(line[9:] for line in lines[start:] if not line.startswith("~")).replace("\\\n", "")
        for command in text.splitlines():
            words = shlex.split(command)
            assert words[0] == "irscope"
            assert printed(capsys, *words[1:])


def test_a_batch_that_is_cut_in_halves_is_assumed_to_be_the_smallest_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "halves.irs"
    lines = ["irscope 1", "symbol batch", "graph @main {", "  input %x: f32[batch,64]", "  %h: ? = view.reshape(%x) {shape=[6,-1,64]}"]
    path.write_text("\n".join([*lines, "  %y: ? = nn.relu(%h)", "  return %y", "}", ""]))
    text = printed(capsys, "--device", "h200", str(path))
    assert (
        "fits as modelled at batch=6: " in text and "x f32[batch,64]; batch=6 (assumed)" in text and "--bind batch=6 --device h200" in text
    )
    assert main(["sweep", "--over", "batch=4,6,12", str(path)]) == 2
    assert "(it runs at batch=6,12)" in capsys.readouterr().err
    assert main(["sweep", "--over", "batch=4", str(path)]) == 2
    assert "(it runs at batch=6)" in capsys.readouterr().err
    assert main(["sweep", str(path)]) == 2
    assert "for example `--over batch=6,12,18`" in capsys.readouterr().err
