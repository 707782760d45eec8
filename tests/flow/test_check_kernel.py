"""What the checker accepts never stalls in the kernel (F24): random flows, orders and failures."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.testing.random_tangles import tangled_flow
from tests.testing.disturbed import check

BLOCKS = 4
EACH = 60


def drawn(seed: int) -> str:
    return json.dumps(tangled_flow(random.Random(seed)))


@cache
def accepted(text: str) -> CompiledFlow | None:
    """Return the compiled form of a random flow, if the checker accepts it."""
    try:
        return compile_text(text).flow
    except FlowFileError:
        return None


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_accepted_flow_stalls(block: int) -> None:
    """Of random flows those that pass the checker end or wait, whatever happens in any order."""
    statuses: Counter[str] = Counter()
    for seed in range(block * EACH, (block + 1) * EACH):
        flow = accepted(drawn(seed))
        for schedule in range(0 if flow is None else 3):
            assert flow is not None
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
"""What can make a difference to how tokens move."""
VALUES = ['"none"', '"end_all"', '"execution"', '"global"', '"flow"', '"failed"', '"late"']
"""The same, of values."""


def test_what_is_drawn_holds_every_construct_also_where_it_is_accepted() -> None:
    everything: Counter[str] = Counter()
    passing: Counter[str] = Counter()
    for seed in range(400):
        text = drawn(seed)
        found = [word for word in WORDS if f'"{word}":' in text]
        found += [value for value in VALUES if f": {value}" in text]
        everything.update(found)
        if seed < 160 and accepted(text) is not None:
            passing.update(found)

    rare = {word: everything[word] for word in [*WORDS, *VALUES] if everything[word] < 6}
    absent = [word for word in WORDS if not passing[word]]
    assert (rare, absent) == ({}, [])
