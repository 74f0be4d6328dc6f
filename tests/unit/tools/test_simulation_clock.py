"""The clock of simulated programs: queues of streams, waits, collectives and the host, on tapes written by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from irscope.devices import DeviceProfile, find_device
from irscope.memory.tape import Ran, Sent, Tape, TapedAllocator
from irscope.passes.cost.clock import constants
from irscope.tools.simulation_clock import Clocked, clocked, ring_seconds
from tests.unit.ops.calling import make_call, t

H100 = find_device("h100")
LINK = 100e9
GIB = 1 << 30
LARGE = Ran("aten::large", None, 4 * GIB)
"""Milliseconds of a kernel that only moves bytes."""


def written() -> TapedAllocator:
    return TapedAllocator("2.13", "", None, pending_frees="next_malloc")


def timed(gpu: TapedAllocator, link: float = LINK, device: Any = H100) -> Clocked:
    return clocked(gpu.tape, device, [("1", len(gpu.tape.events))], link)


def one_kernel() -> float:
    gpu = written()
    gpu.queued(0, LARGE)
    return timed(gpu).steps[0].seconds


def test_kernels_of_one_stream_run_one_after_the_other_and_those_of_two_side_by_side() -> None:
    same, apart = written(), written()
    for stream in (0, 0):
        same.queued(stream, LARGE)
    for stream in (0, 1):
        apart.queued(stream, LARGE)
    assert timed(same).steps[0].seconds == pytest.approx(2 * one_kernel(), rel=0.01)
    assert timed(apart).steps[0].seconds == pytest.approx(one_kernel(), rel=0.01)


def test_a_stream_that_waits_goes_on_when_the_other_is_done() -> None:
    gpu = written()
    gpu.queued(1, LARGE)
    event = gpu.record_event(1)
    gpu.queued(1, LARGE)
    gpu.wait(0, event)
    gpu.queued(0, LARGE)
    assert timed(gpu).steps[0].seconds == pytest.approx(2 * one_kernel(), rel=0.01), "the second of stream 1 runs beside that of stream 0"


def test_a_collective_that_kernels_cover_is_not_exposed() -> None:
    small = Sent("all_reduce", "dp", tuple(range(8)), GIB // 64)
    gpu = written()
    gpu.queued(1, small)
    gpu.queued(0, LARGE)
    gpu.wait(0, 1)
    found = timed(gpu)
    assert found.exposed == 0 and found.steps[0].sending == pytest.approx(ring_seconds(small, LINK))


def test_what_a_stream_waits_for_a_collective_is_exposed() -> None:
    large = Sent("all_reduce", "dp", tuple(range(8)), 8 * GIB)
    gpu = written()
    gpu.queued(1, large)
    gpu.queued(0, LARGE)
    gpu.wait(0, 1)
    gpu.queued(0, LARGE)
    found = timed(gpu)
    assert found.exposed == pytest.approx(ring_seconds(large, LINK) - one_kernel(), rel=0.01)
    assert found.steps[0].seconds == pytest.approx(ring_seconds(large, LINK) + one_kernel(), rel=0.01)


def test_a_ring_moves_its_part_of_the_bytes() -> None:
    sent = Sent("all_reduce", "dp", tuple(range(4)), GIB)
    assert ring_seconds(sent, LINK) == pytest.approx(2 * 3 / 4 * GIB / LINK, rel=0.01)
    assert ring_seconds(Sent("all_gather", "dp", tuple(range(4)), GIB), LINK) == pytest.approx(3 / 4 * GIB / LINK, rel=0.01)
    assert ring_seconds(Sent("all_reduce", "dp", (0,), GIB), LINK) == 0


def test_without_a_link_collectives_are_unknown_and_the_interval_is_open() -> None:
    gpu = written()
    gpu.queued(0, LARGE)
    gpu.queued(1, Sent("all_gather", "dp", (0, 1), GIB))
    found = timed(gpu, link=0)
    assert found.exposed is None and found.unsent == 1 and math.isinf(found.steps[0].high)


def test_short_kernels_wait_for_the_host_and_a_host_that_waits_for_the_device_starts_late() -> None:
    gpu = written()
    for _ in range(100):
        gpu.queued(0, Ran("aten::small", None, 1024))
    [step] = timed(gpu).steps
    assert step.seconds == pytest.approx(100 * constants().host_seconds["operator"], rel=0.05) and step.waits_for_host > 0
    waiting = written()
    waiting.queued(0, LARGE)
    waiting.synchronize()
    waiting.queued(1, LARGE)
    assert timed(waiting).steps[0].seconds == pytest.approx(2 * one_kernel(), rel=0.01)


def test_an_operator_of_which_nothing_is_known_leaves_the_interval_open() -> None:
    gpu = written()
    gpu.queued(0, LARGE)
    gpu.queued(0, Ran("mine::strange", None, 8, is_known=False))
    found = timed(gpu)
    assert found.unknown == {"mine::strange": 1} and math.isinf(found.steps[0].high)


def test_a_device_without_bandwidth_has_no_times() -> None:
    found = clocked(Tape(), DeviceProfile("slow", "Slow", "gpu", ""), [], LINK)
    assert found.missing == "bandwidth" and found.steps == [] and found.exposed is None


def test_a_step_is_not_predicted_below_the_least_time_of_its_kernels() -> None:
    gpu, sizes = written(), "f16[16384,16384]"
    gpu.queued(0, Ran("aten::mm", make_call("math.matmul", [sizes, sizes], {}, [t(sizes)])))
    device = replace(H100, clock=None)  # no highest clock either: the printed peak holds
    [step] = timed(gpu, device=device).steps
    assert step.low >= 2 * 16384**3 / 989.5e12
