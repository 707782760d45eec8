"""`retry` after limits and invalid values: timeouts, minimums, budgets, reducers, numbers.

Failed steps start again and succeeded ones are kept, or the error names a command that works.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.executions.linked_flows import read, state_at
from flowengine.engines.results import ExecutionResult
from tests.engines import world
from tests.engines.test_reducers import forget_modules
from tests.engines.world import Clock

MINUTE = 60_000
ITEMS = """
steps:
  - id: m
    map: {over: 5, concurrency: CONCURRENCY, on_item_error: HOW}
    group:
      - {id: pay, python: "effects:act", effect: once, with: {value: "${{ item }}"}}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ item }}"}}
      - {id: book, python: "effects:act", effect: once, with: {value: "${{ item }}"}}
    output: "${{ steps.book.output }}"
outputs: {m: "${{ steps.m.output }}"}
"""


def calls(folder: Path) -> list[str]:
    return [address for address, _, _ in world.effects(folder)]


def refuse(folder: Path, *items: int) -> None:
    """Make `check` reject exactly these items from now on."""
    (folder / "refused").write_text(" ".join(map(str, items)))


def settled(engine: Engine, folder: Path, result: ExecutionResult) -> ExecutionResult:
    """Answer questions about stopped attempts according to their actual effects."""
    while result.waits:
        world.answer(engine, result.waits[0], folder)
        result = engine.resume("it")
    return result


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    place = tmp_path / "store"
    with Engine(place, durability="process", clock=clock, linger=0, user="user:me") as engine:
        yield engine
        check_replay(engine)


def check_replay(engine: Engine) -> None:
    """Check that the journal alone leads to the current state."""
    host = engine._host
    found = host.stored("it", 0)
    journal = read(engine.store, "it")
    assert state_at(host.flows, found.linked.hash, journal, len(journal))[1] == found.state
    assert engine.show("it")["status"] == found.state["status"]


def error_of(result: ExecutionResult) -> str:
    assert result.status == "failed"
    assert result.error is not None
    return str(result.error["type"])


PAY = '{id: pay, python: "effects:act", effect: once}'
SLOW = "{id: paid, wait: {signal: paid}}"
TIMED = {
    "group": f"  - {{id: g, timeout: 1m, group: [{PAY}, {SLOW}]}}",
    "group with a deadline": f"  - {{id: g, deadline: 1m, group: [{PAY}, {SLOW}]}}",
    "subflow": "  - {id: g, timeout: 1m, flow: part}",
    "map with a deadline": f"  - {{id: g, deadline: 1m, map: {{over: 2}}, group: [{PAY}, {SLOW}]}}",
    "items with a timeout": f"  - {{id: g, timeout: 1m, map: {{over: 2}}, group: [{PAY}, {SLOW}]}}",
    "loop with a deadline": "  - {id: g, deadline: 1m, "
    'loop: {until: "${{ round.number == 1 }}", max: 2}, '
    f"group: [{PAY}, {SLOW}]}}",
    "wait with a deadline": f"  - {PAY}\n  - {{id: paid, deadline: 1m, wait: {{signal: paid}}}}",
    "wait in a parallel": f"  - {{id: g, timeout: 1m, parallel: [{PAY}, {SLOW}]}}",
    "flow": f"  - {PAY}\n  - {SLOW}",
}
HEAD = """
signals: {paid: {}}
flows: {part: {steps: [PAY, SLOW]}}
""".replace("PAY", PAY).replace("SLOW", SLOW)


@pytest.mark.parametrize("way", TIMED)
def test_what_ran_out_of_time_begins_anew_with_its_time(
    engine: Engine, clock: Clock, tmp_path: Path, way: str
) -> None:
    limit = "limits: {duration: 1m}\n" if way == "flow" else ""
    engine.run(world.make(tmp_path, f"{HEAD}{limit}steps:\n{TIMED[way]}\n"), id="it")
    clock.time += MINUTE
    assert error_of(engine.resume("it")) in ("Timeout", "Deadline", "LimitExceeded", "MapFailed")
    done = calls(tmp_path)
    clock.time += 60 * MINUTE
    again = engine.retry("it")
    assert again.status == "waiting", again.error
    clock.time += MINUTE - 1000
    assert engine.resume("it").status == "waiting"
    for _ in again.waits:
        engine.signal("paid", execution="it")
    assert engine.result("it").status == "succeeded"
    assert calls(tmp_path) == done
    assert len(done) == (2 if "map" in way or "items" in way else 1)


@pytest.mark.parametrize("at", ["paid", "beside"])
def test_a_fork_has_the_time_of_a_whole_execution_and_steps_beside_what_they_had_left(
    engine: Engine, clock: Clock, tmp_path: Path, at: str
) -> None:
    flow = """
signals: {paid: {}, more: {}}
limits: {duration: 1m}
on_error: compensate
steps:
  - {id: pay, python: "effects:act", compensate: {python: "effects:act"}, next: {all: [paid, beside]}}
  - {id: beside, timeout: 60s, wait: {signal: more}, next: end}
  - {id: paid, timeout: 60s, wait: {signal: paid}, next: end}
