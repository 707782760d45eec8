# Shows V51, V58
"""The tree of steps, against its definition."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from flowengine.engines.executions.subjects import wholes
from flowengine.engines.folds import URGENT, Folds
from flowengine.kernel.notation.addresses import around

OPEN = frozenset({"running", "waiting", "retrying", "uncertain"})
STATUSES = (*URGENT, "succeeded", "skipped")
NAMES = (
    *("a", "a[0]", "a[0]/x", "a[0]/y", "a[b]/x", "a[1]", "a[10]", "b", "b@1/x", "b@2/x", "b@2"),
    *("c", "c/x", "c/x[0]", "c/x[1]/y@1/z", "d#2", "d#2/x"),
    *("e[a/b@c]", "e[a/b@c]/y", "e[[0]]", "e[1]", "e[2]/b]", "e[2]", "f@3", "f@13", "f@23"),
)


@pytest.mark.endurance
def test_it_has_what_the_steps_alone_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.engines.folds.PAGE", 3)
    for seed in range(300):
        draw = random.Random(seed)
        steps: dict[str, Any] = {}
        for address in draw.sample(NAMES, draw.randrange(1, len(NAMES))):
            steps[address] = one(draw, address)
        folds = Folds.of(steps.values())
        check(folds, steps)
        for address in draw.choices(NAMES, k=10):
            steps[address] = steps.get(address, {}) | one(draw, address)
            folds._read = steps.__getitem__
            folds.update([(address, (address[-1], steps[address]["status"]))])
            check(folds, steps)


def test_equally_urgent_statuses_are_in_order_of_beginning() -> None:
    statuses = {"a[0]/x": "succeeded", "a[1]": "skipped", "a[0]": "succeeded"}
    folds = Folds.of(
        {"address": address, "step": "a", "status": status} for address, status in statuses.items()
    )
    assert folds.level("").rows[0].counts == [("skipped", 1), ("succeeded", 1)]


def one(draw: random.Random, address: str) -> dict[str, Any]:
    """Return a step at an address, with any status."""
    step: dict[str, Any] = {"address": address, "step": address[-1]}
    step["status"] = draw.choice(STATUSES)
    step["error"] = {"step": draw.choice(NAMES)} if step["status"] == "failed" else None
    return step


def check(folds: Folds, steps: dict[str, Any]) -> None:
    """Compare a tree with what the steps alone say."""
    places: dict[str, None] = {}
    for address in steps:
        places |= dict.fromkeys(around(address))
    parents = {one: next(iter(around(one)[-2:-1]), "") for one in places}
    number = {one: at for at, one in enumerate(places)}
    leaves = [one for one in places if one not in parents.values()]

    def urgency(place: str) -> int:
        inside = [one for one in (place, *leaves) if one in steps and place in around(one)]
        statuses = [steps[one]["status"] for one in inside]
        return min(URGENT.index(one) if one in URGENT else len(URGENT) for one in statuses)

    for fold in ("", *(one for one in places if one in parents.values())):
        inside = [one for one in places if parents[one] == fold]
        level = folds.level(fold)
        if fold or len(inside) > 3:
            order = sorted(inside, key=lambda one: (urgency(one), number[one]))
        else:
            order = sorted(inside, key=number.__getitem__)
        assert [row.address for row in level.rows] == order[:3]
        assert (level.total, level.after) == (len(inside), 3 if len(inside) > 3 else None)
        for row in level.rows:
            counts = Counter(
                steps[one]["status"]
                for one in places
                if parents[one] == row.address and one in steps
            )
            assert dict(row.counts) == counts
            assert row.step == steps.get(row.address)
            deeper = {steps[one]["status"] for one in leaves if row.address in around(one)[:-1]}
            assert {status for status, _ in row.deeper} == (deeper & {*URGENT}) - {*counts}

    failed = [one for one in steps if steps[one]["status"] == "failed"]
    origins = {one: steps[one]["error"]["step"] for one in failed}
    failures = [
        one for one in failed if origins[one] not in failed or one not in around(origins[one])[:-1]
    ]
    assert [one["address"] for one in folds.failures()[0]] == failures
    assert folds.failures()[1] == len(failures)
    assert folds.statuses() == statuses(steps)


def statuses(steps: dict[str, Any]) -> dict[str, Counter[str]]:
    """Return the counts for a graph: a map counts only for a status that no item has."""
    whole = {place for one in steps for place in wholes(one)}
    found: dict[str, Counter[str]] = {}
    for address, step in sorted(steps.items(), key=lambda pair: pair[0] in whole):
        counts = found.setdefault(step["step"], Counter())
        if address not in whole or not counts[step["status"]]:
            counts[step["status"]] += 1
    rounds = {
        address: address.rpartition("@")[0]
        for address in steps
        if address.rpartition("@")[2].isdecimal()
    }
    for loop in {*rounds.values()} - steps.keys():
        inside = [one for one in steps if loop in around(one)[:-1]]
        bodies = {place for one in inside for place in around(one)} - steps.keys() - {*around(loop)}
        if not bodies and OPEN.isdisjoint(steps[one]["status"] for one in inside):
            found[next(steps[one]["step"] for one, of in rounds.items() if of == loop)][
                "waiting"
            ] = 1
    return found
