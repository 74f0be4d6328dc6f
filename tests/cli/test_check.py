"""`irscope check`: budgets, baselines, outputs, and what is wrong with any of them."""

from __future__ import annotations

import csv
import html
import json
import random
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from irscope.cli.check import OUTPUTS, github, junit, markdown
from irscope.cli.main import main
from irscope.errors import ExitCode, UsageError
from irscope.report.values import Provenance, Quantity
from irscope.tools.check import NUMBERS, Budget, Checked, Entry, Settled, check, numbers_of, read_budget, read_plan, surely
from tests.cli.test_bad_input import MODEL

FIXED = MODEL.replace("symbol batch [1,*]\n", "").replace("batch", "4")
"""A linear layer from 8 to 4 features and a relu: 32 parameters, 2*8*4 + 4 FLOPs a row."""
FLOPS = 4 * (2 * 8 * 4 + 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.irs").write_text(FIXED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "irscope.toml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["check", "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def reasons(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["budget"]: (one["status"], one["reason"]) for one in document["budgets"]}


@pytest.mark.parametrize(
    ("text", "field", "operator", "limit", "change"),
    [
        ("peak < 8GiB", "peak", "<", 8 << 30, ""),
        ("time<5ms", "time", "<", 0.005, ""),
        ("least time < 5ms", "least_time", "<", 0.005, ""),
        ("parameters <= 26M", "parameters", "<=", 26_000_000, ""),
        ("unknown == 0", "unknown", "=", 0, ""),
        ("size on disk < 100MB", "size_on_disk", "<", 100_000_000, ""),
        ("Size-On_Disk < 1e3", "size_on_disk", "<", 1000, ""),
        ("flops < +2%", "flops", "<", 0.02, "share"),
        ("peak <= -5%", "peak", "<=", -0.05, "share"),
        ("reserved < +64MiB", "peak_reserved", "<", 64 << 20, "amount"),
        ("fits = yes", "fits", "=", True, ""),
        ("energy < 300mJ", "energy", "<", 0.3, ""),
        ("intensity >= 2.5", "intensity", ">=", 2.5, ""),
    ],
)
def test_a_budget_is_read(text: str, field: str, operator: str, limit: float, change: str) -> None:
    budget = read_budget(text)
    assert (budget.field, budget.operator, budget.limit, budget.change) == (field, operator, limit, change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("peek < 1GiB", "did you mean 'peak'?"),
        ("peak < 5ms", "is not an amount of memory"),
        ("time < 5MiB", "is not a time"),
        ("flops < 2%", "has a sign: +2%"),
        ("peak ~ 3", "cannot be compared by ~"),
        ("fits < 3", "cannot be compared by <"),
        ("fits = maybe", "is yes or no"),
        ("peak <", "a value is missing"),
        ("peak", "an operator is missing"),
        ("", "a name is missing"),
        ("peak < 1GiB and flops < 3", "one comparison alone"),
        ("peak < +-3GiB", "is not an amount"),
        ("parameters < 1.5", "is not a whole number"),
    ],
)
def test_a_budget_that_makes_no_sense_says_why(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        read_budget(text, "irscope.toml")
    assert said in str(caught.value) and caught.value.code == "IRS681" and "\n" not in str(caught.value)


def test_intervals_are_judged_as_all_of_their_numbers_are() -> None:
    """Against trying every number of small intervals."""
    compare = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "=": int.__eq__, "!=": int.__ne__}
    for operator, holds in compare.items():
        for low in range(5):
            for high in range(low, 5):
                for limit in range(-1, 6):
                    kept = {holds(number, limit) for number in range(low, high + 1)}
                    # Between two neighbours of the interval lie numbers that are no integers: only = and != can tell.
                    wanted = kept.pop() if len(kept) == 1 else None
                    assert surely(operator, low, high, limit) == wanted, (operator, low, high, limit)
    assert surely("<", 3, None, 10) is None and surely("<", 11, None, 10) is False
    assert surely(">", None, 5, 10) is False and surely("=", None, None, 1) is None


def test_kept_budgets_pass_and_exceeded_ones_say_by_how_much(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["flops < 1k", "parameters = 32", "unknown = 0"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    assert (code, document["passed"], document["headline"]) == (0, True, ["passed: 3 budgets of 1 model"])
    (model,) = document["models"]
    assert (model["numbers"]["flops"], model["numbers"]["parameters"], model["key"]) == (FLOPS, 32, "model.irs@h200")
    write(f'budgets = ["flops < {FLOPS}", "parameters <= 30"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    assert code == ExitCode.FINDINGS and not document["passed"]
    assert reasons(document) == {
        f"flops < {FLOPS}": ("exceeded", "it is 272 FLOPs"),
        "parameters <= 30": ("exceeded", "it is 32, 2 too much"),
    }


def test_a_size_that_nobody_gave_cannot_be_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "open.irs").write_text(MODEL, encoding="utf-8")
    write('budgets = ["flops < 1G", "peak < 1GiB", "parameters = 32"]\nmodels = ["open.irs"]\n')
    code, document = answer(capsys)
    assert code == ExitCode.PARTIAL
    found = reasons(document)
    assert found["parameters = 32"] == ("ok", "")
    for budget in ("flops < 1G", "peak < 1GiB"):
        assert found[budget] == ("unjudged", "it depends on batch, and no size is given: bind = { batch = 8 }")
    assert all(one["now"] is None for one in document["budgets"] if one["status"] == "unjudged")
    main(["check", "--format", "md"])
    assert "| 68\\*batch FLOPs |" in capsys.readouterr().out
    write('budgets = ["flops < 1G"]\n[[models]]\nmodel = "open.irs"\nbind = { batch = 4 }\n')
    code, document = answer(capsys)
    assert (code, document["models"][0]["key"], document["models"][0]["numbers"]["flops"]) == (0, "open.irs{batch=4}@h200", FLOPS)


def test_what_is_unknown_cannot_be_judged_and_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.irs").write_text(FIXED.replace("nn.relu", "vendor.magic"), encoding="utf-8")
    write('budgets = ["flops < 1G", "flops < 10", "unknown = 0"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    found = reasons(document)
    assert code == ExitCode.FINDINGS
    assert found["unknown = 0"][0] == "exceeded"
    assert found["flops < 1G"][0] == "unjudged"
    # What is known of it is too much already.
    assert found["flops < 10"][0] == "exceeded"


def test_the_least_time_is_compared_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["least time < 1s", "least time > 1s"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    assert code == ExitCode.FINDINGS
    assert [one["status"] for one in document["budgets"]] == ["ok", "exceeded"]


def test_a_predicted_time_is_judged_by_its_interval(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["time < 1s"]\nmodels = ["model.irs"]\n')
    _, document = answer(capsys)
    predicted, least = (document["models"][0]["numbers"][name] for name in ("time", "least_time"))
    assert least < predicted < 1 and document["budgets"][0]["status"] == "ok"
    write(f'budgets = ["time < {predicted * 1e9:.0f}ns"]\nmodels = ["model.irs"]\n')
    assert answer(capsys)[1]["budgets"][0]["status"] == "unjudged", "the interval holds more than the limit"


def test_unknown_is_all_that_no_number_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The result of an operator that nobody knows has no size.
    magic = FIXED.replace("nn.relu", "vendor.magic").replace("%z: f32[4,4]", "%z: ?[*]")
    (folder / "model.irs").write_text(magic, encoding="utf-8")
    write('budgets = ["unknown = 0", "unknown tensors > 0"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    numbers = document["models"][0]["numbers"]
    assert numbers["unknown"] == numbers["unknown_ops"] + numbers["unknown_tensors"] + numbers["unknown_weights"]
    assert code == ExitCode.FINDINGS and numbers["unknown_tensors"] > 0
    assert [one["status"] for one in document["budgets"]] == ["exceeded", "ok"]


def judged(now: Quantity, base: Quantity | None, text: str, surely: bool) -> tuple[str, str]:
    from irscope.tools import check as module

    class Target:
        key = "m"

    target = Target()
    target.surely = surely  # type: ignore[attr-defined]  # stands for the whole

    class One:
        pass

    one: Any = One()
    one.target = target
    budget = read_budget(text)
    return module._against_limit(budget, now, one) if base is None else module._against_base(budget, now, base, one)


PEAK = Quantity(100, Provenance.MODELLED, lo=90, hi=130)


@pytest.mark.parametrize(
    ("text", "surely", "as_modelled"),
    [
        ("peak < 131", "ok", "ok"),
        ("peak < 120", "unjudged", "ok"),
        ("peak < 95", "unjudged", "exceeded"),
        ("peak < 90", "exceeded", "exceeded"),
    ],
)
def test_an_interval_across_the_limit_is_not_surely_judged(text: str, surely: str, as_modelled: str) -> None:
    status, reason = judged(PEAK, None, text, True)
    assert status == surely and (status != "unjudged" or "90 B at least, 130 B at most" in reason)
    assert judged(PEAK, None, text, False)[0] == as_modelled


def test_changes_are_judged_at_both_ends() -> None:
    worse = Quantity(100, Provenance.MODELLED, lo=90, hi=160)
    assert judged(PEAK, PEAK, "peak < +2%", True) == ("ok", "")
    status, reason = judged(worse, PEAK, "peak < +2%", True)
    assert (status, reason) == ("exceeded", "at its upper end it was 130 B, now 30 B more (+23.08%)")
    assert judged(worse, PEAK, "peak < +2%", False)[0] == "ok"
    assert judged(Quantity(100), PEAK, "peak < +2%", True)[0] == "unjudged"


def test_shares_are_exact_where_floats_are_not() -> None:
    base, limit = 10**17, "flops <= +1%"
    assert judged(Quantity(base + base // 100), Quantity(base), "flops < +1%", True)[0] == "exceeded"
    assert judged(Quantity(base), Quantity(base), "flops <= +0%", True)[0] == "ok"
    assert judged(Quantity(base + 1), Quantity(base), "flops <= +0%", True)[0] == "exceeded"
    assert judged(Quantity(1), Quantity(0), limit, True)[0] == "exceeded"
    assert judged(Quantity(0), Quantity(0), limit, True)[0] == "ok"


def test_the_baseline_is_written_and_held_against(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["flops < +2%", "parameters <= +0"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    assert code == ExitCode.PARTIAL and "there is no baseline; `irscope check --update` writes it" in reasons(document)["flops < +2%"][1]
    assert main(["check", "--update"]) == 0
    first = Path("irscope-baseline.json").read_bytes()
    assert main(["check", "--update"]) == 0
    assert Path("irscope-baseline.json").read_bytes() == first
    stored = json.loads(first)
    assert stored["schema"] == "irscope.baseline/1"
    assert stored["models"]["model.irs@h200"]["numbers"]["flops"] == FLOPS
    assert str(folder).encode() not in first
    capsys.readouterr()
    code, document = answer(capsys)
    assert code == 0 and document["models"][0]["file"] == "same" and document["budgets"][0]["change"] == 0
    wider = FIXED.replace("[4,8]", "[5,8]").replace("f32[4,4]", "f32[4,5]")
    (folder / "model.irs").write_text(wider, encoding="utf-8")
    code, document = answer(capsys)
    found = reasons(document)
    assert code == ExitCode.FINDINGS and document["models"][0]["file"] == "changed"
    assert found["parameters <= +0"] == ("exceeded", "it was 32, now 8 more (+25.00%)")
    capsys.readouterr()
    assert main(["check", "--update"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "wrote irscope-baseline.json: 1 of 1 models"
    assert "model.irs@h200: parameters 32 -> 40 (+25.00%)" in told and f"model.irs@h200: flops {FLOPS} FLOPs -> 425 FLOPs (+56.25%)" in told
    assert main(["check"]) == 0


def test_lines_that_are_cut_name_the_option_that_shows_them() -> None:
    from irscope.cli.check import _first

    lines = [str(number) for number in range(5)]
    assert _first(lines, 3, "changes", None) == ["0", "1", "2", "and 2 more changes; --rows 0 shows all"]
    assert _first(lines, 3, "changes", 0) == _first(lines, 5, "changes", None) == lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON"),
        ("[]", "it names no schema"),
        ('{"schema": "irscope.baseline/2"}', "its schema is 'irscope.baseline/2'"),
        ('{"schema": "irscope.baseline/1", "models": {"a": {"numbers": {"flops": "many"}}}}', "models.a.numbers.flops"),
        ('{"schema": "irscope.baseline/1", "models": {"a": {"numbers": {"flops": 1e999}}}}', "flops"),
    ],
)
def test_a_baseline_that_does_not_fit_says_so(content: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["flops < +2%"]\nmodels = ["model.irs"]\n')
    write(content, "irscope-baseline.json")
    assert main(["check"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert error.startswith("irscope: error IRS682: irscope-baseline.json: ") and said in error and error.count("\n") == 1
    assert main(["check", "--update"]) == 0 and main(["check"]) == 0


def test_a_baseline_of_another_irscope_runtime_or_device_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["flops < +2%", "peak < +2%"]\nmodels = ["model.irs"]\n')
    assert main(["check", "--update"]) == 0
    stored = json.loads(Path("irscope-baseline.json").read_text())
    stored["irscope"] = "0.0.1"
    one = stored["models"]["model.irs@h200"]
    one["numbers"]["flops"] = 100
    one["runtime"] = "PyTorch 2.9"
    write(json.dumps(stored), "irscope-baseline.json")
    capsys.readouterr()
    code, document = answer(capsys)
    found = reasons(document)
    assert code == ExitCode.FINDINGS and document["baseline_irscope"] == "0.0.1"
    assert "the file is that of the baseline, which irscope 0.0.1 wrote" in found["flops < +2%"][1]
    assert found["peak < +2%"][0] == "unjudged"
    assert "the baseline is for PyTorch 2.9, this model for no runtime that is known" in found["peak < +2%"][1]
    assert main(["check"]) == ExitCode.FINDINGS
    assert "irscope 0.0.1 wrote the baseline" in capsys.readouterr().out
    write('device = "l4"\nbudgets = ["flops < +2%"]\nmodels = ["model.irs"]\n')
    code, document = answer(capsys)
    assert "the baseline has no such model, only of h200" in reasons(document)["flops < +2%"][1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = [", "irscope.toml:1: is not TOML"),
        ("a = 1\nb = ]\n", "irscope.toml:2: is not TOML"),
        ('models = ["model.irs"]\nbudgts = []\n', "irscope.toml:2: budgts: there is no such field; there are models, baseline"),
        ('[[models]]\nmodel = "model.irs"\nbind = { batch = "x" }\n', "models[0].bind.batch: a whole number is wanted"),
        ('[[models]]\nmodel = "a"\n[[models]]\nmodle = "b"\n', "irscope.toml:3: models[1]: 'model' is missing"),
        (
            'models = ["model.irs"]\nbudgets = [\n  "peak < 1GiB",\n  "peek < 1GiB",\n]\n',
            "irscope.toml:4: budgets: there is no number 'peek'",
        ),
        ('[[models]]\nmodel = "model.irs"\nbudgets = ["peak < 1 parsec"]\n', "irscope.toml:3: "),
        ("models = []\n", "lists no models"),
        ("budgets = []\n", "'models' is missing"),
        ('models = "model.irs"\nmodelled = "perhaps"\n', "irscope.toml:2: modelled is surely or as-modelled"),
        ('models = ["model.irs"]\ndevice = "abacus"\n', "irscope.toml:2: "),
        ('models = ["model.irs", "model.irs"]\n', "'model.irs@h200' is listed twice"),
        ('[[models]]\nmodel = "model.irs"\ninput = { x = "f99[1]" }\n', "irscope.toml:3: models[0].input"),
        ('models = ["model.irs"]\nbaseline = "/etc/passwd"\n', "irscope.toml:2: baseline: a file beside this one"),
        ('models = ["model.irs"]\nbaseline = "../../.bashrc"\n', "irscope.toml:2: baseline: a file beside this one"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line_with_its_place(
    text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(text)
    assert main(["check"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and error.startswith("irscope: error IRS")


KEYS = [
    "models",
    "model",
    "name",
    "bind",
    "input",
    "method",
    "device",
    "devices",
    "torch",
    "alloc_conf",
    "modelled",
    "budgets",
    "baseline",
    "zzz",
]
VALUES = (
    *("1", "-1", "1e400", "nan", "true", '""', '"x"', '"\\u0000"', "[]", "[1]", '["x"]', "[[]]", "{}", "{ a = 1 }", '{ a = "b" }'),
    *("1979-05-27T07:32:00Z", "9223372036854775808999", "{ batch = -1 }", "{ batch = 99999999999999999999 }", '["peak < 1"]'),
)


def told_of(text: str) -> bool:
    """Whether a file is checked, or its mistake told in a line that names it."""
    write(text)
    try:
        checked = check(read_plan(Path("irscope.toml")))
    except UsageError as error:
        return "\n" not in str(error) and error.where.startswith("irscope.toml")
    return all("".join(output(checked)) for output in OUTPUTS.values())


@pytest.mark.parametrize("key", KEYS)
def test_no_value_of_a_key_is_a_traceback(key: str, folder: Path) -> None:
    for value in VALUES:
        whole = f"{key} = {value}\n" + ("" if key == "models" else 'models = ["model.irs"]\n')
        entry = "[[models]]\n" + ("" if key == "model" else 'model = "model.irs"\n') + f"{key} = {value}\n"
        for text in (whole, entry):
            assert told_of(text), text


def test_a_file_without_budgets_does_not_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('models = ["model.irs"]\n')
    assert main(["check"]) == ExitCode.USAGE
    assert "has no budgets, so that nothing could fail" in capsys.readouterr().err
    assert main(["check", "--update"]) == 0


def test_without_a_file_the_error_shows_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == ExitCode.USAGE
    assert 'models = ["model.onnx"]' in capsys.readouterr().err


def test_the_table_of_a_project_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        '[project]\nname = "mine"\n[tool.irscope]\nbudgets = ["parameters = 32"]\n[[tool.irscope.models]]\nmodel = "model.irs"\n',
        "pyproject.toml",
    )
    assert answer(capsys)[0] == 0
    write('[project]\nname = "mine"\n', "pyproject.toml")
    assert main(["check"]) == ExitCode.USAGE
    assert "[tool.irscope]" in capsys.readouterr().err


@pytest.mark.torch
def test_a_script_runs_only_when_it_is_trusted_and_from_the_folder_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    script = "open('ran', 'w').close()\nimport torch\ndef build():\n    return torch.nn.Linear(8, 4), (torch.zeros(2, 8),)\n"
    (folder / "sub" / "train.py").write_text(script, encoding="utf-8")
    write('budgets = ["parameters = 36"]\nmodels = ["./train.py:build"]\n', "sub/irscope.toml")
    code, document = answer(capsys, "sub")
    assert code == ExitCode.LOAD and not Path("ran").exists()
    assert document["models"][0]["error"] == {"code": "IRS684", "message": "it is made by a script, which runs only with --trust"}
    assert answer(capsys, "sub", "--trust")[0] == 0 and Path("ran").exists()


def test_own_budgets_replace_those_for_all_about_the_same_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.irs").write_text(FIXED, encoding="utf-8")
    write('budgets = ["flops < 10", "unknown = 0"]\n[[models]]\nmodel = "*.irs"\nbudgets = ["flops < 1k"]\ndevices = ["l4", "rtx4090"]\n')
    code, document = answer(capsys)
    assert code == 0
    assert [one["key"] for one in document["models"]] == ["model.irs@l4", "model.irs@rtx-4090", "other.irs@l4", "other.irs@rtx-4090"]
    assert [one["budget"] for one in document["budgets"]][:2] == ["unknown = 0", "flops < 1k"]


def test_a_model_that_cannot_be_read_is_a_row_and_the_rest_is_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.onnx").write_bytes(b"nonsense")
    write('budgets = ["flops < 1k"]\nmodels = ["broken.onnx", "model.irs", "no/*.onnx", "gone.onnx"]\n')
    code, document = answer(capsys)
    assert code == ExitCode.PARTIAL and document["missing"] == ["no/*.onnx"]
    assert [bool(one["error"]) for one in document["models"]] == [True, False, True]
    assert document["budgets"][0]["status"] == "ok"
    write('budgets = ["flops < 1k"]\nmodels = ["broken.onnx"]\n')
    assert answer(capsys)[0] == ExitCode.LOAD


def test_an_update_keeps_what_is_stored_of_models_that_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.irs").write_text(FIXED, encoding="utf-8")
    write('budgets = ["flops < +2%"]\nmodels = ["model.irs", "other.irs"]\n')
    assert main(["check", "--update"]) == 0
    before = Path("irscope-baseline.json").read_bytes()
    (folder / "other.irs").write_text("nonsense", encoding="utf-8")
    assert main(["check", "--update"]) == ExitCode.PARTIAL
    assert Path("irscope-baseline.json").read_bytes() == before


NASTY = "a|b`c<d>&\"e'%,:@you ‮[x](y)*_~#!$\\é.irs"


def outputs(folder: Path, *file: str) -> dict[str, str]:
    arguments = [part for name in ("junit", "github", "markdown", "json") for part in (f"--{name}", str(folder / name))]
    main(["check", *arguments, *file])
    return {name: (folder / name).read_text(encoding="utf-8") for name in ("junit", "github", "markdown", "json")}


def test_every_output_of_one_run_says_the_same_and_is_the_same_again(folder: Path, tmp_path: Path) -> None:
    write('budgets = ["flops < 10", "parameters = 32", "flops < +1%"]\nmodels = ["model.irs", "gone.irs"]\n')
    first = outputs(folder)
    assert outputs(folder) == first
    assert outputs(folder, str(folder / "irscope.toml")) == first
    assert not any(str(folder) in text for text in first.values())
    suites = ElementTree.fromstring(first["junit"])
    assert suites.attrib == {"name": "irscope check", "tests": "4", "failures": "2", "errors": "1"}
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suites.iter("testcase")}
    assert cases == {
        ("model.irs@h200", "flops < 10"): ["failure"],
        ("model.irs@h200", "parameters = 32"): [],
        ("model.irs@h200", "flops < +1%"): ["failure"],
        ("gone.irs@h200", "read"): ["error"],
    }
    assert all(int(suite.get("tests", 0)) == len(suite) for suite in suites)
    lines = first["github"].splitlines()
    assert lines[0] == "::error file=irscope.toml,line=1,title=model.irs@h200%3A flops < 10::it is 272 FLOPs, 262 FLOPs too much"
    assert len(lines) == 3 and all(line.startswith("::error file=irscope.toml,line=") for line in lines)
    assert first["markdown"].startswith("**irscope check failed**: 1 of 3 budgets exceeded, 1 budget cannot be judged, 1 of 2 models")


def test_csv_has_raw_numbers_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('budgets = ["flops < 1k", "parameters <= +0"]\nmodels = ["model.irs"]\n')
    assert main(["check", "--update"]) == 0 and main(["check", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = list(csv.DictReader(lines[1:4]))
    assert [(row["number"], row["unit"], row["value"], row["baseline_value"], row["share"]) for row in rows] == [
        ("flops", "FLOPs", str(FLOPS), str(FLOPS), "0.0"),
        ("parameters", "", "32", "32", "0.0"),
    ]


def test_nothing_in_a_name_is_markup(folder: Path) -> None:
    (folder / NASTY.replace("/", "")).write_text(FIXED, encoding="utf-8")
    write('budgets = ["flops < 10"]\nmodels = ["a*.irs", "bad\\u0000\\u0001*"]\n')
    checked = check(read_plan(Path("irscope.toml")))
    suites = ElementTree.fromstring("".join(junit(checked)).encode())
    (case,) = (case for case in suites.iter("testcase") if case.get("name") == "flops < 10")
    assert (case.get("classname") or "").replace("\\u202e", "‮") == f"{NASTY}@h200"
    annotation, *_ = list(github(checked))
    assert annotation.count("::") == 2 and annotation.count("\n") == 1
    title = annotation.partition("title=")[2].partition("::")[0]
    assert "," not in title and ":" not in title and "%25%2C%3A@you" in title
    row = next(line for line in "".join(markdown(checked)).splitlines() if "exceeded**" in line and line.startswith("|"))
    assert len(row.split("|")) == 9
    code = row.split("|")[2].strip().removeprefix("<code>").removesuffix("</code>")
    assert html.unescape(code).replace("\\u202e", "\u202e") == f"{NASTY}@h200" and not set(code) & set("`<>*_[]@~")


def test_random_names_and_reasons_are_well_formed_everywhere(folder: Path) -> None:
    write('budgets = ["flops < 10"]\nmodels = ["model.irs"]\n')
    checked = check(read_plan(Path("irscope.toml")))
    (one,) = checked.models
    drawn = random.Random(3)
    alphabet = "ab|`*<>&\"'%\r\n\t\x00\x1b\x85 ‮ \ud800\U0001f600:,;@[]\\"
    for _ in range(200):
        text = "".join(drawn.choice(alphabet) for _ in range(drawn.randrange(1, 30)))
        nasty = replace(one, target=replace(one.target, key=text), judged=tuple(replace(j, key=text, reason=text) for j in one.judged))
        made = Checked(checked.plan, (nasty,), None)
        ElementTree.fromstring("".join(junit(made)).encode("utf-8"))
        assert len("".join(github(made)).encode("utf-8").splitlines()) == 1
        table = [line for line in "".join(markdown(made)).split("\n") if line.startswith("| **")]
        assert len(table) == 1


def test_a_huge_name_stays_short(folder: Path) -> None:
    write('budgets = ["flops < 10"]\nmodels = ["model.irs"]\n')
    checked = check(read_plan(Path("irscope.toml")))
    (one,) = checked.models
    long = "x" * 10_000_000
    made = Checked(checked.plan, (replace(one, judged=tuple(replace(j, key=long, reason=long) for j in one.judged)),), None)
    for output in (junit, github, markdown):
        assert len("".join(output(made))) < 20_000


def test_every_number_of_a_card_can_have_a_budget(folder: Path) -> None:
    import irscope

    made = irscope.card("model.irs", device="h200")
    assert set(numbers_of(made)) == set(NUMBERS)
    assert all(isinstance(read_budget(f"{name} = {'yes' if name == 'fits' else '1'}"), Budget) for name in NUMBERS)


def test_a_process_ends_with_the_same_code_and_bytes(folder: Path) -> None:
    write('budgets = ["flops < 10"]\nmodels = ["model.irs"]\n')
    command = [sys.executable, "-m", "irscope", "check"]
    done = [subprocess.run(command, capture_output=True, check=False, cwd=folder) for _ in range(2)]
    assert [one.returncode for one in done] == [1, 1] and done[0].stdout == done[1].stdout
    assert b"failed: 1 of 1 budget exceeded" in done[0].stdout


def test_the_page_shows_the_sample_file() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "check.md").read_text(encoding="utf-8")
    assert f"```toml\n{(root / 'samples' / 'irscope.toml').read_text(encoding='utf-8')}```" in page
    documented = set(re.findall(r"`(\w+)`", page.partition("## The file")[2].partition("## Budgets")[0]))
    assert {field.name for kind in (Entry, Settled) for field in fields(kind)} <= documented


def test_the_document_follows_its_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "check.schema.json").read_text(encoding="utf-8"))
    write('budgets = ["flops < 10", "fits = yes", "peak < +1%"]\nmodels = ["model.irs", "gone.irs", "*.none"]\n')
    jsonschema.validate(answer(capsys)[1], schema)
