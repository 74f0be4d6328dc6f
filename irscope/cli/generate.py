"""`irscope generate`."""

from __future__ import annotations

import argparse
import importlib
import sys

from irscope.amounts import COUNT
from irscope.cli.args import (
    DEVICE_OPTIONS,
    add_amount,
    add_memory_argument,
    add_output_arguments,
    amount_of,
    check_terminal,
    group_of,
    write_answer,
    write_json,
)
from irscope.errors import ExitCode, UsageError
from irscope.frontends.files.folders import usual_lengths
from irscope.tools.config import device_for
from irscope.tools.engines import serve
from irscope.tools.generate import CACHES, How, generate
from irscope.weights.schemes import SCHEMES

HOW_OPTIONS = "generating"
"""Title of the group of options that `generate` and `fit` share."""


def add_how_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options on how a language model is loaded and generates, besides the sizes."""
    count = amount_of(COUNT)
    how = group_of(parser, HOW_OPTIONS)
    how.add_argument("--cache", choices=CACHES, default="", help="kind of KV cache; default: the folder's own, else dynamic")
    how.add_argument("--cache-option", action="append", default=[], metavar="KEY=VALUE", help="a setting of it, such as backend=fp8")
    how.add_argument("--attention", default="", metavar="NAME", help="such as sdpa or eager; default: what transformers chooses")
    how.add_argument("--dtype", default="", metavar="TYPE", help="bf16, f16 or f32; default: what the configuration says, else f32")
    how.add_argument("--as", dest="store_as", default="", metavar="SCHEME", help=f"weights in few bits: {', '.join(SCHEMES)}")
    how.add_argument("--beams", type=count, default=1, metavar="N", help="of a beam search; default: 1, none")
    how.add_argument("--sample", action="store_true", help="draw tokens by chance instead of taking the likeliest")
    how.add_argument("--chunk", type=count, default=0, metavar="N", help="tokens of the prompt to read at once; default: all")


def how_from(args: argparse.Namespace) -> How:
    """Return what the same arguments say."""
    names = {"cache_options": "cache_option", "samples": "sample"}
    return How(**{name: getattr(args, names.get(name, name)) for name in How._fields})


def _settle_lengths(args: argparse.Namespace) -> None:
    """Fill in the tokens that the arguments do not give, and say so on stderr: the folder's own where it has some, within its context."""
    said = [name for name in ("prompt", "new") if getattr(args, name) is None]
    if not said:
        return
    prompt, new, is_own = usual_lengths(args.model)
    args.new = new if args.new is None else args.new
    args.prompt = prompt if args.prompt is None else args.prompt
    given = ", ".join(f"--{name} {getattr(args, name)}" for name in said)
    sys.stderr.write(f"irscope: assumed {given}{' (generation_config.json)' if is_own and 'new' in said else ''}\n")


