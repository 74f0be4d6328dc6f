"""Every allocation of single operators, in order, against recordings of PyTorch's own host code on five releases."""

from __future__ import annotations

import pytest

import irscope.ops.scratch.sdpa as sdpa
from irscope.devices.catalogue import Target, find_device
from tests.tools.oracle.op_events import Player, calls, more_recordings, recordings

FILES = {
    "s_2.11.0.txt": ("h200", (2, 11)),
    "s_2.12.0.txt": ("h200", (2, 12)),
    "s_2.13.0.txt": ("h200", (2, 13)),
    "s_2.13.0_sm80.txt": ("a100", (2, 13)),
    "s_2.14.1.txt": ("h200", (2, 14)),
    "s_2.15.0.txt": ("h200", (2, 15)),
}
NOT_MODELLED = {
    "unique 1e6": "the exported call has further results, and their sizes depend on the values",
    "bincount": "the result's size depends on the values",
    "batch_norm train": "cuDNN reports the size of workspace and reserve only on the device",
    "fft rfft": "cuFFT reports the size of its workspace only on the device",
    "fft fft2": "cuFFT reports the size of its workspace only on the device",
    "autocast linear": "a file keeps the casts, not the cache of casted weights",
}
SHARE = 0.95

MORE = {"more_2.11.0.txt": (2, 11), "more_2.13.0.txt": (2, 13), "more_2.15.0.txt": (2, 15)}
MORE_SHARE = 0.97
"""Of over five hundred further calls: other shapes, element types and strides."""
_KERNELS = {"FLASH_": "flash", "EFFICIENT_": "efficient", " MATH": "math"}


def _agreeing(file: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether each line of a recording is predicted exactly."""
    device, version = FILES[file]
    player = Player(Target(find_device(device), version))
    programs = calls("calls.irs.txt")
    agreeing: dict[str, bool] = {}
    for name, line in recordings(file).items():
        kernel = next((kernel for mark, kernel in _KERNELS.items() if mark in name), None)
        with monkeypatch.context() as patch:
            if kernel is not None:
                # The recording forced a kernel, which no file says.
                patch.setattr(sdpa, "choose", lambda scratch, made, kernel=kernel: kernel)
            agreeing[name] = name in programs and line.agrees(player.play(programs[name]))
    return agreeing


@pytest.mark.parametrize("file", FILES)
def test_single_calls_take_what_pytorch_takes(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agreeing = _agreeing(file, monkeypatch)
    assert [name for name, exact in agreeing.items() if not exact and name not in NOT_MODELLED] == []
    assert len(agreeing) >= 155
    assert sum(agreeing.values()) >= SHARE * len(agreeing)


@pytest.mark.slow
@pytest.mark.parametrize("file", MORE)
def test_further_calls(file: str) -> None:
    player = Player(Target(find_device("h200"), MORE[file]), warm=True)
    programs = calls("more.irs.txt")
    lines = more_recordings(file)
    wrong = [name for name, line in lines.items() if not line.agrees(player.play(programs[name]))]
    assert len(lines) > 500
    assert len(wrong) <= (1 - MORE_SHARE) * len(lines), wrong


def test_a_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: an operator that makes its result last is noticed."""
    line = recordings("s_2.13.0.txt")["layer_norm f32"]
    events = Player(Target(find_device("h200"))).play(calls("calls.irs.txt")["layer_norm f32"])
    assert line.agrees(events)
    assert not line.agrees([*events[1:], events[0]])
