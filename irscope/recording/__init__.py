"""Recordings of real runs: what a file of schema irscope.recording/1 holds, read and written. See docs/recording.md."""

from __future__ import annotations

from irscope.recording.derive import Figures, Peak, alive_at, alive_curve, figures, peak_of, without_workspaces
from irscope.recording.read import is_recording, read_recording
from irscope.recording.records import (
    COLD,
    SCHEMA,
    WARM,
    Alive,
    Counters,
    DeviceRecord,
    Energy,
    Header,
    Input,
    Latency,
    Level,
    MemoryEvent,
    ModelRecord,
    NodeMapping,
    OpRecord,
    Problem,
    Recording,
    Times,
)
from irscope.recording.write import RecordingWriter, write_recording

__all__ = [
    "COLD",
    "SCHEMA",
    "WARM",
    "Alive",
    "Counters",
    "DeviceRecord",
    "Energy",
    "Figures",
    "Header",
    "Input",
    "Latency",
    "Level",
    "MemoryEvent",
    "ModelRecord",
    "NodeMapping",
    "OpRecord",
    "Peak",
    "Problem",
    "Recording",
    "RecordingWriter",
    "Times",
    "alive_at",
    "alive_curve",
    "figures",
    "is_recording",
    "peak_of",
    "read_recording",
    "without_workspaces",
    "write_recording",
]