"""  # noqa: E501
    engine.run(world.make(tmp_path, flow), id="it")
    clock.time += MINUTE
    assert error_of(engine.resume("it")) == "LimitExceeded"
    assert engine.show("it")["command"] == "flowengine fork it --from-step pay"
    clock.time += 60 * MINUTE
    assert engine.fork("it", from_step=at, id="new").status == "waiting"
    clock.time += MINUTE - 1000
    assert engine.resume("new").status == "waiting"
    engine.signal("paid", execution="new")
    engine.signal("more", execution="new")
    assert engine.result("new").status == "succeeded"


TOO_FEW = {
    "join": """
  - {id: s, next: {all: [a, b]}}
  - {id: a, python: "effects:act", effect: once, next: j}
  - {id: b, python: "effects:fail_until_file", with: {item: 1}, next: j, on_error: [{next: end}]}
  - {id: j, join: {need: 2}, python: "effects:act", effect: once}
""",
    "map that goes on": """
  - id: m
    map: {over: 4, on_item_error: continue, max_failures: 1}
    group:
      - {id: pay, python: "effects:act", effect: once}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ index }}"}}
  - {id: j, python: "effects:act", effect: once}
""",
    "map that waits": """
  - id: m
    map: {over: 4, on_item_error: wait, max_failures: 1}
    group:
      - {id: pay, python: "effects:act", effect: once}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ index }}"}}
  - {id: j, python: "effects:act", effect: once}
""",
    "map that needs": """
  - id: m
    map: {over: 4, concurrency: 4, on_item_error: continue, join: {need: 3}}
    group:
      - {id: pay, python: "effects:act", effect: once}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ index }}"}}
  - {id: j, python: "effects:act", effect: once}
""",
}


@pytest.mark.parametrize("way", TOO_FEW)
def test_too_few_are_enough_when_what_failed_succeeds(
    engine: Engine, tmp_path: Path, way: str
) -> None:
    refuse(tmp_path, 1, 2)
    assert engine.run(world.make(tmp_path, f"steps:{TOO_FEW[way]}"), id="it").status == "failed"
    done = calls(tmp_path)
    again = engine.retry("it")
    assert (again.status, calls(tmp_path)) == ("failed", done), "nothing is better yet"
    refuse(tmp_path)
    again = settled(engine, tmp_path, engine.retry("it", step="b" if way == "join" else None))
    assert (again.status, again.error) == ("succeeded", None)
    assert calls(tmp_path)[: len(done)] == done
    assert len(set(calls(tmp_path))) == len(calls(tmp_path))


BUDGET = """
budget: {tool_calls: LIMIT}
steps:
  - {id: one, python: "effects:act", effect: once}
  - {id: two, python: "effects:act", effect: once}
  - {id: three, python: "effects:act", effect: once}
"""


def test_what_a_budget_refused_begins_when_the_budget_is_larger(
    engine: Engine, tmp_path: Path
) -> None:
    engine.run(world.make(tmp_path, BUDGET.replace("LIMIT", "2")), id="it")
    assert error_of(engine.retry("it")) == "BudgetExceeded"
    assert calls(tmp_path) == ["one", "two"]
    larger = world.make(tmp_path, BUDGET.replace("LIMIT", "3"))
    assert engine.retry("it", flow=larger).status == "succeeded"
    assert calls(tmp_path) == ["one", "two", "three"]


def test_a_budget_of_time_is_not_used_up_by_standing_still(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    text = """
budget: {wall_time: 1h}
steps:
  - {id: one, python: "effects:act", effect: once}
  - {id: two, python: "effects:fail_until", with: {attempt: 2}}
"""
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    clock.time += 120 * MINUTE
    assert engine.retry("it").status == "succeeded"
    assert calls(tmp_path) == ["one", "two"]


REDUCED = """
state:
  log: {type: array, items: {type: integer}, default: [], reducer: append}
  sum: {type: integer, default: 0, reducer: {python: "ledger:book"}}
steps:
  - {id: one, python: "effects:act", effect: once, set: {log: 1, sum: 1}}
  - id: m
    map: {over: 3, concurrency: 1, on_item_error: wait}
    group:
      - {id: pay, python: "effects:act", effect: once, set: {log: "${{ index + 10 }}"}}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ index }}"}, set: {log: "${{ index + 20 }}"}}
  - {id: two, python: "effects:act", effect: once, set: {sum: "${{ output + 1 }}"}}