class Command:
    """Predict what a language model takes to generate: loading, reading the prompt, and each token after it.

    MODEL is a folder with a config.json, with or without weights, or a name such as transformers:llama{num_hidden_layers=2}. The model's
    own code in the installed package runs on a simulated device; irscope reads only the headers of weights. It runs some of the steps,
    derives the others from how every tensor grows, and confirms that with further steps. PyTorch's simulated allocator then replays
    all steps, so each step has its own counters.

    A cache keeps to the model's own windows, whatever its kind. The prompt has no padding, and no sequence ends before --new tokens.
    Defaults: a prompt of 1,024 tokens, and as many new tokens as the folder's generation_config.json says, else 256.

    Exit codes: 0 it fits, 1 out of memory, 2 usage, 3 the model cannot be read or does not run, 130 interrupted.
    """

    examples = (
        ("irscope generate transformers:llama --prompt 4096 --new 512", "what do weights, cache and the work beside them take?"),
        ("irscope generate ./my-model --prompt 8192 --new 256 --batch 8 --device l4", "does this batch fit this card?"),
        ("irscope generate ./my-model --device l4", "does a usual request fit?"),
        ("irscope generate ./my-model --prompt 2048 --new 64 --cache static", "what does another kind of cache change?"),
        (
            "irscope generate ./my-model --prompt 2048 --new 64 --tui",
            "what is alive at which token, and what does each layer's cache hold?",
        ),
        (
            "irscope generate ./my-model --prompt 2048 --new 64 --engine vllm{util=0.9}",
            "how many such requests does a server hold at once?",
        ),
    )
    common = ("--prompt", "--new", "--batch", "--device", "--memory", "--as", "--cache", "--engine", "--dtype", "--format")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", help="a folder, or transformers:NAME{settings}")
        parser.add_argument("--base", default="", metavar="MODEL", help="the folder or name of the model that an adapter goes on top of")
        parser.add_argument(
            "--trust-remote-code", action="store_true", help="run code that lies in the folder, where its configuration asks"
        )
        count = amount_of(COUNT)
        add_amount(parser, "--prompt", help="tokens of the prompt, for each sequence; default: 1024, or what fits")
        add_amount(parser, "--new", help="tokens to generate after it; default: the folder's own, else 256")
        add_amount(parser, "--batch", default=1, help="sequences at once; default: 1")
        add_how_arguments(parser)
        how = group_of(parser, HOW_OPTIONS)
        how.add_argument("--assistant", default="", metavar="MODEL", help="a smaller model that proposes tokens")
        how.add_argument("--candidates", type=count, metavar="N", help="tokens that it proposes in a round; default: 20")
        add_amount(how, "--accepted", help="how many of them are accepted; default: the worse of none and all")
        how.add_argument("--engine", default="", metavar="NAME{...}", help="a server with a paged cache: vllm{util=0.9} or sglang")
        device = group_of(parser, DEVICE_OPTIONS)
        device.add_argument("--device", default="", metavar="NAME", help="the GPU, as in l4; `irscope devices` lists them; default: h200")
        add_memory_argument(parser)
        device.add_argument("--torch", default="", metavar="VERSION", help="version of torch, such as 2.13")
        device.add_argument("--alloc-conf", default="", metavar="CONF", help="what PYTORCH_CUDA_ALLOC_CONF holds")
        parser.add_argument(
            "--tui", action="store_true", help="show memory over loading, the prompt and every token, and the cache by layer"
        )
        add_output_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        _settle_lengths(args)
        if args.engine:
            return self._serve(args)
        if args.tui:
            check_terminal("`irscope generate` without --tui prints the same as text")
        found = generate(
            args.model,
            prompt=args.prompt,
            new=args.new,
            batch=args.batch,
            assistant=args.assistant,
            candidates=args.candidates,
            accepted=args.accepted,
            device=device_for(args.device),
            torch=args.torch,
            alloc_conf=args.alloc_conf,
            **how_from(args)._asdict(),
        )
        if args.tui:
            # By name: the UI is a layer above the command line, which only starts it.
            shown = importlib.import_module("irscope.tui.generation").run_of_generation(found)
            importlib.import_module("irscope.tui.app").run_app([shown])
        elif args.format == "json":
            write_json(found.to_json(), args)
        else:
            write_answer(found.document(), args)
        return ExitCode.FINDINGS if found.refused_at else ExitCode.OK

    @staticmethod
    def _serve(args: argparse.Namespace) -> int:
        for name, usual in (("batch", 1), ("cache", ""), ("beams", 1), ("sample", False), ("chunk", 0), ("assistant", ""), ("tui", False)):
            if getattr(args, name) != usual:
                raise UsageError(f"--{name} is the engine's matter", code="IRS698", hint="an engine makes batches and caches by itself")
        found = serve(
            args.model,
            args.engine,
            store_as=args.store_as,
            prompt=args.prompt,
            new=args.new,
            attention=args.attention,
            dtype=args.dtype,
            base=args.base,
            device=device_for(args.device),
            torch=args.torch,
            alloc_conf=args.alloc_conf,
        )
        if args.format == "json":
            write_json(found.to_json(), args)
        else:
            write_answer(found.document(), args)
        return ExitCode.OK if found.fits else ExitCode.FINDINGS
