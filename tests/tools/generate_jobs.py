"""Lays what `irscope generate` says beside the recorded truth of `tests/data/generate`.

python -m tests.tools.generate_jobs [--every N] [--has TEXT ...] [--truth FILE]

Each job runs in a process of its own. Calls that `irscope generate` has no option for are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent.parent / "data" / "generate"
TRUTH = tuple(_DATA / f"{name}.jsonl" for name in ("truth", "architectures", "assisted", "vision"))
ASSISTED, VISION = TRUTH[2:3], TRUTH[3:]
COUNTERS = ("requested", "allocated", "reserved")
HIDING = """
import sys
sys.modules[sys.argv.pop(1)] = None
from irscope.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs irscope as where a package is not installed, which the first argument names."""
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


def rows(paths: Sequence[Path] = TRUTH) -> list[dict[str, Any]]:
    """All jobs that generate."""
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [row for row in found if row["job"]["kind"] == "generate" and "error" not in row]


def command(job: dict[str, Any], folder: Path) -> list[str] | None:
    """The command that does a job, whose configuration is written to a folder; None where it has no such option."""
    _write_config(job, folder)
    helped = []
    if "assistant" in job:
        _write_config(job["assistant"], folder / "assistant")
        helped = [f"--assistant={folder / 'assistant'}", *(f"--{name}={job[name]}" for name in ("candidates", "accepted"))]
    call = dict(job.get("call", {}))
    cache = [f"--cache-option={key}={value}" for key, value in call.pop("cache_config", {}).items()]
    sizes = {"--prompt": job["prompt"], "--new": job["new"], "--batch": job["batch"]}
    sizes |= {"--beams": call.pop("num_beams", 1), "--chunk": call.pop("prefill_chunk_size", 0)}
    sampled = ["--sample"] if call.pop("do_sample", False) else []
    if call or job.get("inputs", {}).keys() - {"input_features"}:
        return None
    given = [f"{option}={value}" for option, value in sizes.items() if value]
    kind = job.get("cache") or "dynamic"
    line = [
        "generate",
        str(folder),
        *given,
        *sampled,
        *helped,
        f"--cache={kind}",
        *cache,
        f"--attention={job['attn']}",
        "--device=h200",
        "--format=json",
    ]
    # With scikit-learn transformers does more with an assistant's scores; it was not there when the truth was counted.
    return [sys.executable, "-c", HIDING, "sklearn", *line]


def _write_config(job: dict[str, Any], folder: Path) -> None:
    import torch
    import transformers

    config = getattr(transformers, job["config"])(**job.get("kw", {}))
    config.dtype = getattr(torch, job["dtype"])
    if "model" in job:
        config.architectures = [job["model"]]
    config.save_pretrained(str(folder))


def differences(row: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is not equal: the phases of one call of `generate` are one in the truth."""
    phases = found["phases"]
    parts = [phases[name] for name in ("prefill", "decode") if name in phases]
    said = []
    for key in COUNTERS:
        load, cold = phases["load"][key], (max(part[key]["peak"] for part in parts), parts[-1][key]["after"])
        for name, true, counted in (("load", row["load"][key], (load["peak"], load["after"])), ("generate", row["cold"][key], cold)):
            for when, expected, value in zip(("peak", "after"), _pair(true), counted, strict=True):
                if expected != value:
                    said.append(f"{name} {key} {when}: {value:,} for {expected:,} ({(value - expected) / expected:+.3%})")
    return said


def _pair(true: Any) -> tuple[int, int]:
    return (true["peak"], true["after"]) if isinstance(true, dict) else (true[0], true[1])


def compare(row: dict[str, Any], run: Callable[[list[str]], tuple[int, str, str]] | None = None) -> list[str] | None:
    """Run one job; what is not equal, or None where there is no option for it."""
    with tempfile.TemporaryDirectory() as folder:
        line = command(row["job"], Path(folder))
        if line is None:
            return None
        code, written, said = (run or _process)(line)
    return differences(row, json.loads(written)) if not code else [said.strip()[-300:]]


def _process(line: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr


def _forked(line: list[str]) -> tuple[int, str, str]:
    """The same without importing everything anew."""
    from irscope.cli.main import main as irscope

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        if (child := os.fork()) == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 3
            try:
                code = int(irscope(line[line.index("generate") :]))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return code, *texts


def main() -> None:
    """Print what differs, and how many jobs are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--has", nargs="*", default=[])
    parser.add_argument("--truth", type=Path, nargs="*", default=TRUTH)
    args = parser.parse_args()
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # as in `command`
    import transformers.generation.utils
    import transformers.models.auto.modeling_auto  # noqa: F401  imported before the forks, to import once

    import irscope.frontends.generation.program
    import irscope.tools.simulate  # noqa: F401

    chosen = [row for row in rows(args.truth) if all(text in row["job"]["id"] for text in args.has)][:: args.every]
    equal = left_out = 0
    for row in chosen:
        said = compare(row, _forked)
        if said is None:
            left_out += 1
            continue
        equal += not said
        if said:
            print(row["job"]["id"], *said, sep="\n    ", flush=True)
    print(f"{equal} of {len(chosen) - left_out} equal to the byte; {left_out} without an option")


if __name__ == "__main__":
    main()
