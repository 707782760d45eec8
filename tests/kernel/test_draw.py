"""Coverage of random kernel runs: they make progress, and use every feature.

`tests/kernel/test_random_flows.py` checks their properties.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import pytest

from flowengine.kernel.commands import Send
from flowengine.kernel.graph import specs
from tests.kernel.test_random_flows import play
from tests.kernel.watched_moves import ALLOWED, Seen, watched_moves
from tests.language.test_phases import HELD
from tests.replacing import patches_everywhere
from tests.simulation.simulator import Simulator

PLAYS = 200
PLAYS_FOR_EVERY_MOVE = 1000
PARTS = {
    "join": specs.JoinSpec,
    "split": specs.SplitSpec,
    "entries": specs.SplitEntry,
    "map": specs.MapSpec,
    "loop": specs.LoopSpec,
    "lock": specs.LockSpec,
    "retry": specs.RetrySpec,
    "emit": specs.EmitSpec,
    "on_error": specs.HandlerSpec,
    "wait": specs.WaitSpec,
    "alternatives": specs.AlternativeSpec,
    "trigger": specs.TriggerSpec,
    "cancel": specs.CancelSpec,
    "budget": specs.BudgetSpec,
    "shared_budgets": specs.SharedBudgetSpec,
}
"""Key in the compiled form → type of its value."""
NOT_DRAWN = {
    specs.StepSpec: {
        *("title", "plumbing", "teller", "ahead", "says", "ways", "at", "about"),  # for users
        *("task", "tool", "caller", "preview", "limits", "adapter"),  # for the runner of a task
        *("rules", "within", "declared", "chat", "said", "needs", "opaque"),
        "background",  # drawn in tests/kernel/test_background.py
    },
    specs.FlowSpec: {"version", "defaults", "triggered", "notifies"},
    specs.BudgetSpec: {"assignees", "cost_usd", "called"},
    specs.SharedBudgetSpec: {"cost_usd"},
}
"""For users, runners and agents, and tested with them."""


class Play(NamedTuple):
    """Facts about one run. The run itself would be too large to keep."""

    events: int
    results: int
    cut: int
    facts: set[str]


class Draw(NamedTuple):
    """The coverage of random runs."""

    plays: list[Play]
    keys: dict[Any, dict[str, set[str]]]
    """Type of a part of the compiled form → its keys in reached steps → their values."""
    moves: Seen


def measured(number: int) -> Draw:
    """Run that many flows, each once with crashes, and return their coverage."""
    with watched_moves() as seen:
        draw = Draw([], defaultdict(lambda: defaultdict(set)), seen)
        for seed in range(number):
            played = play(seed, crashes=True)
            draw.plays.append(_about(played))
            for kind, part in _parts(played):
                for key, value in part.items():
                    draw.keys[kind][key].add(value if isinstance(value, str) else "")
    return draw


def _about(played: Simulator) -> Play:
    types = [event["type"] for event in played.journal]
    results = types.count("succeeded") + types.count("failed")
    return Play(len(types), results, types.count("cut"), {*types, *_facts(played)})


def _facts(played: Simulator) -> Iterator[str]:
    """Yield the features observed in a run."""
    yield played.status
    for seen in played.observations:
        yield seen.status
        yield from (word for word in ("/compensate", "finally/") if word in seen.address)
        if seen.error is not None:
            yield seen.error["type"]
        yield f"flow {min(played.graph.body(max(played.graph.node(seen.step).body, 0)).flow, 1)}"
    yield from (f"to {one.to}" for one in played.commands if isinstance(one, Send))
    yield from (f"budget {e['choice']}" for e in played.journal
                if e["type"] == "decided" and e.get("form"))  # fmt: skip
    yield from ("lacks" for event in played.journal if "lacks" in event)
    yield "retried" if played.retries else "not retried"
    yield "triggered" if played.state.get("triggered") else "not triggered"


def _parts(played: Simulator) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the parts of the compiled form of all steps that were reached, with their types."""
    flow: Any = played.graph.flow
    pending: list[tuple[Any, Any]] = [(specs.FlowSpec, one) for one in [*flow.get("flows", ())]]
    read = ("on_error", "budget", "shared_budgets")
    pending += [(specs.FlowSpec, {key: flow[key] for key in read if key in flow})]
    reached = {seen.step for seen in played.observations}
    pending += [(specs.StepSpec, flow["steps"][step]) for step in reached]
    while pending:
        kind, part = pending.pop()
        yield kind, part
        for key in PARTS.keys() & part.keys():
            inner = part[key] if isinstance(part[key], list) else [part[key]]
            pending += [(PARTS[key], one) for one in inner]


def drawn(number: int) -> Draw:
    """Return the coverage. `test_random_flows` checks the properties of such runs."""
    with patches_everywhere() as patch:
        patch.setattr("tests.simulation.simulator.check_now", lambda _simulator: None)
        return measured(number)


@pytest.mark.endurance
def test_plays_live_and_hold_everything() -> None:
    """Otherwise the properties could hold merely because little happens in random runs."""
    draw = drawn(PLAYS)
    _check_that_they_live(draw.plays)
    _check_what_came_about(draw.plays)
    _check_keys_and_words(draw.keys)
    assert draw.moves <= ALLOWED


@pytest.mark.endurance
def test_every_move_is_made() -> None:
    """Some occur only once in hundreds of runs."""
    draw = drawn(PLAYS_FOR_EVERY_MOVE)
    _check_that_they_live(draw.plays)
    assert ALLOWED - HELD <= draw.moves <= ALLOWED


def _check_that_they_live(plays: list[Play]) -> None:
    assert median(one.events for one in plays) >= 15
    assert sum(one.results > 0 for one in plays) >= 0.8 * len(plays)
    assert sum(one.cut > 0 for one in plays) >= 0.2 * len(plays)


def _check_what_came_about(plays: list[Play]) -> None:
    often = ["succeeded", "failed", "skipped", "waiting", "uncertain", "retrying", "/compensate",
             "finally/", "flow 1", "retried", "triggered", "message", "timer", "decided", "granted",
             "lost", "asked", "measured", "Timeout", "BudgetExceeded", "TooFew", "MapFailed",
             "LoopLimit", "LimitExceeded", "cancelled", "to parent", "to other", "to all",
             "budget approve", "budget reject", "lacks"]  # fmt: skip
    times = {fact: sum(fact in one.facts for one in plays) for fact in often}
    assert {fact: n for fact, n in times.items() if n < len(plays) / 100} == {}


def _check_keys_and_words(keys: dict[Any, dict[str, set[str]]]) -> None:
    for kind in (specs.StepSpec, specs.FlowSpec, *PARTS.values()):
        hints = get_type_hints(kind, localns=_FORM)
        assert hints.keys() - keys[kind].keys() - NOT_DRAWN.get(kind, set()) == set(), kind
        for key, hint in hints.items():
            if get_origin(hint) is Literal:
                assert set(get_args(hint)) - keys[kind][key] == set(), (kind, key)


_FORM: dict[str, Any] = {"Plain": Any, "Value": list[Any], "Condition": int}
