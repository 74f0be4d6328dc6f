"""`nvidia-smi` of simulated devices, run as a script without irscope: `python smi.py STATE ARGUMENTS`.

It answers what programs ask of it: the table, -L, --query-gpu, --query-compute-apps, topo -m and -q. What nobody knows without a
device, such as temperatures, is "[N/A]", as nvidia-smi says for what a device does not tell.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

State = Mapping[str, Any]
"""Of the devices of a machine: `count`, `played`, `name`, `total` and `used` (bytes), `driver`, `cuda`, `capability`, `pid`, `command`."""
_MIB: Final = 1 << 20
_UNKNOWN: Final = "[N/A]"
_WRONG: Final = 2
"""nvidia-smi's exit code for a bad argument."""


_TAKES: Final = ("-i", "--id", "-l", "--loop", "-lms", "-f", "-d", "--format", "--query-gpu", "--query-compute-apps")
"""Options that take a value."""


def uuid(index: int) -> str:
    """Return a device's name among all devices."""
    return f"GPU-00000000-0000-0000-0000-{index:012x}"


def bus(index: int) -> str:
    """Return where a device is on the PCI bus."""
    return f"00000000:{index + 1:02X}:00.0"


def _mib(size: int) -> str:
    return f"{size // _MIB} MiB"


_QUERIES: Final[Mapping[str, Callable[[State, int], str]]] = {
    "timestamp": lambda state, index: datetime.now().strftime("%Y/%m/%d %H:%M:%S.000"),
    "driver_version": lambda state, index: state["driver"],
    "count": lambda state, index: str(state["count"]),
    "name": lambda state, index: state["name"],
    "gpu_name": lambda state, index: state["name"],
    "index": lambda state, index: str(index),
    "uuid": lambda state, index: uuid(index),
    "gpu_uuid": lambda state, index: uuid(index),
    "pci.bus_id": lambda state, index: bus(index),
    "gpu_bus_id": lambda state, index: bus(index),
    "memory.total": lambda state, index: _mib(state["total"]),
    "memory.used": lambda state, index: _mib(state["used"]),
    "memory.free": lambda state, index: _mib(state["total"] - state["used"]),
    "memory.reserved": lambda state, index: _mib(0),
    "utilization.gpu": lambda state, index: "0 %",
    "utilization.memory": lambda state, index: "0 %",
    "compute_cap": lambda state, index: "{}.{}".format(*state["capability"]),
    "compute_mode": lambda state, index: "Default",
    "persistence_mode": lambda state, index: "Enabled",
    "mig.mode.current": lambda state, index: "Disabled",
}
_PROCESSES: Final[Mapping[str, Callable[[State, int], str]]] = {
    **_QUERIES,
    "pid": lambda state, index: str(state["pid"]),
    "process_name": lambda state, index: state["command"],
    "name": lambda state, index: state["command"],
    "used_memory": lambda state, index: _mib(state["used"]),
    "used_gpu_memory": lambda state, index: _mib(state["used"]),
}


def _units(field: str) -> str:
    """Return the head of a column."""
    unit = {"memory": " [MiB]", "used_memory": " [MiB]", "used_gpu_memory": " [MiB]", "utilization": " [%]", "power": " [W]"}
    return field + unit.get(field.partition(".")[0], "")


def _listed(state: State, fields: Sequence[str], known: Mapping[str, Any], devices: Sequence[int], style: Sequence[str]) -> str:
    rows = [[known[field](state, index) if field in known else _UNKNOWN for field in fields] for index in devices]
    if "nounits" in style:
        rows = [[cell.removesuffix(" MiB").removesuffix(" %") for cell in row] for row in rows]
    head = [] if "noheader" in style else [[field if "nounits" in style else _units(field) for field in fields]]
    return "".join(", ".join(row) + "\n" for row in head + rows)


def _table(state: State, devices: Sequence[int]) -> str:
    lines = [
        datetime.now().strftime("%a %b %d %H:%M:%S %Y"),
        "+" + "-" * 89 + "+",
        f"| {'NVIDIA-SMI ' + state['driver']:<31}{'Driver Version: ' + state['driver']:<31}{'CUDA Version: ' + state['cuda']:<26}|",
        "|" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+",
        f"| {'GPU  Name                 Persistence-M':<40}| {'Bus-Id          Disp.A':<23}| {'Volatile Uncorr. ECC':<21}|",
        f"| {'Fan  Temp   Perf          Pwr:Usage/Cap':<40}| {'Memory-Usage':>22} | {'GPU-Util  Compute M.':<21}|",
        "|" + "=" * 41 + "+" + "=" * 24 + "+" + "=" * 22 + "|",
    ]
    for index in devices:
        used = f"{_mib(state['used'])} / {_mib(state['total'])}".replace(" MiB", "MiB")
        lines += [
            f"| {index:>3}  {state['name']:<27.27}   On   | {bus(index) + ' Off':<23}| {'N/A':>20} |",
            f"| {'N/A   N/A    P0             N/A /  N/A':<40}| {used:>22} | {'0%      Default':>20} |",
            "+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+",
        ]
    return "\n".join(lines) + "\n"


def _topology(devices: Sequence[int]) -> str:
    head = "\t" + "\t".join(f"GPU{index}" for index in devices)
    rows = ["\t".join([f"GPU{row}", *(" X " if row == column else "NV18" for column in devices)]) for row in devices]
    return "\n".join([head, *rows]) + "\n"


def answer(state: State, arguments: Sequence[str]) -> tuple[str, int]:
    """Return what nvidia-smi prints, and its exit code."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not equals and name in _TAKES and rest:
            value = rest.pop(0)
        options[{"--id": "-i", "--list-gpus": "-L", "--query": "-q"}.get(name, name)] = value
    devices = list(range(state["count"]))
    if "-i" in options:
        asked = next(csv.reader([options["-i"]]))
        devices = [index for index in devices if {str(index), uuid(index), bus(index)} & {one.strip() for one in asked}]
        if not devices:
            return "No devices were found\n", 6
    style = [part.strip() for part in options.get("--format", "").split(",")]
    for option, known in (("--query-gpu", _QUERIES), ("--query-compute-apps", _PROCESSES)):
        if option in options:
            if "csv" not in style:
                return f'"{option}" needs --format=csv\n', _WRONG
            fields = [part.strip() for part in options[option].split(",")]
            shown = devices if option == "--query-gpu" else [index for index in devices if index == state["played"] and state["used"]]
            return _listed(state, fields, known, shown, style), 0
    if "-L" in options:
        return "".join(f"GPU {index}: {state['name']} (UUID: {uuid(index)})\n" for index in devices), 0
    if "topo" in options:
        return _topology(devices), 0
    if "-q" in options:
        fields = [field for field in _QUERIES if field not in ("gpu_name", "gpu_uuid", "gpu_bus_id", "timestamp")]
        text = [f"{field:<28}: {_QUERIES[field](state, index)}" for index in devices for field in fields]
        return "\n".join(["==============NVSMI LOG==============", "", *text]) + "\n", 0
    return _table(state, devices), 0


if __name__ == "__main__":
    printed, code = answer(json.loads(Path(sys.argv[1]).read_text("utf-8")), sys.argv[2:])
    sys.stdout.write(printed)
    sys.exit(code)