outputs: {log: "${{ state.log }}", sum: "${{ state.sum }}"}
"""  # noqa: E501
BOOK = "def book(old, new): return old + new\n"
BROKEN = "def book(old, new):\n    assert new < 2, 'too much'\n    return old + new\n"


def test_what_was_written_counts_once(engine: Engine, tmp_path: Path) -> None:
    refuse(tmp_path, 1)
    (tmp_path / "ledger.py").write_text(BOOK)
    assert error_of(engine.run(world.make(tmp_path, REDUCED), id="it")) == "MapFailed"
    refuse(tmp_path)
    assert engine.retry("it").outputs == {"log": [1, 10, 20, 11, 12, 22, 21], "sum": 3}
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 5


def test_a_reducer_that_failed_is_called_again_and_its_step_is_not_run(
    engine: Engine, tmp_path: Path
) -> None:
    refuse(tmp_path)
    (tmp_path / "ledger.py").write_text(BROKEN)
    engine.run(world.make(tmp_path, REDUCED), id="it")
    done = calls(tmp_path)
    assert done[-1] == "two"
    assert engine.retry("it").status == "failed"
    (tmp_path / "ledger.py").write_text(BOOK)
    forget_modules()
    again = engine.retry("it")
    assert (again.status, again.error) == ("succeeded", None)
    assert (again.outputs or {})["sum"] == 3
    assert calls(tmp_path) == done


NEEDS = {
    "join": """
  - {id: s, next: {all: [a, b]}}
  - {id: a, python: "effects:act", effect: once, next: j}
  - {id: b, python: "effects:act", effect: once, next: j}
  - {id: j, join: {need: "${{ [2][state.n] }}", late: cancel}, python: "effects:act", effect: once}
""",
    "join in a group": """
  - id: g
    loop: {until: "${{ true }}", max: 1}
    group:
      - {id: s, next: {all: [a, b]}}
      - {id: a, python: "effects:act", effect: once, next: j}
      - {id: b, python: "effects:act", effect: once, next: j}
      - {id: j, join: {need: "${{ [2][state.n] }}"}, python: "effects:act", effect: once}
""",
    "map": """
  - id: m
    map: {over: 2, join: {need: "${{ [1][state.n] }}"}}
    python: "effects:act"
    effect: once
""",
    "max_failures": """
  - {id: first, python: "effects:act", effect: once}
  - id: m
    map: {over: 2, on_item_error: continue, max_failures: "${{ [1][state.n] }}"}
    python: "effects:act"
    effect: once
""",
    "concurrency": """
  - {id: first, python: "effects:act", effect: once}
  - {id: m, map: {over: 2, concurrency: "${{ [1][state.n] }}"}, python: "effects:act", effect: once}
""",
    "timeout": """
  - {id: first, python: "effects:act", effect: once}
  - {id: m, timeout: "${{ ['1h'][state.n] }}", python: "effects:act", effect: once}
""",
    "loop": """
  - {id: first, python: "effects:act", effect: once}
  - {id: m, loop: {until: "${{ true }}", max: "${{ [1][state.n] }}"}, python: "effects:act", effect: once}
""",  # noqa: E501
}


@pytest.mark.parametrize("way", NEEDS)
def test_a_number_without_a_value_is_computed_again_by_a_mended_flow(
    engine: Engine, tmp_path: Path, way: str
) -> None:
    text = f"state: {{n: {{type: integer, default: 1}}}}\nsteps:{NEEDS[way]}"
    first = engine.run(world.make(tmp_path, text), id="it")
    assert first.status == "failed"
    done = calls(tmp_path)
    assert engine.retry("it").error == first.error
    assert calls(tmp_path) == done
    mended = world.make(tmp_path, text.replace("[state.n]", "[state.n - 1]"))
    again = settled(engine, tmp_path, engine.retry("it", flow=mended))
    assert (again.status, again.error) == ("succeeded", None)
    assert calls(tmp_path)[: len(done)] == done
    assert len(set(calls(tmp_path))) == len(calls(tmp_path))


def test_items_that_failed_before_a_retry_with_a_file_are_retried_after_it(
    engine: Engine, tmp_path: Path
) -> None:
    """Item 3 failed with the first version of the flow, and item 1 fails with the corrected one."""
    text = ITEMS.replace("HOW", "wait").replace("CONCURRENCY", "2")
    refuse(tmp_path, 1, 3)
    engine.run(world.make(tmp_path, text), id="it")
    refuse(tmp_path, 3)
    text = text.replace(
        '{value: "${{ item }}"}}\n    output', '{value: "${{ item + 10 }}"}}\n    output'
    )
    again = engine.retry("it", flow=world.make(tmp_path, text))
    assert again.error is not None
    assert [one["key"] for one in again.error["data"]["failed"]] == ["3"]
    refuse(tmp_path)
    again = engine.retry("it")
    assert (again.status, again.outputs) == ("succeeded", {"m": [1, 12, 3, 14, 5]})
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 10


def test_one_item_after_a_retry_with_a_file(engine: Engine, tmp_path: Path) -> None:
    text = ITEMS.replace("HOW", "wait").replace("CONCURRENCY", "2")
    refuse(tmp_path, 1, 3)
    engine.run(world.make(tmp_path, text), id="it")
    text = text.replace("outputs: {m:", "outputs: {all:")
    assert engine.retry("it", step="m[1]", flow=world.make(tmp_path, text)).status == "failed"
    refuse(tmp_path)
    again = engine.retry("it", step="m[3]")
    assert again.error is not None
    assert [one["key"] for one in again.error["data"]["failed"]] == ["1"]
    assert engine.retry("it").outputs == {"all": [1, 2, 3, 4, 5]}
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 10
