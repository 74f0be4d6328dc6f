"""What hints tell to type works when it is typed, and changes what it promises.

Hints hold what is to be typed between backticks: `--bind batch=8` is added to the command that was run, `irscope ...` is a command
of its own, in which MODEL stands for the model. The column `fix` of unknown tables holds options as they are.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import irscope
from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.errors import ExitCode
from irscope.ir.spelling import parse_input_type, typed_input
from irscope.ir.types import TensorType
from tests.cli.hint_models import write

ROOT = Path(__file__).parents[2]
SAMPLES = [*sorted((ROOT / "samples").glob("*.irs")), *sorted(path for path in (ROOT / "samples" / "models").iterdir())]
PASSES = (
    "shapes,params,flops,liveness",
    "liveness{model=eager}",
    "shapes,schedule{seconds=0.2}",
    "shapes,plan{seconds=0.2}",
    "recompute{seconds=0.2}",
    "explain-peak",
    "roofline",
    "ort-memory",
    "sweep",
    "checkpoint",
)
COMMANDS_TRIED = (
    *(["run", "--format", "json", "--passes", passes, "MODEL"] for passes in PASSES),
    ["run", "--explain", "nothing", "--passes", "shapes", "MODEL"],
    ["fit", "--memory", "1MiB", "MODEL"],
    ["fit", "--memory", "1", "MODEL"],
    ["fit", "--free", "a,b,c", "MODEL"],
    ["sweep", "MODEL"],
    ["sweep", "--over", "batch=1,2", "MODEL"],
    ["export", "-o", "FILE.json", "MODEL"],
    ["export", "-o", "FILE.pickle", "MODEL"],
    ["export", "--plan", "--seconds", "0.2", "-o", "FILE.csv", "MODEL"],
    ["compare-flops", "MODEL"],
    ["train-plan", "MODEL"],
    ["show", "MODEL"],
)
WITHOUT_RUNNING = ("pip ", "irscope record", "irscope calibrate", "irscope tui", "irscope export torchvision", "irscope train-plan")
"""Commands that install, run a model, measure or need a terminal: their options are checked, and they are not run."""


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str
    fixes: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)

    @property
    def unknown(self) -> int:
        """How many values have sizes that are not known, and how many branches are not decided, where the command tells."""
        reports = json.loads(self.out)["reports"] if self.out.startswith("{") else []
        found = 0
        for report in (report for report in reports if report["pass"] == "shapes"):
            found += report["coverage"]["total"] - report["coverage"]["known"]
            found += sum(row[1] == "?" for table in report["tables"] if table["title"] == "branches" for row in table["rows"])
        return found


def run(arguments: list[str]) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    said = Said(code, out.getvalue(), err.getvalue())
    said.typed.update(re.findall(r"`([^`]+)`", said.err))
    for report in json.loads(said.out).get("reports", []) if said.out.startswith("{") else []:
        texts = [*report["notes"], *report["remarks"].values(), *(one.get("hint", "") for one in report["diagnostics"])]
        said.typed.update(found for text in texts for found in re.findall(r"`([^`]+)`", text))
        for table in report["tables"]:
            keys = [column["key"] for column in table["columns"]]
            if "fix" in keys:
                said.fixes.update(row[keys.index("fix")] for row in table["rows"] if row[keys.index("fix")])
    return said


def is_for_typing(text: str) -> bool:
    return text.startswith(("irscope ", "-"))


def command_of(text: str, before: list[str], model: Path, folder: Path) -> list[str]:
    """The arguments that typing a hint makes."""
    words = [word.replace("MODEL", str(model)).replace("FILE", str(folder / "file")) for word in shlex.split(text)]
    if words[0] == "irscope":
        return words[1:]
    # An option that is given again counts in its new form; of the output nothing but the last is wanted either.
    return [*before, *words]


def filled(command: list[str], model: Path, folder: Path) -> list[str]:
    return [word.replace("MODEL", str(model)).replace("FILE", str(folder / "file")) for word in command]


def is_promise_kept(text: str, before: Said, after: Said) -> bool:
    """What an option makes known is known: the hint is not given again, and as much as before is known."""
    if text in before.fixes:
        return after.unknown < before.unknown
    return text.startswith("irscope ") or "--" not in text or text not in after.typed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.name: path for path in write(tmp_path_factory.mktemp("models"))}


def check(model: Path, folder: Path) -> int:
    """Run every command, and type every hint; the number of hints that were typed."""
    done: set[tuple[str, str]] = set()
    for template in COMMANDS_TRIED:
        command = filled(list(template), model, folder)
        before = run(command)
        assert before.code in tuple(ExitCode), (command, before.err)
        assert "this is a bug" not in before.err, before.err
        for text in sorted(before.typed | before.fixes):
            if not is_for_typing(text) or text.startswith(WITHOUT_RUNNING) or (command[0], text) in done:
                continue
            done.add((command[0], text))
            typed = command_of(text, command, model, folder)
            after = run(typed)
            assert "this is a bug" not in after.err, after.err
            assert after.code not in (ExitCode.USAGE, ExitCode.LOAD) or is_another_problem(before, after, text), (typed, after.err)
            assert is_promise_kept(text, before, after), (typed, sorted(after.typed), after.err)
    return len(done)


def is_another_problem(before: Said, after: Said, text: str) -> bool:
    """Whether what still fails has another cause than the one that the hint is about, and is no complaint about what was typed."""
    complaint = next((line for line in after.err.splitlines() if line.startswith("irscope: error")), "")
    if complaint in before.err and text not in complaint and any(text in line for line in before.err.splitlines() if line != complaint):
        return True  # the hint was about something else that was said
    return before.code == after.code and complaint not in before.err and not re.search("IRS6(00|01|05|06|20|23|24|25)", complaint)


@pytest.mark.parametrize("model", SAMPLES, ids=lambda path: path.name)
def test_hints_about_samples_work_when_typed(model: Path, tmp_path: Path) -> None:
    assert check(model, tmp_path) >= 1


@pytest.mark.parametrize("name", ["axes", "compared", "flag", "from_data", "rankless", "nonzero", "several", "ratio", "trips", "limited"])
def test_hints_about_what_is_unknown_work_when_typed(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    [model] = [path for file, path in made.items() if file.startswith(f"{name}.")]
    assert check(model, tmp_path) >= 1


@pytest.mark.parametrize("name", ["axes", "compared", "flag", "rankless", "ratio", "trips"])
def test_what_an_option_decides_has_a_fix(name: str, made: dict[str, Path]) -> None:
    said = run(["run", "--format", "json", "--passes", "shapes", str(made[f"{name}.onnx"])])
    assert len(said.fixes) == 1
    [fix] = said.fixes
    after = run(["run", "--format", "json", "--passes", "shapes", *shlex.split(fix), str(made[f"{name}.onnx"])])
    assert after.code == 0
    assert after.unknown < said.unknown


@pytest.mark.parametrize("name", ["from_data", "nonzero"])
def test_what_only_a_run_tells_is_given_as_a_size_of_its_own(name: str, made: dict[str, Path]) -> None:
    said = run(["run", "--format", "json", "--passes", "shapes", str(made[f"{name}.onnx"])])
    [fix] = said.fixes
    assert fix.startswith("--bind '?u0=")
    after = run(["run", "--format", "json", "--passes", "shapes", *shlex.split(fix), str(made[f"{name}.onnx"])])
    assert after.code == 0
    assert after.unknown < said.unknown


def test_sizes_in_hints_are_within_the_limits_of_symbols(made: dict[str, Path]) -> None:
    said = run(["run", "--format", "json", "--passes", "liveness{model=eager}", str(made["limited.irs"])])
    assert "--bind batch=4,length=256" in said.typed


OPTIONS: dict[str, tuple[str, ...]] = {
    "none": (),
    "a device": ("--device", "rtx4090"),
    "a TPU": ("--device", "tpu-v5e"),
    "a processor": ("--device", "epyc-7763"),
    "a size of memory": ("--memory", "2GiB"),
    "a release of torch": ("--torch", "2.9"),
    "the allocator": ("--alloc-conf", "expandable_segments:True"),
    "another first size": ("--input", "FIRST"),
    "another first size and a device": ("--input", "FIRST", "--device", "l4"),
    "an open first size": ("--input", "OPEN"),
    "sizes": ("--bind", "SIZES"),
    "optimised": ("--ort-level", "basic"),
    "strict": ("--strict",),
}
ASKED = (["run"], ["run", "--passes", "shapes,liveness,flops"], ["fit"], ["sweep"], ["sweep", "--over", "batch=1,2"])
ON_LIVE = "samples/vision.py:build"


def options_for(name: str, model: str) -> list[str] | None:
    """Options as somebody would type them for the model; None where it has nothing to give them to."""
    if "FIRST" not in OPTIONS[name] and "OPEN" not in OPTIONS[name] and "SIZES" not in OPTIONS[name]:
        return list(OPTIONS[name])
    opened = irscope.load(model)
    if name == "sizes":
        sizes = [f"{size.symbol}=2" for size in irscope.card(opened).sizes if size.is_open]
        return ["--bind", ",".join(sizes)] if sizes else None
    first = next(iter(opened.graph.inputs), None)
    shape = first.type.shape if first is not None and isinstance(first.type, TensorType) else None
    if first is None or not shape:
        return None
    sizes = [str(size if isinstance(size, int) else 2) for size in shape]
    if name == "an open first size":
        return ["--input", f"{first.name}={first.type.dtype.text}[{','.join(['batch', *sizes[1:]])}]"]  # type: ignore[union-attr]
    return ["--input", ",".join(sizes), *OPTIONS[name][2:]] if len(opened.graph.inputs) == 1 else None


def told(said: Said) -> set[str]:
    """What an answer says is to be typed, where that is a command or an option of this one."""
    found = {text for text in said.typed if is_for_typing(text) and not text.startswith(WITHOUT_RUNNING)}
    if said.out.startswith("{") and "card" in (document := json.loads(said.out)):
        found |= {one["line"] for one in document["card"]["next"]} | {document["card"]["largest"]["command"]}
    return {text for text in found if text and "MODEL" not in text and "FILE" not in text and not text.startswith(WITHOUT_RUNNING)}


@pytest.mark.full
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("model", [*(str(path) for path in SAMPLES), ON_LIVE], ids=lambda path: Path(path).name)
def test_what_answers_tell_to_type_works_with_every_option(
    model: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    if model == ON_LIVE:
        pytest.importorskip("torch")
    options = options_for(option, model)
    if options is None or (option == "optimised" and not model.endswith(".onnx")):
        pytest.skip("the model has nothing to give it to")
    for asked in ASKED:
        command = [*asked, *options, "--format", "json", model]
        before = run(command)
        assert "this is a bug" not in before.err, before.err
        for text in sorted(told(before)):
            after = run(command_of(text, command, Path(model), tmp_path))
            allowed = (0, ExitCode.PARTIAL) if "--strict" in options else (0,)
            assert after.code in allowed or is_another_problem(before, after, text), (command, text, after.err)


def texts() -> Iterator[tuple[str, str]]:
    """Everything between backticks in the texts that users see, with its place; parts that are put in are left open."""
    for code, doc in CODES.items():
        yield from ((code, found) for found in re.findall(r"`([^`]+)`", doc.text))
    for folder in ("irscope", "passes", "frontends", "tui"):
        for path in (path for path in sorted((ROOT / folder).rglob("*.py")) if "`" in path.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from ((f"{path}:{node.lineno}", found) for found in re.findall(r"`([^`\n]+)`", node.value))


def options_of(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([command, "--help", "all"])
    return out.getvalue()


@pytest.mark.slow
def test_every_command_and_option_that_a_text_names_exists() -> None:
    helps = {command: options_of(command) for command in COMMANDS}
    anywhere = "\n".join(helps.values())
    for place, text in texts():
        if not is_for_typing(text):
            continue
        words = text.split()
        named = words[1] if words[0] == "irscope" and len(words) > 1 else ""
        if named and named not in ("--help", "--version", "COMMAND", "MODEL"):
            assert named in COMMANDS, (place, text)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
            assert option in (helps.get(named) or anywhere) or option in ("--version", "--debug"), (place, text)


@pytest.mark.slow
def test_hints_hold_what_is_typed_between_backticks() -> None:
    """Without them nobody sees where the command ends, and the tests above cannot run it."""
    loose = []
    for folder in ("irscope", "passes", "frontends", "tui"):
        for path in (path for path in sorted((ROOT / folder).rglob("*.py")) if "hint=" in path.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.keyword) and node.arg == "hint"):
                    continue
                bare = re.sub(r"`[^`]*`", "", ast.unparse(node.value))
                if re.search(rf"--[a-z-]+[ =]\S*[=0-9]|\birscope ({'|'.join(COMMANDS)})\b", bare):
                    loose.append((str(path), bare))
    assert not loose


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", ["unet", "scripted", "linear"])
def test_hints_about_torch_models_work_when_typed(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    path = tmp_path / "model.pt2"
    if name == "unet":
        from tests.tools.zoo.plain import Unet

        program = torch.export.export(Unet().eval(), (torch.zeros(2, 3, 16, 16),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
        torch.export.save(program, path)
    elif name == "scripted":
        path = tmp_path / "model.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()).save(str(path))
    else:
        program = torch.export.export(nn.Linear(4, 4).eval(), (torch.zeros(2, 4),), dynamic_shapes={"input": {0: torch.export.Dim.AUTO}})
        torch.export.save(program, path)
    assert check(path, tmp_path) >= 1


# ----------------------------------------------------------------------------------------------------
# Commands of cards, where options were typed.


def test_an_input_without_a_name_is_typed_without_one(tmp_path: Path) -> None:
    path = next(path for path in SAMPLES if path.name == "cnn.onnx")
    card = json.loads(run(["run", "--format", "json", "--input", "2,3,64,64", str(path)]).out)["card"]
    assert card["next"][0]["line"].startswith("irscope run --input 2,3,64,64 --passes advise ")
    assert shlex.split(card["largest"]["command"])[1:] == ["fit", "--input", "image=f32[batch,3,64,64]", str(path)]
    for text in ("1,3,224,224", "[16]", "f32[2,3]", "?[]", "i64[batch,8]"):
        assert parse_input_type(typed_input("", parse_input_type(text))) == parse_input_type(text)
        assert typed_input("x", parse_input_type(text)).startswith("x=")


@pytest.mark.torch
@pytest.mark.parametrize(("given", "opened"), [(["1,3,32,32"], "x=f32[batch,3,32,32]"), (["1,3,32,32", "y=1,3,32,32"], "")])
def test_the_batch_of_a_module_whose_inputs_were_typed_is_left_open(given: list[str], opened: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = "x" if opened else "x, y"
    (tmp_path / "m.py").write_text(
        f"import torch\n\nclass M(torch.nn.Module):\n    def forward(self, {arguments}):\n        return x * 2\n"
    )
    typed_ = [word for text in given for word in ("--input", text if opened else f"{'x=' if '=' not in text else ''}{text}")]
    card = json.loads(run(["run", "--format", "json", *typed_, f"{tmp_path / 'm.py'}:M"]).out)["card"]
    command = shlex.split(card["largest"]["command"])[1:]
    assert command == (["fit", "--input", opened, f"{tmp_path / 'm.py'}:M"] if opened else [])
    assert not command or "fits" in run([*command, "--memory", "1GiB"]).out
