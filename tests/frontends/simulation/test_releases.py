"""Programs under simulation, beside what releases of PyTorch counted for them: `--torch` names the release, or it is installed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import python
from tests.frontends.eager.test_internals import BUILD, in_build

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

FOLDER = Path(__file__).parent.parent.parent / "data" / "releases"
ROWS = [json.loads(line) for line in (FOLDER / "truth.jsonl").read_text().splitlines()]
NAMED = ("plain", "amp", "lm", "fsdp mixed", "fsdp f32", "fsdp zero2")
"""Programs whose memory another release's is but for what it says of the allocator and of workspaces."""
OFTEN = ("2.10", "2.15")
"""Releases that count otherwise than the one of the tests."""
RUN = """
import sys
from irscope.tools.simulate import simulate_script
from irscope.tools.simulation import Options
release, world, rank, script, *arguments = sys.argv[1:]
found = simulate_script(script, arguments, Options("h200", torch=release, world=int(world) or None, rank=int(rank)))
assert found.outcome == "finished", found.error
"""


def name_of(row: dict[str, Any]) -> str:
    return f"{row['torch']}-{row['job']}-{row['rank']}"


def script_of(row: dict[str, Any]) -> list[str]:
    name, *arguments = row["job"].split()
    return [str(FOLDER / f"{name}.py"), *arguments]


def counted(output: str) -> list[int]:
    *_, requested, allocated, reserved = next(line for line in reversed(output.splitlines()) if line.startswith("T 2")).split()
    return [int(requested), int(allocated), int(reserved)]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=name_of(row),
            marks=[] if row["torch"] in OFTEN and row["job"] in ("plain", "amp", "lm", "fsdp mixed") else pytest.mark.full,
        )
        for row in ROWS
        if row["job"] in NAMED
    ],
)
def test_counters_are_those_of_the_release_that_is_named(row: dict[str, Any]) -> None:
    done = python(RUN, row["torch"], str(row["world"]), str(row["rank"]), *script_of(row))
    assert done.returncode == 0, done.stderr[-2000:]
    assert counted(done.stdout) == [row["requested"], row["allocated"], row["reserved"]]


@pytest.mark.full
@pytest.mark.skipif(not BUILD, reason="CUDA_BUILD_OF_TORCH names no build of torch with CUDA")
@pytest.mark.parametrize("row", [pytest.param(row, id=name_of(row)) for row in ROWS])
def test_counters_are_those_of_the_release_that_is_installed(row: dict[str, Any]) -> None:
    if f"torch-{row['build'].partition('+')[0]}.dist-info" not in os.listdir(Path(BUILD) / "torch-cuda"):
        pytest.skip(f"another release than {row['torch']}")
    world = [f"--world={row['world']}", f"--rank={row['rank']}"] if row["world"] else []
    found = in_build(["-m", "irscope", "simulate", "-q", "--device", "h200", *world, *script_of(row)], -1)
    assert found.returncode == 0 and "Overriding" not in found.stderr, found.stderr
    assert counted(found.stdout) == [row["requested"], row["allocated"], row["reserved"]]


@pytest.mark.parametrize(("release", "line"), [("2.13", "133120 133120 2"), ("2.14", "133136 134144 4"), ("2.15", "133136 134144 4")])
def test_the_efficient_kernel_keeps_its_seeds_on_the_device_from_2_14_on(release: str, line: str) -> None:
    done = python(RUN, release, "0", "0", str(FOLDER / "attention.py"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"torch.float32 {line}" in done.stdout.splitlines()
