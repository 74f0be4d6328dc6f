"""Several models in one run: a row for each, what fails among them, patterns, sizes, formats."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest

import irscope
from irscope.cli import many
from irscope.cli.main import main
from irscope.errors import LoadError
from irscope.frontends.zoo.names import is_pattern
from irscope.tools.many import models_named, short_names
from tests.cli.test_bad_input import MODEL
from tests.tools.pages import table_schema

LARGER = MODEL.replace("f32[4,8]", "f32[4,64]").replace("f32[8]", "f32[64]").replace("batch,8]", "batch,64]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "small.irs").write_text(MODEL)
    (tmp_path / "nets" / "large.irs").write_text(LARGER)
    (tmp_path / "broken.irs").write_text(MODEL[:40])
    return tmp_path


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(capsys.readouterr().out))]


def test_a_row_has_the_numbers_of_the_card(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nets/small.irs", "nets/large.irs", "--device", "l4", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads(table_schema())).validate(found)
    assert (found["schema"], found["device"], found["complete"]) == ("irscope.table/1", "l4", True)
    for row in found["rows"]:
        assert row["fields"]["peak"] == irscope.card(irscope.load(row["model"]), device="l4").fields()["peak"]
        assert row["fields"]["sizes"] == "batch=1" and row["error"] is None
    assert found["rows"][0]["fields"]["flops"] < found["rows"][1]["fields"]["flops"]


def test_what_is_unknown_is_no_zero(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nets/small.irs", "broken.irs", "--format", "csv"]) == 5
    _, broken = rows(capsys)
    assert broken["model"] == "broken.irs" and broken["error"].startswith("IRS1") and broken["why"].startswith("broken.irs")
    assert {broken[key] for key in ("fits", "peak", "parameters", "flops", "energy")} == {""}


def test_a_model_that_fails_is_a_row(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "broken.irs", "nets/small.irs", "absent.irs", "--format", "json"]) == 5
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not found["complete"] and [row["error"] is None for row in found["rows"]] == [False, True, False]
    assert found["rows"][2]["error"]["code"] == "IRS100" and found["rows"][2]["fields"] is None
    assert len(err.splitlines()) == 2 and all(line.startswith("irscope: error IRS1") for line in err.splitlines())


@pytest.mark.parametrize(
    ("models", "code"), [(["absent.irs", "broken.irs"], 3), (["absent.irs", "timmm:x"], 5), (["nets/small.irs", "timm2:x"], 5)]
)
def test_the_exit_code_says_how_much_is_there(models: list[str], code: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *models]) == code


def test_one_models_bug_leaves_the_others(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = many.make_card

    def fails(model: irscope.Model, *rest: object, **more: object) -> object:
        if "large" in model.program.path:
            raise ZeroDivisionError("oh")
        return real(model, *rest, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(many, "make_card", fails)
    assert main(["run", "nets/large.irs", "nets/small.irs", "--format", "csv"]) == 5
    first, second = rows(capsys)
    assert first["error"] == "IRS900" and "ZeroDivisionError: oh" in first["why"] and second["parameters"] == "32"


def test_an_interrupt_leaves_what_was_done(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = many.make_card

    def stops(model: irscope.Model, *rest: object, **more: object) -> object:
        if "large" in model.program.path:
            raise KeyboardInterrupt
        return real(model, *rest, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(many, "make_card", stops)
    assert main(["run", "nets/small.irs", "nets/large.irs", "--format", "csv"]) == 130
    out, err = capsys.readouterr()
    assert out.count("\n") == 2 and "interrupted after 1 of 2" in err


def test_patterns_stand_for_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert models_named(["nets/*.irs", "broken.irs"]) == ["nets/large.irs", "nets/small.irs", "broken.irs"]
    assert sorted(models_named(["**/*.irs"])) == ["broken.irs", "nets/large.irs", "nets/small.irs"]
    assert main(["run", "nets/*.irs", "--format", "csv"]) == 0
    assert [row["model"] for row in rows(capsys)] == ["nets/large.irs", "nets/small.irs"]
    assert main(["nets/*.irs", "--format", "csv"]) == 0
    assert len(rows(capsys)) == 2
    # A pattern that one file matches is still a table, so that scripts need not count.
    assert main(["run", "nets/s*.irs", "--format", "csv"]) == 0
    assert len(rows(capsys)) == 1
    assert main(["run", "nets/*.onnx"]) == 2
    assert "IRS690" in capsys.readouterr().err


def test_patterns_stand_for_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.frontends.zoo.packages.names_of", lambda package: ["resnet18", "resnet50", "vgg11"])
    assert models_named(["torchvision:resnet*"]) == ["torchvision:resnet18", "torchvision:resnet50"]
    assert models_named(["timm:resnet?8{sizes=[1,2]}"]) == ["timm:resnet18{sizes=[1,2]}"]
    assert models_named(["timm:resnet1[0-9]{num_classes=3}"]) == ["timm:resnet18{num_classes=3}"]
    assert not is_pattern("timm:x{sizes=[1,2]}") and is_pattern("net[12].irs")
    (here / "net[12].irs").write_text(MODEL)
    assert not is_pattern("net[12].irs")


def test_sizes_cross_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nets/small.irs", "nets/large.irs", "--sweep", "batch=1,8,64", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["model"], row["sizes"]) for row in found] == [
        (name, {"batch": size}) for name in ("nets/small.irs", "nets/large.irs") for size in (1, 8, 64)
    ]
    for row in found:
        model = irscope.load(row["model"], bind=row["sizes"])
        assert row["fields"]["flops"] == irscope.run(model, "flops")["flops"].report().summary["total_flops"]


def test_a_model_without_the_size_is_a_row(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "fixed.irs").write_text(MODEL.replace("symbol batch [1,*]\n", "").replace("batch", "2"))
    assert main(["run", "nets/small.irs", "fixed.irs", "--sweep", "batch=4", "--format", "csv"]) == 5
    assert [row["error"] for row in rows(capsys)] == ["", "IRS625"]


def test_tables_are_sorted_filtered_and_cut(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format_name in ("csv", "json"):
        assert main(["run", "nets/small.irs", "nets/large.irs", "--sort", "flops", "--top", "1", "--format", format_name]) == 0
        out = capsys.readouterr().out
        assert "large.irs" in out and "small.irs" not in out
    assert main(["run", "nets/small.irs", "nets/large.irs", "--filter", "parameters < 100", "--format", "csv"]) == 0
    assert [row["model"] for row in rows(capsys)] == ["nets/small.irs"]
    assert main(["run", "nets/small.irs", "nets/large.irs", "--sort", "least_time", "--device", "h200"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "least time" in said, "what is sorted by is shown"
    assert "the order by time is not certain: beside small.irs, which is predicted to be the quickest, it may be large.irs" in said
    assert main(["run", "nets/small.irs", "nets/large.irs", "--sort", "size"]) == 2


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_text_fits_the_terminal(width: int, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["run", "nets/small.irs", "nets/large.irs"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= max(width, 78) for line in out.splitlines())
    head = next(line for line in out.splitlines() if line.strip().startswith("model "))
    assert "fits" in head and "small.irs" in out and ("nets/small.irs" not in out)
    assert width > 80 or "no room for: " in out


def test_sizes_tell_rows_apart_and_others_are_a_note(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (here / "two.irs").write_text(
        MODEL.replace("symbol batch [1,*]", "symbol batch [1,*]\nsymbol length [1,*]").replace("[batch,", "[batch*length,")
    )
    assert main(["run", "two.irs", "nets/small.irs", "--sweep", "batch=1,8"]) == 0
    out = capsys.readouterr().out
    assert out.count("batch=1  ") == 2 and out.count("batch=8  ") == 2
    assert "sizes that are open: length=1" in out


def test_html_and_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nets/small.irs", "broken.irs", "--format", "html", "-o", "table.html"]) == 5
    page = (here / "table.html").read_text()
    assert "nets/small.irs" in page and "IRS1" in page


def test_passes_give_their_summaries(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "nets/small.irs", "nets/large.irs", "broken.irs", "--bind", "batch=2", "--passes", "flops,params"]
    assert main([*arguments, "--format", "json"]) == 5
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads(table_schema())).validate(found)
    assert found["rows"][0]["summaries"]["flops"]["total_flops"] == 2 * 2 * 4 * 8 + 2 * 4
    assert found["rows"][1]["summaries"]["params"]["count"] == 4 * 64 and found["rows"][0]["fields"] is None
    assert main(arguments) == 5
    text = capsys.readouterr().out
    assert "total flops" in text and "tied bytes saved" in text and "IRS1" in text


def test_several_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "nets/small.irs", "broken.irs", "nets/large.irs", "--format", "json"]
    assert main(arguments) == 5
    one_by_one = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--jobs", "2"]) == 5
    assert json.loads(capsys.readouterr().out) == one_by_one


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plot", "x.svg"], "--plot is about one model"),
        (["--explain", "y"], "--explain is about one model"),
        (["--timing"], "--timing"),
        (["--format", "layers-json"], "--format layers-json"),
        (["--jobs", "0"], "--jobs is 1 to"),
        (["--passes", "livness"], "unknown pass"),
    ],
)
def test_what_is_about_one_model(options: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nets/small.irs", "nets/large.irs", *options]) == 2
    out, err = capsys.readouterr()
    assert not out and said in err


def test_strict_and_fail_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = MODEL.replace("nn.relu", "my.strange")
    (here / "strange.irs").write_text(strange)
    assert main(["run", "nets/small.irs", "strange.irs"]) == 0
    assert main(["run", "nets/small.irs", "strange.irs", "--strict"]) == 5
    assert "IRS540: --strict: strange.irs: 1 unknown operators" in capsys.readouterr().err
    assert main(["run", "nets/small.irs", "strange.irs", "--fail-on", "warning"]) == 1


def test_hostile_names_stay_names(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    names = ["<img src=x onerror=alert(1)>.irs", "\u202egnp.irs", "=1+2.irs", "a\x1b[31mb.irs"]
    for name in names:
        (here / name).write_text(MODEL if name != names[0] else "no model <script>")
    for format_name in ("text", "csv", "html", "json"):
        assert main(["run", *names, "--format", format_name]) == 5
        out, err = capsys.readouterr()
        assert "\u202e" not in (out if format_name in ("text", "html") else "") + err
        assert "\x1b" not in out + err
        assert format_name != "html" or ("<img src=x" not in out and "&lt;img src=x" in out)


@pytest.mark.slow
def test_a_long_error_is_cut(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object, **__: object) -> object:
        raise LoadError("x " * 5_000_000, where="here", hint="y" * 10_000_000)

    monkeypatch.setattr(many, "open_from", fails)
    for format_name in ("text", "csv", "html", "json"):
        assert main(["run", "nets/small.irs", "nets/large.irs", "--format", format_name]) == 3
        out, err = capsys.readouterr()
        assert len(err) < 1000 and len(out) < 1_000_000


@pytest.mark.parametrize(
    ("texts", "short", "said"),
    [
        (["a/b/x.onnx", "a/b/y.onnx"], ["x.onnx", "y.onnx"], "a/b/*"),
        (["m/r18/model.onnx", "m/r50/model.onnx"], ["r18", "r50"], "m/*/model.onnx"),
        (["timm:x", "timm:y", "timm:x"], ["x", "y", "x"], "timm:*"),
        (["a/x.onnx", "timm:y"], ["a/x.onnx", "timm:y"], ""),
        (["a/x", "a/x"], ["a/x", "a/x"], ""),
        (["a/x", "a/x/y"], ["x", "x/y"], "a/*"),
        (["x", "y/x"], ["x", "y/x"], ""),
    ],
)
def test_names_are_cut_where_they_are_equal(texts: list[str], short: list[str], said: str) -> None:
    assert short_names(texts) == (short, said)


def test_memory_does_not_grow_with_models(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import weakref

    alive: list[weakref.ref[object]] = []
    real = many.make_card

    def watched(model: irscope.Model, *rest: object, **more: object) -> object:
        assert sum(one() is not None for one in alive) == 0
        alive.append(weakref.ref(model.manager))
        return real(model, *rest, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(many, "make_card", watched)
    assert main(["run", *["nets/small.irs", "nets/large.irs"] * 3]) == 0
    assert len(alive) == 6


def test_errors_survive_another_process() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(LoadError("what", code="IRS100", where="here", hint="do")))
    assert (str(error), error.code, error.exit_code) == ("here: what (do)", "IRS100", 3)
