"""`irscope mcp`: a server of the Model Context Protocol on standard input and output, so that an assistant can ask what fits.

A tool is a command of irscope in a process of its own, with its JSON document as the answer, so that output of programs never mixes with
the protocol. What a caller names is data, never an option: values stand behind `=`, and a model or script that begins with `-` is refused.
"""

from __future__ import annotations

import argparse
import functools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from irscope import processes
from irscope._version import __version__
from irscope.errors import ExitCode, UsageError

_INSTRUCTIONS = (
    "irscope predicts what a neural network costs and whether it fits a GPU, without running it. A model is a file (.onnx, .pt2, .pt, "
    ".safetensors, .gguf, .irs), the folder of a language model, torchvision:NAME, timm:NAME, transformers:NAME, or ./file.py:function, "
    "which runs that file. Sizes are bytes. null is unknown, never zero; `provenance` says which numbers are modelled."
)
_SECONDS = 1800.0
"""Time for one tool; large jobs take minutes."""
_NAMED = {"compare": 2}
"""Number of a command's words that name models; further words are arguments of a script."""


class ToolError(Exception):
    """A command failed; the text is its one line of error."""


@dataclass
class Answer:
    """Answer of a command."""

    command: str
    """The command that gives the same answer on a command line."""
    exit_code: int
    """0 done, 1 it does not fit or a limit is broken, 5 partial."""
    document: dict[str, Any]
    """The JSON document of the command, with its schema in `schema`."""


@dataclass
class CardAnswer(Answer):
    """Cost of a model, and whether it fits."""

    fits: bool | None = None
    reserved_bytes: int | None = None
    """Bytes reserved at the peak by PyTorch, or by the runtime's arena."""
    device: str = ""
    parameters: int | None = None
    flops: int | float | str | None = None


@dataclass
class FitAnswer(Answer):
    """The largest size that fits."""

    free: str = ""
    largest: int | None = None
    """0 if no size fits."""
    peak_bytes: int | None = None


@dataclass
class SimulationAnswer(Answer):
    """Memory of a training program."""

    outcome: str = ""
    """finished, steps, oom, needs_value or error."""
    reserved_peak_bytes: int | None = None
    steps: int = 0
    """Steps of the optimizer that were simulated; the document has their memory."""


