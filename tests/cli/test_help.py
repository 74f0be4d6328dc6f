"""Help that teaches: every command's examples are accepted by its parser, and those that nothing hinders here really run."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import shutil
import subprocess
from inspect import cleandoc
from pathlib import Path

import pytest

from irscope.cli.args import AMOUNTS
from irscope.cli.helptext import MOST_OPTIONS
from irscope.cli.main import COMMANDS, GROUPS, command_named, main, overview, parser_of
from irscope.errors import ExitCode, UsageError
from tests.frontends.hub import write_safetensors
from tests.tables import every

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
FILES = {
    "model.onnx": "models/transformer.onnx",
    "old.onnx": "models/cnn.onnx",
    "new.onnx": "models/cnn.onnx",
    "model.pt2": "models/net.pt2",
    "model.pt": "models/net.pt",
    "model.irs": "mlp.irs",
    "train.py": "train_ddp.py",
    "vision.py": "vision.py",
    "my_pass.py": "custom_pass.py",
    "run.jsonl": "recordings/net_pt2.torch-cpu.jsonl",
}
"""What stands for the files that examples name."""
EXAMPLES = [(name, line, answer) for name in COMMANDS for line, answer in command_named(name).examples]
NEEDS = {
    "tui": "a terminal",
    "mcp": "a client, and the package mcp",
    "audit": "a hub, a store and a cluster; tests of their own run audits",
    "calibrate": "a machine that does nothing else",
    "record": "time, and trust",
    "explain": "snapshots; tests of their own explain them",
    "repro": "a reproducer",
    "simulate": "tests of their own run programs",
    "generate": "packages of models, and a process of its own",
    "train-plan": "tests of their own capture steps",
}
"""Commands whose examples are only parsed, and why."""


PACKAGES = {
    "torchvision:": "torchvision",
    "transformers:": "transformers",
    "samples/llama": "transformers",
    "zoo resnet": "torchvision",
    " timm ": "timm",
    "compare-flops": "torch",
    "simulate": "torch",
    "--compile": "torch",
    "irscope record": "torch",
    "irscope audit": "pyarrow",
    "train-plan": "torch",
}
"""What examples with these words need."""


def installed(line: str) -> bool:
    """Whether the packages that an example needs are there."""
    return all(importlib.util.find_spec(package) is not None for words, package in PACKAGES.items() if words in line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("examples")
    for name, sample in FILES.items():
        shutil.copy(SAMPLES / sample, made / name)
    for name, sizes in (("before", [4, 4]), ("after", [4, 8])):
        write_safetensors(made / f"{name}.safetensors", {"fc.weight": sizes})
    (made / "irscope.toml").write_text('budgets = ["parameters < 1M"]\nmodels = ["model.onnx"]\n', encoding="utf-8")
    return made


def test_the_overview_names_every_command_once_by_a_question() -> None:
    text = overview()
    assert sum(len(commands) for commands in GROUPS.values()) == len(COMMANDS)
    for question, commands in GROUPS.items():
        assert f"\n\n{question}\n  {next(iter(commands))}" in text
    assert all(text.count(f"\n  {name} ") == 1 for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 120


@every("name", COMMANDS)
def test_every_command_has_examples_that_answer_questions(name: str) -> None:
    examples = command_named(name).examples
    assert len(examples) >= 3
    assert len({line for line, _ in examples}) == len(examples)
    for line, answer in examples:
        assert line.startswith((f"irscope {name}", "irscope ")) and len(line) <= 100
        assert "?" in answer and len(answer) <= 100
    shown = parser_of(name, command_named(name)).format_help()
    assert all(f"  {line}\n      {answer}\n" in shown for line, answer in examples)


@pytest.mark.parametrize("columns", ["60", "120"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_table_is_that_of_the_parser(
    name: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main([name, "--help", "all"]) == ExitCode.OK
    assert capsys.readouterr().out == parser_of(name, command_named(name)).format_help()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_is_one_screen(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    command = command_named(name)
    assert len(lines) <= 40 and lines[0].startswith(f"usage: irscope {name} [options]")
    assert max(map(len, lines)) <= 80
    assert " ".join(cleandoc(command.__doc__ or "").partition("\n\n")[0].split()) in " ".join(shown.split())
    monkeypatch.setenv("LINES", "24")
    assert main([name, "--help"]) == ExitCode.OK
    small = capsys.readouterr().out
    assert small.count("\n") < 24 and all(f"  {line}\n" in small for line, _ in command.examples[:3]) and lines[-1] in small
    monkeypatch.delenv("LINES")
    assert [line for line, _ in command.examples if f"  {line}\n" in shown] == [line for line, _ in command.examples[:3]]
    described = parser_of(name, command)
    flags = {flag for action in described._actions if action.help != argparse.SUPPRESS for flag in action.option_strings}
    used = getattr(command, "common", ())
    assert len(used) <= MOST_OPTIONS and set(used) <= flags and (used or len(flags) <= 2 * MOST_OPTIONS)
    assert all(re.search(rf"^  (-\w, )?{flag}\b", shown, re.M) for flag in used)
    assert f"`irscope {name} --help all`" in lines[-1]
    # Also beside other words, as argparse's own action prints it.
    assert main([name, "--quiet", "--help"]) == ExitCode.OK
    assert capsys.readouterr().out == shown


@every(("name", "line", "answer"), EXAMPLES, ids=[line for _, line, _ in EXAMPLES])
def test_the_parser_accepts_the_example(name: str, line: str, answer: str) -> None:
    program, command, *arguments = shlex.split(line)
    if command not in COMMANDS:  # `irscope MODEL` means `irscope run MODEL`
        command, arguments = "run", [command, *arguments]
    assert (program, command) == ("irscope", name)
    parsed = parser_of(name, command_named(name)).parse_args(arguments)
    assert isinstance(parsed, argparse.Namespace)


RUNNING = [line for name, line, _ in EXAMPLES if name not in NEEDS and installed(line)]


# What is compiled has tests of its own: test_compare_training.py, test_captured.py.
@pytest.mark.parametrize("line", [pytest.param(line, marks=[pytest.mark.full] * ("--compile-b" in line)) for line in RUNNING])
def test_the_example_runs(
    line: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))  # `irscope config device=rtx4090` would hold for all tests that follow
    assert main(shlex.split(line)[1:]) == ExitCode.OK, capsys.readouterr().err
    written = capsys.readouterr()
    assert written.out or written.err or " -o " in line


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["swep"], ExitCode.USAGE, "did you mean 'sweep'?"),
        (["someword"], ExitCode.USAGE, "'someword' is not a command, and as a model: "),
        (["someword"], ExitCode.USAGE, "`irscope --help` lists the commands"),
        (["gone.onnx"], ExitCode.LOAD, "gone.onnx: there is no such file"),
        (["--sweep", "batch=1"], ExitCode.USAGE, "options follow a command"),
        (["irscope.toml"], ExitCode.LOAD, "`irscope check irscope.toml`"),
        (["check", "model.onnx"], ExitCode.USAGE, 'models = ["model.onnx"]'),
        (["fit", "--memory", "1GiB", "run.jsonl"], ExitCode.LOAD, "`irscope compare MODEL run.jsonl`"),
        (["explain", "train.py"], ExitCode.LOAD, "`irscope simulate -o run.pickle train.py`"),
        (["explain", "model.onnx"], ExitCode.LOAD, "`irscope run --passes liveness,explain-peak model.onnx`"),
        (["generate", "--prompt", "8", "--new", "8", "train.py"], ExitCode.USAGE, "`irscope simulate train.py`"),
        (["simulate", "."], ExitCode.USAGE, "`irscope audit . -o RESULTS`"),
    ],
)
def test_what_is_no_model_is_answered_with_what_to_type(
    arguments: list[str], code: int, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_manual_page_is_sound_roff() -> None:
    """Every command and option is in it, and no line is a macro that nobody wrote."""
    page = (ROOT / "docs" / "irscope.1").read_text(encoding="utf-8")
    for name in COMMANDS:
        spelled = name.replace("-", "\\-")
        assert f'.SH "irscope {spelled}"\n' in page
        section = page.partition(f'.SH "irscope {spelled}"\n')[2].partition("\n.SH ")[0]
        for action in parser_of(name, command_named(name))._actions:
            assert all(f"\\fB{flag.replace('-', chr(92) + '-')}\\fR" in section for flag in action.option_strings), (name, action)
    known = ("TH", "SH", "SS", "PP", "TP", "B", "I", "RI", "IR", "br", "nf", "fi", '\\"')
    assert {line[1:].split(" ")[0] for line in page.splitlines() if line.startswith(".")} <= set(known)
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-ww", "-man", "-Tutf8", "-P-cbou"], input=page, capture_output=True, text=True, check=False, encoding="utf-8"
        )
        assert not done.stderr
        assert "irscope explain IRS205" in done.stdout and "batch=8,seq=128" in done.stdout


# What people type who come from other programs.


def test_words_of_other_programs_mean_what_they_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["help", "run"]) == main(["run", "--help"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]
    assert main(["help"]) == ExitCode.OK and "usage: irscope MODEL" in capsys.readouterr().out
    assert main(["help", "flops"]) == ExitCode.OK and "Count the arithmetic" in capsys.readouterr().out
    assert main(["help", "generat"]) == ExitCode.USAGE and "did you mean 'generate'" in capsys.readouterr().err
    assert main(["version"]) == ExitCode.OK and capsys.readouterr().out.startswith("irscope ")
    assert main(["diff", "old.onnx", "new.onnx"]) == ExitCode.OK
    (folder / "diff").write_bytes((folder / "old.onnx").read_bytes())
    assert main(["diff"]) == ExitCode.OK, "a file of that name is a model"
    (folder / "diff").unlink()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("run --devise l4 old.onnx", "did you mean `--device`?"),
        ("old.onnx --devise=l4", "did you mean `--device`?"),
        ("run --batch 16 old.onnx", "did you mean `--bind batch=16`?"),
        ("fit old.onnx --seq-len 128", "did you mean `--bind seq=128`?"),
        ("run --batch-size old.onnx", "did you mean `--bind batch=8`?"),
        ("export --pases dce old.onnx -o x.onnx", "did you mean `--passes`?"),
        ("fit --memory 24 old.onnx", "did you mean 24GiB?"),
        ("--memory 24 old.onnx", "did you mean 24GiB?"),
        ("run --wholly-unknown old.onnx", "shows what there is"),
    ],
)
def test_an_unknown_option_is_answered_with_what_is_meant(
    line: str, meant: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(line)) == ExitCode.USAGE
    assert meant in capsys.readouterr().err


def test_a_folder_of_models_leads_to_commands_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hub").mkdir()
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(SAMPLES / "models/cnn.onnx", tmp_path / "hub" / name)
    monkeypatch.chdir(tmp_path)
    assert main(["hub"]) == ExitCode.LOAD
    err = capsys.readouterr().err
    assert "`irscope run hub/*.onnx`" in err and "`irscope audit hub -o RESULTS`" in err


def test_no_hint_names_a_package_index_without_irscope() -> None:
    root = Path(__file__).parents[2]
    files = [path for place in ("irscope", "frontends", "passes", "tui", "docs") for path in (root / place).rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".md", ".json", ".1")}
    assert not [path for path, text in texts.items() if re.search(r"pip install '?irscope\b", text)]


def test_amounts_are_read_alike_in_every_command() -> None:
    """An option of AMOUNTS is one in each command that has it, and no number is read in a way of its own."""
    wrong, seen = [], set()
    for name in COMMANDS:
        for action in parser_of(name, command_named(name))._actions:
            option = next((word for word in action.option_strings if word in AMOUNTS), "")
            seen.add(option)
            if action.type is int or (option and action.metavar != AMOUNTS[option][1]) or (option and action.type is None):
                wrong.append((name, action.option_strings))
    assert wrong == [] and seen - {""} == AMOUNTS.keys()
    for command, kind in (("simulate", "train.py"), ("train-plan", "./train.py:build")):
        parsed = parser_of(command, command_named(command)).parse_args(["--link", "450GB/s", kind])
        assert parsed.link == 450 * 10**9
    with pytest.raises(UsageError, match="'55' is not a bandwidth; for example 450GB/s"):
        parser_of("train-plan", command_named("train-plan")).parse_args(["--link", "55", "./train.py:build"])
