"""`irscope devices`."""

from __future__ import annotations

import argparse

from irscope.cli.args import add_output_arguments, write_answer
from irscope.devices.catalogue import all_devices, find_device
from irscope.report.report import Document
from irscope.tools.devices import device_report, devices_report


class Command:
    """List the devices that --device knows, or show every figure of one with its source.

    NAME is a device, "this" for this machine once `irscope calibrate` has measured it, or the path of a device file.
    """

    examples = (
        ("irscope devices", "which devices can predictions be for?"),
        ("irscope devices h100", "what is known of one, from which source?"),
        ("irscope devices --format csv --sort memory", "which has the most memory?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a device, or the path of a JSON file that describes one")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        report = device_report(find_device(args.name)) if args.name else devices_report(all_devices())
        write_answer(Document(reports=(report,)), args)
        return 0