class Tools:
    """Tools of the server; relative paths are those of `folder`."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def card(self, model: str, device: str = "", bind: str = "", weights_as: str = "") -> CardAnswer:
        """Say what a model is, whether it fits a device, and what it costs: memory, FLOPs, time, energy.

        `device` is such as rtx4090 or h100:96GiB, `bind` sizes such as batch=8,seq=128, `weights_as` a scheme such as nf4.
        """
        answer = self._ask("run", [model], {"device": device, "bind": bind, "as": weights_as})
        fields = answer.document.get("card", {}).get("fields", {})
        reserved = next((fields[key] for key in ("pytorch_reserved", "peak_reserved") if fields.get(key) is not None), None)
        named = {key: fields.get(key) for key in ("fits", "parameters", "flops")}
        return CardAnswer(**vars(answer), **named, reserved_bytes=reserved, device=fields.get("device", ""))

    def fit(
        self, model: str, memory: str = "", free: str = "batch", device: str = "", bind: str = "", prompt: int = 0, new: int = 0
    ) -> FitAnswer:
        """Find the largest size of a model that fits into memory, such as 24GiB; without `memory`, into what `device` has.

        `free` is batch, seq or another open size; of a language model's folder context, new or batch, with tokens `prompt` and `new`.
        """
        options: dict[str, str | int] = {"memory": memory, "free": free, "device": device, "bind": bind, "prompt": prompt, "new": new}
        answer = self._ask("fit", [model], options)
        document = answer.document
        return FitAnswer(**vars(answer), free=free, largest=document.get("largest"), peak_bytes=document.get("peak_bytes"))

    def simulate(
        self, script: str, arguments: list[str] | None = None, device: str = "", world: int = 0, rank: int = 0, steps: int = 3
    ) -> SimulationAnswer:
        """Run a training script on simulated GPUs, as one rank of `world`, and say what memory it takes. The script runs on this machine.

        `steps` is how many steps of the optimizer are simulated; 0 runs the script to its end.
        """
        options: dict[str, str | int] = {"device": device, "world": world, "rank": rank, "steps": steps}
        answer = self._ask("simulate", [script, *(arguments or ())], options)
        steps_made = answer.document.get("steps", [])
        peak = max((step["reserved"]["peak"] for step in steps_made), default=None)
        return SimulationAnswer(**vars(answer), outcome=answer.document.get("outcome", ""), reserved_peak_bytes=peak, steps=len(steps_made))

    def explain(self, snapshot: str, device: str = "") -> Answer:
        """Say what held memory in a snapshot of torch.cuda.memory._dump_snapshot, by line, and which settings save memory."""
        return self._ask("explain", [snapshot], {"device": device})

    def compare(self, model: str, other: str, bind: str = "", device: str = "") -> Answer:
        """Compare two models, or a model with a recording that `irscope record` wrote: memory, FLOPs, parameters, nodes."""
        return self._ask("compare", [model, other], {"bind": bind, "device": device})

    def _ask(self, name: str, words: Sequence[str], options: Mapping[str, str | int]) -> Answer:
        """Run a command in a process of its own."""
        for word in words[: _NAMED.get(name, 1)]:
            if not word or word.startswith("-"):
                raise ToolError(f"{word!r} names no model, script or file")
        typed = [name, "--format=json", *(f"--{key}={value}" for key, value in options.items() if value), *words]
        try:
            ended = processes.run(processes.irscope(typed), seconds=_SECONDS, folder=self._folder or None)
        except processes.Late:
            raise ToolError(f"irscope {name} took longer than {_SECONDS:.0f} s") from None
        try:
            document = json.loads(ended.text)
        except ValueError:
            raise ToolError("\n".join(ended.complaints[-3:]) or f"irscope {name} gave no answer: its process {ended.how}") from None
        return Answer(shlex.join(["irscope", *typed]), ended.code, document)

    def all(self) -> tuple[Callable[..., Answer], ...]:
        """Return the tools, in the order of their list."""
        return self.card, self.fit, self.simulate, self.explain, self.compare


class Command:
    """Serve irscope to assistants by the Model Context Protocol, on standard input and output.

    The tools are card, fit, simulate, explain and compare; each answers with the JSON document of the command and its main numbers.
    Needs the package mcp (pip install 'mcp>=2'). A program runs only if the caller names it, as on the command line: the script of
    simulate, or a model such as ./train.py:build.

    Exit codes: 0 the client closed the connection, 2 usage, or the package is missing.
    """

    examples = (
        ("irscope mcp", "how does an assistant ask whether a model fits? Its client starts this."),
        ("irscope mcp --folder models", "and with the paths of models relative to a folder?"),
        ("irscope mcp --list", "which tools does the server have?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--folder", default="", metavar="FOLDER", help="resolve relative paths of models and scripts here")
        parser.add_argument("--list", action="store_true", help="list the tools and exit")

    def run(self, args: argparse.Namespace) -> int:
        tools = Tools(args.folder)
        if args.list:
            for tool in tools.all():
                print(f"{tool.__name__:10} {(tool.__doc__ or '').splitlines()[0]}")
            return ExitCode.OK
        try:
            from mcp.server import MCPServer
            from mcp.server.mcpserver.exceptions import ToolError as Refusal
        except ImportError:
            raise UsageError("the server needs the package mcp, 2.0 or newer", hint="pip install 'mcp>=2'", code="IRS726") from None
        server = MCPServer("irscope", instructions=_INSTRUCTIONS, version=__version__)
        for tool in tools.all():

            @functools.wraps(tool)
            def answer(*args: Any, tool: Callable[..., Answer] = tool, **options: Any) -> Answer:
                try:
                    return tool(*args, **options)
                except ToolError as error:  # the package passes on the text of its own errors only
                    raise Refusal(str(error)) from None

            server.add_tool(answer)
        server.run("stdio")
        return ExitCode.OK
