"""Completion in the shells themselves: bash always, zsh and fish where they are installed."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from irscope.cli.completion import offers, words
from irscope.cli.main import COMMANDS, main
from irscope.codes import CODES
from irscope.devices.catalogue import find_device
from irscope.passkit.registry import default_registry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts for all shells, an `irscope` on the path, and a file to complete."""
    made = tmp_path_factory.mktemp("shells")
    (made / "model one.onnx").write_bytes(b"")
    (made / "bin").mkdir()
    program = made / "bin" / "irscope"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m irscope "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([str(program), "completion", shell], capture_output=True, text=True, check=True)
        assert not done.stderr
        (made / f"irscope.{shell}").write_text(done.stdout, encoding="utf-8")
    return made


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb"}


def bash(folder: Path, line: str) -> list[str]:
    """What bash offers at the end of a line, which it splits at `=` as it does where somebody types."""
    parts = line.split(" ")
    typed = [piece for part in parts for piece in (part.partition("=") if "=" in part else (part,))]
    array = " ".join(shlex.quote(part) for part in typed)
    script = (
        f"source {folder}/irscope.bash; COMP_WORDS=({array}); COMP_CWORD={len(typed) - 1}; _irscope; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=False, cwd=folder, env=environment(folder)
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def fish(folder: Path, line: str) -> list[str]:
    script = f"source {folder}/irscope.fish; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=False, cwd=folder, env=environment(folder)
    )
    assert not done.stderr, done.stderr
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


OFFERS = [
    ("irscope comp", sorted(name for name in COMMANDS if name.startswith("comp"))),
    ("irscope fit --coun", ["--counter"]),
    ("irscope fit --counter re", ["requested", "reserved"]),
    ("irscope fit --counter=res", ["reserved"]),
    ("irscope run --format h", ["html"]),
    ("irscope fit --device rtx-409", ["rtx-4090", "rtx-4090-laptop"]),
    ("irscope run --passes liven", ["liveness"]),
    ("irscope run --passes shapes,liven", ["shapes,liveness"]),
    ("irscope passes explain", ["explain-peak"]),
    ("irscope devices h10", sorted(name for name in words("devices") if name.startswith("h10"))),
    ("irscope explain IRS68", [code for code in CODES if code.startswith("IRS68")]),
    ("irscope completion f", ["fish"]),
    ("irscope simulate --rank a", ["all"]),
    ("irscope model.onnx --passes liven", ["liveness"]),
    ("irscope zoo tor", ["torchvision"]),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("line", "offered"), OFFERS, ids=[line for line, _ in OFFERS])
def test_bash_completes(line: str, offered: list[str], folder: Path) -> None:
    found = bash(folder, line)
    assert sorted(found) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_files_where_files_belong(folder: Path) -> None:
    assert bash(folder, "irscope run mod") == ["model one.onnx"]
    assert bash(folder, "irscope mod") == ["model one.onnx"]
    assert bash(folder, "irscope compare a.onnx mod") == ["model one.onnx"]
    assert "model one.onnx" in bash(folder, "irscope run -o mod")
    assert bash(folder, "irscope fit --bind mod") == [""] and bash(folder, "irscope fit --rows ") == [""]
    assert set(bash(folder, "irscope fit --")) >= {"--memory", "--free", "--quiet", "--help"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "offered"), OFFERS, ids=[line for line, _ in OFFERS])
def test_fish_completes(line: str, offered: list[str], folder: Path) -> None:
    found = [one.rpartition("=")[2] for one in fish(folder, line)]
    assert sorted(found) == offered


class Zsh:
    """A zsh in a terminal of its own: what a line is after Tab."""

    def __init__(self, folder: Path) -> None:
        import pty

        self.out = folder / "line"
        child, self.terminal = pty.fork()
        if not child:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment(folder))
        self.child = child
        self.say(f"PS1='' ; autoload -Uz compinit; compinit -u -D; source {folder}/irscope.zsh\n")
        self.say(f"tell() {{ print -r -- \"$BUFFER\" > {self.out}; BUFFER=''; }}; zle -N tell; bindkey '^X^X' tell\n")
        self.say("setopt no_beep no_auto_list no_list_ambiguous; print ready > line\n")
        self.wait()

    def say(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait(self) -> str:
        for _ in range(600):
            while select.select([self.terminal], [], [], 0)[0]:
                os.read(self.terminal, 65536)
            if self.out.exists() and (text := self.out.read_text(encoding="utf-8")).endswith("\n"):
                self.out.unlink()
                return text.rstrip("\n")
            time.sleep(0.05)
        raise AssertionError("zsh does not answer")

    def complete(self, line: str) -> str:
        self.say(f"{line}\t\x18\x18")
        return self.wait()

    def close(self) -> None:
        self.say("\x15exit\n")
        os.close(self.terminal)
        os.waitpid(self.child, 0)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(folder: Path) -> None:
    lines = {
        "irscope doc": "irscope doctor ",
        "irscope fit --coun": "irscope fit --counter ",
        "irscope fit --counter res": "irscope fit --counter reserved ",
        "irscope fit --counter=res": "irscope fit --counter=reserved ",
        "irscope run --passes liven": "irscope run --passes liveness,",
        "irscope run --passes shapes,liven": "irscope run --passes shapes,liveness,",
        "irscope devices xeon-84": "irscope devices xeon-8480 ",
        "irscope run mod": "irscope run model\\ one.onnx ",
        "irscope mod": "irscope model\\ one.onnx ",
        "irscope explain IRS100": "irscope explain IRS100 ",
    }
    shell = Zsh(folder)
    try:
        assert {line: shell.complete(line) for line in lines} == lines
    finally:
        shell.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_the_same_each_time_and_parse(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == (folder / f"irscope.{shell}").read_text(encoding="utf-8")
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", str(folder / f"irscope.{shell}")], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_every_command_and_its_options_are_there() -> None:
    assert set(offers([""]).words) == {*COMMANDS, "--help", "--version"}
    for name in COMMANDS:
        found = offers([name, "--"]).words
        assert {"--help", "--quiet", "--debug"} <= set(found) and not [text for text in found.values() if "%(" in text], name


def test_names_are_those_that_there_are() -> None:
    assert set(default_registry().names()) == set(words("passes"))
    assert all(find_device(name) for name in words("devices"))


def test_a_shell_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert main(["completion"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
