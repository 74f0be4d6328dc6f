"""`irscope devices`."""

from __future__ import annotations

import argparse
import sys

from irscope import __version__
from irscope.cli.args import FORMATS, add_output_file
from irscope.cli.devicetables import device_report, devices_report
from irscope.devices.catalogue import all_devices, find_device
from irscope.report.options import RenderOptions
from irscope.report.renderers import write_document
from irscope.report.report import Document, ModelInfo


class Command:
    """List the devices that --device knows, or show every figure of one with its source.

    NAME is a device, "this" for this machine once `irscope calibrate` has measured it, or the path of a device file.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a device, or the path of a JSON file that describes one")
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        add_output_file(parser)

    def run(self, args: argparse.Namespace) -> int:
        report = device_report(find_device(args.name)) if args.name else devices_report(all_devices())
        options = RenderOptions.for_stream(sys.stdout, rows=0) if args.output is None else RenderOptions(rows=0)
        write_document(Document(__version__, ModelInfo("", ""), (report,)), args.format, args.output, options)
        return 0
