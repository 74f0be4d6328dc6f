"""Times of generating, from the queue of a tape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from irscope.devices import find_device
from irscope.frontends.generation.program import Run, Wish
from irscope.memory.growth import Cut
from irscope.memory.tape import Queued, Ran, Tape
from irscope.tools.generate_laws import generation_times
from tests.unit.ops.calling import make_call, t

GIB = 2**30
WISH = Wish("model", prompt=10, new=5)


def _run(tape: Tape[Any], works: list[Ran]) -> Run:
    """Queue the prompt's work and that of each step, each behind one request."""
    begin = len(tape.events)
    cuts = []
    for number, work in enumerate(works):
        if number:
            cuts.append(Cut(len(tape.events), {}))
        tape.events.append(tape.slot(0, "", ""))
        tape.queue.append(Queued(0, len(tape.events), 0, work))
    return Run(begin, cuts, len(tape.events))


def _moves(gib: float) -> Ran:
    return Ran("works", None, int(gib * GIB))


def test_a_token_takes_the_mean_of_all_steps_and_those_between_two_lie_on_a_line() -> None:
    tape: Tape[Any] = Tape()
    main = _run(tape, [_moves(50), _moves(10)])  # its step begins with 11 tokens
    last = _run(tape, [_moves(50), _moves(40)])  # and this one, of a call behind 13, with 14
    device = find_device("h100")
    found = generation_times(WISH, tape, main, [(13, last), (10, main)], device)
    assert found.token is not None
    assert found.rate is not None
    assert isinstance(found.token.value, float)
    assert isinstance(found.first.value, float)
    assert found.first.value == pytest.approx(2 * found.token.value, rel=1e-3)  # 10, 20, 30 and 40 are 25 on average
    assert device.bandwidth is not None
    assert found.token.value > 25 * GIB / device.bandwidth.hi
    assert found.rate.value == pytest.approx(1 / found.token.value)
    low, high = found.token.interval or (None, None)
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < found.token.value < high
    assert found.rate.interval == (pytest.approx(1 / high), pytest.approx(1 / low))


def test_a_kernel_that_is_not_known_leaves_only_the_lower_end() -> None:
    tape: Tape[Any] = Tape()
    main = _run(tape, [_moves(50), Ran("own::kernel", is_known=False), _moves(10)])
    found = generation_times(replace(WISH, new=3), tape, main, [(10, main)], find_device("h100")).to_json()
    assert found["first_token_seconds"] > 0
    assert found["token_seconds"] is None
    assert found["token_seconds_interval"][0] > 0
    assert found["token_seconds_interval"][1] is None
    assert found["tokens_per_second"] is None
    assert found["tokens_per_second_interval"][0] is None
    assert found["unknown"] == {"own::kernel": 1}


def test_one_new_token_has_no_further_ones() -> None:
    tape: Tape[Any] = Tape()
    main = _run(tape, [_moves(50)])
    found = generation_times(replace(WISH, new=1), tape, main, [(10, main)], find_device("h100"))
    assert found.first.value
    assert [name for name, _ in found.rows()] == ["time_to_first_token"]
    assert found.to_json()["token_seconds"] is None


def test_a_device_without_a_bandwidth_has_no_times() -> None:
    tape: Tape[Any] = Tape()
    main = _run(tape, [_moves(50), _moves(10)])
    found = generation_times(WISH, tape, main, [(10, main)], replace(find_device("h100"), bandwidth=None))
    rows = dict(found.rows())
    assert rows["no_times"] == "the device's bandwidth is not known"
    document = found.to_json()
    assert document["missing"] == "bandwidth"
    assert all(document[name] is None for name in ("first_token_seconds", "token_seconds", "tokens_per_second", "token_kernel_seconds"))


def test_steps_of_an_assistant_make_several_tokens() -> None:
    wish = replace(WISH, new=13, assistant="small", candidates=3, accepted=3)
    tape: Tape[Any] = Tape()
    main = _run(tape, [_moves(50), _moves(20), _moves(20), _moves(0)])  # the last is what comes behind the last round
    found = generation_times(wish, tape, main, [(10, main)], find_device("h100"))
    alone = generation_times(replace(WISH, new=3), tape, main, [(10, main)], find_device("h100"))
    assert wish.starts() == [10, 14, 18, 22]
    assert found.token is not None
    assert alone.first.value == found.first.value
    assert isinstance(found.token.value, float)
    assert isinstance(found.first.value, float)
    assert found.token.value == pytest.approx(3 * found.first.value * 20 / 50 / 9, rel=1e-3)


def test_a_token_does_not_take_less_than_reading_its_weights_does() -> None:
    def product(rows: int) -> Ran:
        call = make_call("math.matmul", [f"f16[{rows},8192]", "f16[8192,8192]"], {}, [t(f"f16[{rows},8192]")])
        return Ran("aten::mm", call)

    tape: Tape[Any] = Tape()
    main = _run(tape, [product(10), product(1)])
    tape.queue += [tape.queue[-1]] * 99  # a hundred layers
    device = find_device("rtx-4090")
    found = generation_times(replace(WISH, new=2), tape, main, [(10, main)], device).token
    assert found is not None and found.interval is not None
    assert found.interval[0] >= (100 * 2 * 8192 * 8192 - device.cache_bytes) / 1008e9  # each is 134 MB, the cache holds 75
