# Shows F24
"""Accepted flows never stall in the kernel (F24): random flows, orders and failures."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

import pytest

from flowengine.kernel.graph.specs import CompiledFlow
from tests.flow.verdicts import compiled_if_accepted
from tests.testing.disturbed import check
from tests.testing.random_tangles import tangled_flow

BLOCKS = 10
FLOWS = 8
SCHEDULES = 10


def drawn(seed: int) -> str:
    return json.dumps(tangled_flow(random.Random(seed)))


def accepted(seed: int) -> Iterator[tuple[int, CompiledFlow]]:
    """Yield seeds of random flows that the checker accepts, with these flows."""
    for one in count(seed):
        found = compiled_if_accepted(drawn(one))
        if found:
            yield one, found.flow


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_accepted_flow_stalls(block: int) -> None:
    """Random flows that pass the checker end or wait, in any order of events."""
    statuses: Counter[str] = Counter()
    for seed, flow in islice(accepted(block * 1_000), FLOWS):
        for schedule in range(SCHEDULES):
            try:
                statuses[check(flow, random.Random(schedule)).status] += 1
            except AssertionError as error:
                raise AssertionError(f"{seed=} {schedule=}: {error}") from error
    assert statuses["succeeded"] > 5
    assert statuses["failed"] > 5


WORDS = [
    *("trigger", "idle", "emit", "signal", "count", "transient", "match"),
    *("flow", "detach", "flows", "lock", "permits", "hold", "concurrency", "approval", "expires"),
    *("map", "more", "loop", "keep", "every", "set", "when", "wait", "deadline"),
    *("cancel", "compensate", "finally", "group", "parallel", "on_error", "join", "first", "all"),
]
"""Settings that affect how tokens move."""
VALUES = ['"none"', '"end_all"', '"execution"', '"global"', '"flow"', '"failed"', '"late"']
"""Settings that affect values."""


@pytest.mark.endurance
def test_what_is_drawn_holds_every_construct_also_where_it_is_accepted() -> None:
    everything: Counter[str] = Counter()
    passing: set[str] = set()
    for seed in range(400):
        text = drawn(seed)
        found = [word for word in WORDS if f'"{word}":' in text]
        found += [value for value in VALUES if f": {value}" in text]
        everything.update(found)
        if seed < 160 and not passing.issuperset(found) and compiled_if_accepted(text):
            passing.update(found)

    rare = {word: everything[word] for word in [*WORDS, *VALUES] if everything[word] < 6}
    assert (rare, set(WORDS) - passing) == ({}, set())
