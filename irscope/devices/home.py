"""Where irscope keeps what belongs to a user and this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def config_folder() -> Path:
    """IRSCOPE_HOME where it is set, else the folder the system has for settings. It need not exist."""
    chosen = os.environ.get("IRSCOPE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "irscope"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "irscope"
    xdg = os.environ.get("XDG_CONFIG_HOME", "")
    # The rule of the XDG specification: a relative path is to be ignored.
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".config") / "irscope"


def calibration_file(name: str) -> Path:
    """The record that `irscope calibrate` writes for the processor ("this") or the GPU ("this-gpu")."""
    return config_folder() / f"{name}.json"
