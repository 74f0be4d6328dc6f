"""`irscope config`."""

from __future__ import annotations

import argparse

from irscope.cli.args import add_output_arguments, write_answer
from irscope.errors import ExitCode, UsageError
from irscope.report.report import Document, Report
from irscope.report.table import Table
from irscope.tools.config import KEYS, check_key, chosen_device, config_file, read_config, set_config


class Command:
    """Show the defaults for all runs, or set them: `irscope config device=rtx4090`.

    --device on a command line overrides the setting. The card of a model is for this machine's GPU if there is one; everything else is
    for the device that is set.

    Exit codes: 0 done, 2 usage, also where the settings file does not fit.
    """

    examples = (
        ("irscope config", "what is set, and which device do cards take?"),
        ("irscope config device=rtx4090", "how do I get answers for the GPU of my other machine?"),
        ("irscope config --unset device", "how do I go back to the default?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help=f"what to set: {', '.join(KEYS)}; without any, what is set")
        parser.add_argument("--unset", action="append", default=[], metavar="NAME", help="go back to the default")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        wanted: dict[str, str] = {}
        for text in args.settings:
            key, equals, value = text.partition("=")
            check_key(key)
            if not equals or not value:
                raise UsageError(f"{text!r} is not of the form NAME=VALUE", code="IRS425", hint=f"for example {key}=rtx4090")
            wanted[key] = value
        for key in args.unset:
            check_key(key)
            wanted[key] = ""
        for key, value in wanted.items():
            set_config(key, value)
        write_answer(_document(), args)
        return ExitCode.OK


def _document() -> Document:
    """Every setting, and the device that follows."""
    settings, chosen = read_config(), chosen_device()
    rows = [(key, settings.get(key, "not set"), meaning) for key, meaning in KEYS.items()]
    report = Report(
        "config",
        headline=(f"cards are for {chosen.device.title} ({chosen.device.name}): {chosen.reason}",),
        summary={"file": str(config_file())},
        tables=(Table.of(rows, ["setting:text", "value:text", "meaning:text"], "settings"),),
    )
    return Document(reports=(report,))
