"""The search for canonical placements as machine code: import it only where `can_compile` says so, as plain Python it is slow.

It is the search of irscope.solvers.canonical with two things more, which pay only where a step is cheap. A buffer that was passed over
(one that could have stood lower than what was placed last) must come to stand on another one that still waits, so it is at
least as high as the lowest top of those: `least`. And at each moment what waits is stacked by these least offsets, which is the
exact height of one stack with release dates, and more than floor and sum say. Where the arena has no room to spare, some buffers stand
at bounded distances from one another (`Floors.ties`): as soon as one is placed, others have a lowest and a highest offset.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irscope.compiled import machine_code

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FAR = 1 << 62
LOWS, LEASTS, LATESTS, DONE, ITEMS, NOW, ALONE, TIGHT = range(8)
_KINDS = 8
"""Slots of `State.counts`: entries of the three trails, buffers placed, stretches listed, placements ever made; then 0, and in marks
whether what was placed meets nothing that waits; at last the moment that had no room lately."""


class Fixed(NamedTuple):
    """Constant part of the search: buffers sorted by their first moment, and pairs whose live ranges overlap."""

    size: Numbers
    first: Numbers
    last: Numbers
    born: Numbers
    """Where the buffers of each first moment begin."""
    near_at: Numbers
    near: Numbers
    """Buffers alive together with each one, small ones first."""
    member_at: Numbers
    member: Numbers
    """Buffers alive at each moment."""
    tie_at: Numbers
    tie: Numbers
    """Buffers at a bounded distance from each one."""
    tie_low: Numbers
    tie_high: Numbers
    """By how much their offsets exceed its offset, at least and at most."""


class State(NamedTuple):
    """State of the search; every change of it is written to a trail, so that it can be undone."""

    blame: Numbers
    """Number of failures to place each buffer."""
    rank: Numbers
    """Which of two that could stand equally low goes first."""
    offset: Numbers
    low: Numbers
    """Where each buffer could stand now."""
    least: Numbers
    """No placement from here has it lower."""
    latest: Numbers
    """No placement from here has it higher."""
    placed: Flags
    waiting: Numbers
    """Bytes to come at each moment."""
    crossing: Numbers
    """Waiting buffers that live across the border after each moment."""
    counts: Numbers
    low_who: Numbers
    low_was: Numbers
    least_who: Numbers
    least_was: Numbers
    latest_who: Numbers
    latest_was: Numbers
    changed: Numbers
    """Moments whose stack changed."""
    order: Numbers
    """Buffers as they were placed."""
    stamp: Numbers
    member: Numbers
    """Buffers alive at each moment, those that wait first, highest least offset first; the order is a help, and never wrong."""
    begin: Numbers
    end: Numbers
    level: Numbers
    behind: Numbers
    owner: Numbers
    following: Numbers
    """Stretches of time to fill: moments, the offset and rank of what was placed before, whose failure theirs is, and what is next."""
    item: Numbers
    last_low: Numbers
    last_rank: Numbers
    choice: Numbers
    choice_next: Numbers
    choice_end: Numbers
    marks: Numbers
    """Choices: for which stretch, what was tried last, what could stand there, what of it is next and where it ends, one choice after the
    other, and the counts before what was tried was placed."""


def new_state(fixed: Fixed, rank: Numbers, loads: Numbers, crossing: Numbers, capacity: int) -> State:
    """Nothing is placed yet. The trails are as long as can be: what is never written takes no memory."""
    count, moments, meets = len(fixed.size), len(loads), len(fixed.near) + len(fixed.tie)
    items = count + moments + 2
    return State(
        blame=np.zeros(count, np.int64),
        rank=rank,
        offset=np.zeros(count, np.int64),
        low=np.zeros(count, np.int64),
        least=np.zeros(count, np.int64),
        latest=capacity - fixed.size,
        placed=np.zeros(count, np.bool_),
        waiting=loads.copy(),
        crossing=np.append(crossing, 0).astype(np.int64),
        counts=np.zeros(_KINDS, np.int64),
        low_who=np.empty(meets + 1, np.int64),
        low_was=np.empty(meets + 1, np.int64),
        least_who=np.empty(meets + count * (count + 1) + 1, np.int64),
        least_was=np.empty(meets + count * (count + 1) + 1, np.int64),
        latest_who=np.empty(len(fixed.tie) + 1, np.int64),
        latest_was=np.empty(len(fixed.tie) + 1, np.int64),
        changed=np.empty(moments + 1, np.int64),
        order=np.empty(count + 1, np.int64),
        stamp=np.zeros(moments, np.int64),
        member=fixed.member.copy(),
        begin=np.empty(items, np.int64),
        end=np.empty(items, np.int64),
        level=np.empty(items, np.int64),
        behind=np.empty(items, np.int64),
        owner=np.empty(items, np.int64),
        following=np.empty(items, np.int64),
        item=np.empty(count + 1, np.int64),
        last_low=np.empty(count + 1, np.int64),
        last_rank=np.empty(count + 1, np.int64),
        choice=np.empty(count * (count + 1) // 2 + count + 1, np.int64),
        choice_next=np.zeros(count + 2, np.int64),
        choice_end=np.zeros(count + 2, np.int64),
        marks=np.empty((count + 1, _KINDS), np.int64),
    )


@machine_code
def _begin_choice(fixed: Fixed, state: State, top: int, item: int) -> None:
    """Begin a choice of the next buffer in a stretch of time.

    Candidates stand below the lowest top, else another one would fit under it: lowest first, the preferred one of several.
    """
    height = _FAR
    for buffer in range(fixed.born[state.begin[item]], fixed.born[state.end[item]]):
        if not state.placed[buffer]:
            height = min(height, state.low[buffer] + fixed.size[buffer], state.latest[buffer] + 1)
    level, behind = state.level[item], state.behind[item]
    first = end = following = state.choice_end[top]
    for buffer in range(fixed.born[state.begin[item]], fixed.born[state.end[item]]):
        low = state.low[buffer]
        if state.placed[buffer] or low >= height:
            continue
        rank = state.rank[buffer]
        if low < level or (low == level and rank <= behind):
            following += 1
        place = end
        while place > first and (
            low < state.low[state.choice[place - 1]]
            or (low == state.low[state.choice[place - 1]] and rank < state.rank[state.choice[place - 1]])
        ):
            state.choice[place] = state.choice[place - 1]
            place -= 1
        state.choice[place] = buffer
        end += 1
    state.item[top], state.choice_next[top], state.choice_end[top + 1] = item, following, end


@machine_code
def _candidate(state: State, top: int) -> int:
    """Return the buffer to be tried next; -1 where none is left."""
    at = state.choice_next[top]
    if at >= state.choice_end[top + 1]:
        return -1
    state.choice_next[top] = at + 1
    return int(state.choice[at])


@machine_code
def _touch(fixed: Fixed, state: State, buffer: int, changed: int) -> int:
    """Write down the moments of a buffer as changed."""
    now = state.counts[NOW]
    for moment in range(fixed.first[buffer], fixed.last[buffer] + 1):
        if state.stamp[moment] != now:
            state.stamp[moment] = now
            state.changed[changed] = moment
            changed += 1
    return changed


@machine_code
def _raise_least(state: State, buffer: int, least: int) -> None:
    at = state.counts[LEASTS]
    state.least_who[at], state.least_was[at] = buffer, state.least[buffer]
    state.counts[LEASTS] = at + 1
    state.least[buffer] = least


@machine_code
def _raise_low(fixed: Fixed, state: State, buffer: int, low: int, changed: int) -> int:
    at = state.counts[LOWS]
    state.low_who[at], state.low_was[at] = buffer, state.low[buffer]
    state.counts[LOWS] = at + 1
    state.low[buffer] = low
    if state.least[buffer] < low:
        _raise_least(state, buffer, low)
        changed = _touch(fixed, state, buffer, changed)
    return changed


@machine_code
def _put(fixed: Fixed, state: State, top: int, buffer: int) -> int:
    """Place a buffer; how many moments changed, or -1 where one that is tied to it no longer fits."""
    low = state.low[buffer]
    state.last_low[top], state.last_rank[top] = low, state.rank[buffer]
    for at in range(len(state.counts)):
        state.marks[top, at] = state.counts[at]
    state.order[state.counts[DONE]] = buffer
    state.counts[DONE] += 1
    state.counts[NOW] += 1
    state.placed[buffer] = True
    state.offset[buffer] = low
    for moment in range(fixed.first[buffer], fixed.last[buffer] + 1):
        state.waiting[moment] -= fixed.size[buffer]
        if moment < fixed.last[buffer]:
            state.crossing[moment] -= 1
    changed = _touch(fixed, state, buffer, int(state.counts[ALONE]))
    above = low + fixed.size[buffer]
    state.marks[top, ALONE] = 1
    for at in range(fixed.near_at[buffer], fixed.near_at[buffer + 1]):
        other = fixed.near[at]
        if state.placed[other]:
            continue
        state.marks[top, ALONE] = 0
        if state.low[other] < above:
            changed = _raise_low(fixed, state, other, above, changed)
    return _tighten(fixed, state, top, buffer, changed)


@machine_code
def _tighten(fixed: Fixed, state: State, top: int, buffer: int, changed: int) -> int:
    """Bound the offsets of what is tied to a placed buffer, in its stretch: others are searched without regard to it."""
    item, low = state.item[top], state.offset[buffer]
    for at in range(fixed.tie_at[buffer], fixed.tie_at[buffer + 1]):
        other = fixed.tie[at]
        if state.placed[other] or fixed.first[other] < state.begin[item] or fixed.first[other] >= state.end[item]:
            continue
        state.marks[top, ALONE] = 0
        above = low + fixed.tie_low[at]
        if state.low[other] < above:
            changed = _raise_low(fixed, state, other, above, changed)
        latest = low + fixed.tie_high[at]
        if state.latest[other] > latest:
            trail = state.counts[LATESTS]
            state.latest_who[trail], state.latest_was[trail] = other, state.latest[other]
            state.counts[LATESTS] = trail + 1
            state.latest[other] = latest
        if state.least[other] > state.latest[other]:
            state.blame[other] += 1
            return -1
    return changed


@machine_code
def _support(fixed: Fixed, state: State, top: int, capacity: int, changed: int) -> int:
    """Raise what was passed over to the lowest top that it can come to stand on; the moments changed, or -1 where it no longer fits."""
    level = state.last_low[top]
    for place in range(state.choice_end[top], state.choice_next[top] - 1):
        buffer = state.choice[place]
        if state.low[buffer] > level:
            continue
        stands = capacity + 1
        for at in range(fixed.near_at[buffer], fixed.near_at[buffer + 1]):
            other = fixed.near[at]
            if level + fixed.size[other] >= stands:
                # What follows is as large or larger.
                break
            if not state.placed[other]:
                stands = min(stands, max(state.least[other], level) + fixed.size[other])
                if stands <= state.least[buffer]:
                    break
        if stands > state.least[buffer]:
            if stands > state.latest[buffer]:
                state.blame[buffer] += 1
                return -1
            _raise_least(state, buffer, stands)
            changed = _touch(fixed, state, buffer, changed)
    return changed


@machine_code
def _stacks(fixed: Fixed, state: State, moment: int, capacity: int) -> bool:
    """Return whether what waits at a moment fits below the capacity, stacked by the least offsets."""
    begin, end = fixed.member_at[moment], fixed.member_at[moment + 1]
    total = 0
    # The order is kept from one time to the next, so it is nearly sorted and this is nearly linear.
    for index in range(begin, end):
        buffer = state.member[index]
        least = -1 if state.placed[buffer] else state.least[buffer]
        place = index
        while place > begin:
            other = state.member[place - 1]
            if (-1 if state.placed[other] else state.least[other]) >= least:
                break
            state.member[place] = other
            place -= 1
        state.member[place] = buffer
    for index in range(begin, end):
        buffer = state.member[index]
        if state.placed[buffer]:
            break
        total += fixed.size[buffer]
        if state.least[buffer] + total > capacity:
            for low in range(begin, index + 1):
                state.blame[state.member[low]] += 1
            return False
    return True


@machine_code
def _fits(fixed: Fixed, state: State, top: int, capacity: int, changed: int) -> bool:
    """Return whether at each moment what waits fits below the capacity."""
    item, level = state.item[top], state.last_low[top]
    for moment in range(state.begin[item], state.end[item]):
        if state.waiting[moment] > 0 and level + state.waiting[moment] > capacity:
            return False
    # What was too tight before most often is so again.
    tight = state.counts[TIGHT]
    if state.stamp[tight] == state.counts[NOW] and not _stacks(fixed, state, tight, capacity):
        return False
    for at in range(changed):
        moment = state.changed[at]
        if moment != tight and not _stacks(fixed, state, moment, capacity):
            state.counts[TIGHT] = moment
            return False
    return True


@machine_code
def _tell(state: State, top: int, begin: int, end: int, following: int) -> int:
    item = int(state.counts[ITEMS])
    state.begin[item], state.end[item], state.owner[item], state.following[item] = begin, end, top, following
    state.level[item], state.behind[item] = state.last_low[top], state.last_rank[top]
    state.counts[ITEMS] = item + 1
    return item


@machine_code
def _split(state: State, top: int) -> int:
    """Return the next item: stretches that no waiting buffer connects are filled separately, shortest first; -1 where all is placed."""
    item = state.item[top]
    following = int(state.following[item])
    first = state.counts[ITEMS]
    begin, end = state.begin[item], state.end[item]
    some = False
    for moment in range(begin, end):
        some = some or state.waiting[moment] > 0
        if moment + 1 == end or state.crossing[moment] == 0:
            if some:
                _tell(state, top, begin, moment + 1, following)
            begin, some = moment + 1, False
    # By length, longest first: each is followed by the one told before it.
    for index in range(first + 1, state.counts[ITEMS]):
        begin, end = state.begin[index], state.end[index]
        place = index
        while place > first and state.end[place - 1] - state.begin[place - 1] < end - begin:
            state.begin[place], state.end[place] = state.begin[place - 1], state.end[place - 1]
            place -= 1
        state.begin[place], state.end[place] = begin, end
    for index in range(first, state.counts[ITEMS]):
        state.following[index] = following
        following = index
    return following


@machine_code
def _take_back(fixed: Fixed, state: State, top: int) -> None:
    """Restore the state from before the choice placed a buffer."""
    for at in range(state.counts[LOWS] - 1, state.marks[top, LOWS] - 1, -1):
        state.low[state.low_who[at]] = state.low_was[at]
    for at in range(state.counts[LEASTS] - 1, state.marks[top, LEASTS] - 1, -1):
        state.least[state.least_who[at]] = state.least_was[at]
    for at in range(state.counts[LATESTS] - 1, state.marks[top, LATESTS] - 1, -1):
        state.latest[state.latest_who[at]] = state.latest_was[at]
    for at in range(state.marks[top, DONE], state.counts[DONE]):
        buffer = state.order[at]
        state.placed[buffer] = False
        for moment in range(fixed.first[buffer], fixed.last[buffer] + 1):
            state.waiting[moment] += fixed.size[buffer]
            if moment < fixed.last[buffer]:
                state.crossing[moment] += 1
    for at in (LOWS, LEASTS, LATESTS, DONE, ITEMS):
        state.counts[at] = state.marks[top, at]
    if state.marks[top, ALONE]:
        # Where it stands changes nothing for others: no other choice helps.
        state.choice_next[top] = state.choice_end[top + 1]


@machine_code
def fill(fixed: Fixed, state: State, capacity: int, steps: int) -> tuple[int, int]:
    """Place all buffers below the capacity: 1 where `state.offset` has them, 0 where there is no way, -1 out of steps.

    And the most buffers that were placed at one time.
    """
    state.begin[0], state.end[0], state.level[0], state.behind[0] = 0, len(state.waiting), 0, -1
    state.owner[0], state.following[0] = -1, -1
    state.counts[ITEMS] = 1
    # Zeros that are no constants, for which each function would be compiled a second time.
    top, taken, most = int(state.counts[ALONE]), int(state.counts[ALONE]), int(state.counts[ALONE])
    _begin_choice(fixed, state, top, top)
    while True:
        buffer = _candidate(state, top)
        if buffer < 0:
            # Nothing is left to try, so the placement that this stretch follows from was wrong, whatever was done in others since.
            top = state.owner[state.item[top]]
            if top < 0:
                return 0, most
            _take_back(fixed, state, top)
            continue
        if taken >= steps:
            return -1, most
        taken += 1
        changed = _put(fixed, state, top, buffer)
        if changed >= 0:
            changed = _support(fixed, state, top, capacity, changed)
        if changed >= 0 and _fits(fixed, state, top, capacity, changed):
            most = max(most, state.counts[DONE])
            following = _split(state, top)
            if following < 0:
                return 1, most
            top += 1
            _begin_choice(fixed, state, top, following)
            continue
        _take_back(fixed, state, top)
