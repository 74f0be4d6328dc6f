"""Scripts of `tests/data/simulate` print about their memory what they print over PyTorch's own CUDA host code."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.forked import irscope

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

FOLDER = Path(__file__).parents[2] / "data" / "simulate"
TRUTH: dict[str, list[str]] = json.loads((FOLDER / "truth.json").read_text())
NEEDS = {"accelerated": "accelerate", "hf_trainer": "transformers", "bert_trainer": "transformers", "hf_models": "transformers"}
QUICK = (
    "history",
    "summary",
    "prefetch",
    "gan",
    "amp",
    "threads",
    "graphs",
    "sparse_embed",
    "pinn",
    "rnn_packed",
    "attention_kernels",
    "tools",
)
"""Those of the normal run: statistics and snapshots, streams, two optimizers, a scaler and casts, threads, graphs, sparse gradients, second
derivatives, recurrent networks, kernels of attention, tools around a loop."""

READS = ("sparse_embed", "indexing", "optims")
"""Those whose memory depends on how many elements of a mask hold, and positions differ; the stand-ins for CUDA's libraries say none."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full]) for name in TRUTH])
def test_a_script_prints_what_it_prints_on_the_card(name: str, tmp_path: Path) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    answer = ("--answer", "0") if name in READS else ()
    done = irscope("simulate", "--device", "h200", *answer, str(FOLDER / f"{name}.py"), folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = [line for line in done.stdout.splitlines() if line.startswith(("MEM", "STAT"))]
    assert printed == TRUTH[name]


def test_every_script_has_its_truth() -> None:
    assert set(TRUTH) == {path.stem for path in FOLDER.glob("*.py")}
