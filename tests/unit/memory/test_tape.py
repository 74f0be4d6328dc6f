"""A tape is replayed as it was written: spans with peaks of their own, streams, pools, and what happened to each request."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import parse_dim
from irscope.memory.caching import CachingAllocator, OutOfMemory
from irscope.memory.run import Lives, kinds_by_life, rows_of, totals_of
from irscope.memory.tape import LOADING, Origin, Span, Spread, Tape, Unbounded

MIB = 1 << 20


def two_forwards() -> Tape[str]:
    """A weight, and a forward that keeps a workspace, run twice."""
    tape: Tape[str] = Tape()
    tape.load(3 * MIB, "parameter", "w")
    made, workspace, nothing = (
        tape.slot(2 * MIB, "activation", "x"),
        tape.slot(MIB // 2, "workspace", "lib"),
        tape.slot(0, "activation", "e"),
    )
    tape.kept.append(workspace)
    tape.owners[made] = "x"
    tape.starts = [0, 1, 5]
    tape.events = [made, workspace, nothing, ~nothing, ~made]
    tape.spans = [Span("cold", 0, 2), Span("warm", 0, 2, again=True)]
    return tape


def test_spans_have_peaks_of_their_own_and_what_is_kept_is_taken_once() -> None:
    tape = two_forwards()
    found = tape.replay(CachingAllocator(), tape.numbers("central"))
    assert found.before.requested == 3 * MIB
    assert [outcome.peak.requested for outcome in found.outcomes] == [5.5 * MIB, 5.5 * MIB]
    assert [outcome.after.requested for outcome in found.outcomes] == [3.5 * MIB, 3.5 * MIB]
    assert found.at("before", "requested") == 3 * MIB and found.at("warm", "requested") == found.worst("requested") == 5.5 * MIB
    assert sorted(found.held) == [0, 2]
    assert found.stretches == [] and found.outcomes[0].stretch is None


def test_a_watched_span_is_noted_request_by_request() -> None:
    tape = two_forwards()
    found = tape.replay(CachingAllocator(), tape.numbers("central"), "all", addresses=True)
    loading, cold, warm = found.stretches
    assert (loading.span.name, loading.blocks) == (LOADING, [3 * MIB])
    assert cold.blocks == [2 * MIB, MIB // 2, 0, 0, -2 * MIB]
    assert warm.blocks == [2 * MIB, 0, 0, -2 * MIB]
    assert (cold.starts, warm.starts) == ([0, 1, 5], [0, 1, 4])
    assert (cold.held, warm.held) == ({"parameter": 3 * MIB}, {"parameter": 3 * MIB, "workspace": MIB // 2})
    assert (cold.follows, warm.follows) == (False, True)
    assert cold.addresses[0] == cold.addresses[-1] == warm.addresses[0] != 0
    assert [place for place, _ in cold.segments] == [1]
    assert found.segments == found["warm"].segments


def test_streams_events_and_pools_are_part_of_the_tape() -> None:
    tape: Tape[str] = Tape()
    main, side = tape.slot(1000, "activation", "x"), tape.slot(1000, "activation", "y", stream=1)
    inside, again = tape.slot(1000, "activation", "in the pool"), tape.slot(1000, "activation", "z")
    tape.events += [main, side]
    tape.act("record", main, 1)
    tape.events.append(~main)
    tape.act("begin pool", 7)
    tape.events.append(inside)
    tape.act("end pool", 7)
    tape.events.append(again)
    tape.act("wait", 0, 1)
    tape.act("synchronize", 0)
    tape.starts = [0, len(tape.events)]
    tape.spans = [Span("step", 0, 1)]
    gpu = CachingAllocator(pending_frees="synchronize")
    found = tape.replay(gpu, tape.numbers("central"), "all", addresses=True)
    assert [(segment.stream, segment.pool) for segment in gpu.segments()] == [(0, 0), (1, 0), (0, 1)]
    _, step = found.stretches
    first, _, _, _, last = step.addresses
    assert last != first  # stream 1 was not done with it
    assert gpu.malloc(1000).address == first


def test_a_tape_without_room_runs_out_where_an_allocator_does() -> None:
    tape = two_forwards()
    with pytest.raises(OutOfMemory):
        tape.replay(CachingAllocator(total_memory=20 * MIB), tape.numbers("central"))


def test_sizes_are_numbers_formulas_or_intervals() -> None:
    tape: Tape[str] = Tape()
    size = parse_dim("batch") * 4
    tape.events = [tape.slot(size, "activation", "x"), tape.slot(10, "workspace", "w")]
    tape.spreads[1] = Spread(0, None, "it is chosen on the device", modelled=True)
    assert [str(symbol) for symbol in tape.symbols()] == ["batch"]
    assert tape.formulas("low") == [size, 0]
    assert not tape.is_exact and not tape.is_passing and tape.most() is None
    with pytest.raises(Unbounded, match="chosen on the device"):
        tape.formulas("high")


def test_requests_that_come_later() -> None:
    tape: Tape[str] = Tape()
    for size in (512, 1024, 2048):
        tape.events.append(tape.slot(size, "activation", ""))
    tape.act("synchronize", -1)
    tape.events += [~0, ~1, ~2]
    tape.starts, tape.spans = [0, 4, 6], [Span("one", 0, 1), Span("two", 1, 2)]
    later = tape.with_later([(3, 4, 5)])
    assert list(later.events) == [0, 1, 2, ~1, ~0, ~2] and later.starts == [0, 3, 6]
    assert [action.at for action in later.actions] == [3] and list(tape.events) == [0, 1, 2, ~0, ~1, ~2]
    peaks = [outcome.peak.requested for outcome in later.replay(CachingAllocator(torch="2.13"), later.numbers("central")).outcomes]
    assert peaks == [3584, 3584]
    assert [one.peak.requested for one in tape.replay(CachingAllocator(torch="2.13"), tape.numbers("central")).outcomes] == [3584, 3072]


def test_of_activations_only_what_a_backward_finds_is_kept() -> None:
    phases = [(0, "forward"), (4, "backward"), (6, "optimizer"), (8, "forward")]
    kept, passing, mask = 0, 1, 2
    in_backward, in_optimizer, shown = 3, 4, 5
    events = [kept, passing, ~passing, mask, in_backward, ~kept, in_optimizer, ~in_backward, shown]
    kinds = ["activation", "activation", "input", "activation", "activation", "activation"]
    expected = ["activation", "temporary", "input", "temporary", "temporary", "activation"]
    assert kinds_by_life(kinds, events, phases) == expected
    assert kinds_by_life(kinds, events, []) == kinds


def test_what_is_there_at_each_moment() -> None:
    tape: Tape[Origin] = Tape()
    weight = tape.load(100, "parameter", "w")
    first, second = tape.slot(40, "activation", "x"), tape.slot(60, "activation", "y")
    tape.owners |= {first: Origin("layer", "train.py:3"), second: Origin("layer", "train.py:3")}
    tape.events += [first, second, ~first, tape.slot(0, "temporary", "")]
    lives = Lives.of(tape)
    assert lives.total.tolist() == [100, 140, 200, 160, 160]
    assert {kind: heights.tolist() for kind, heights in lives.heights(tape.kinds)} == {
        "parameter": [100] * 5,
        "activation": [0, 40, 100, 60, 60],
        "temporary": [0] * 5,
    }
    assert [lives.alive(moment).tolist() for moment in range(3)] == [[weight], [weight, first], [weight, first, second]]
    rows = rows_of(tape, lives.alive(2).tolist())
    assert rows == [("parameter", "", "", 100, 1), ("activation", "layer", "train.py:3", 100, 2)]
    assert totals_of(rows) == {"parameter": 100, "activation": 100}
    # What is given back at a moment comes before what is taken there, and what takes nothing is not asked for.
    again = Lives(np.array([8, 16, 0]), np.array([0, 2, 1]), np.array([2, 9, 9]), 4).requests(until=3)
    assert list(again.events) == [0, ~0, 1] and again.sizes == [8, 16, 0]
    assert [slot for _, slot, _ in tape.requests()] == [1, 2, 1, 3] and tape.given_back() == {first: 2}
