"""The version, where every module can have it without importing the package's interface."""

from __future__ import annotations

__version__ = "0.2.0"
