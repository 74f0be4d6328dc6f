"""`irscope passes`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import MISSING, fields

from irscope.errors import UsageError
from irscope.files import write_stream
from irscope.passkit.options import describe, option_help, option_types, spelled, to_text
from irscope.passkit.registry import closest, default_registry


class Command:
    """List the passes, or explain one: its options with types and defaults."""

    examples = (
        ("irscope passes", "which analyses and transforms are there?"),
        ("irscope passes liveness", "what does one do, with which options?"),
        ("irscope passes ./my_pass.py:NarrowConvs", "what are the options of a pass of my own?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a pass, or ./file.py:Name")

    def run(self, args: argparse.Namespace) -> int:
        registry = default_registry()
        if args.name:
            write_stream(sys.stdout, [_explain(args.name)])
            return 0
        plugins = registry.plugins()
        width = max(map(len, (*registry.entries, *registry.pipelines, *plugins)))
        lines = [f"  {name:{width}}  {entry.summary}" for name, entry in sorted(registry.entries.items())]
        lines += [f"  {name:{width}}  from {plugin.owner}" for name, plugin in sorted(plugins.items())]
        lines += ["", "pipelines:", *(f"  {name:{width}}  {text}" for name, text in sorted(registry.pipelines.items()))]
        write_stream(sys.stdout, ["passes:\n" + "\n".join(lines) + "\n\nirscope passes NAME explains one.\n"])
        return 0


def _explain(name: str) -> str:
    registry = default_registry()
    if name in registry.pipelines:
        return f"{name} = {registry.pipelines[name]}\n"
    try:
        cls = registry.find(name)
    except KeyError:
        near = closest(name, registry.names())
        raise UsageError(f"there is no pass {name!r}", hint=f"did you mean {near!r}?" if near else "`irscope passes` lists them") from None
    lines = [f"{cls.name}: {cls.summary()}", ""]
    types, helps = option_types(cls), option_help(cls)
    for option in fields(cls):
        if option.name == "body":
            lines.append("  (pass,...)  the passes it works on")
            continue
        default = "required" if option.default is MISSING else f"default {to_text(option.default)}"
        lines.append(f"  {spelled(option.name)}={describe(types[option.name])}; {default}")
        if option.name in helps:
            lines.extend(textwrap.wrap(helps[option.name], 100, initial_indent="      ", subsequent_indent="      "))
    if not fields(cls):
        lines.append("  It has no options.")
    return "\n".join(lines) + "\n"
