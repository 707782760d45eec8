# Shows F34
"""Append-only lists are stored once, next to the snapshots, and restored unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.executions import execution as executions
from flowengine.engines.executions.linked_flows import read
from flowengine.engines.snapshots import state_at
from flowengine.errors import StoreError
from flowengine.journal.encoding import TextPosition, pack, pack_placed
from flowengine.journal.records import ListPart
from flowengine.journal.sqlite.rows import list_sum
from tests.engines import world
from tests.replacing import Limits

MODULE = '''
def say(number: int) -> dict:
    """Return a message with a long text, a short one and other things."""
    text = f"{number} é " * 60
    return {"text": text, "short": f"{number}", "parts": [{"text": text + "!"}, None, 1.5, True]}
'''
FLOW = """
flowengine: 1
id: f
inputs: {rounds: {type: integer}}
state:
  log: {type: array, default: [], reducer: append}
  none: {type: array, default: [], reducer: append}
steps:
  - id: grow
    python: say:say
    effect: pure
    with: {number: "${{ round.number }}"}
    loop: {until: "${{ round.number >= inputs.rounds }}", max: 1000}
    set: {log: "${{ [output, {'made': 'here ' + output.short}] }}"}
  - {id: inside, flow: inner, with: {rounds: "${{ inputs.rounds }}"}}
  - {id: sure, approval: Sure?, set: {log: "${{ output.choice }}"}}
outputs: {size: "${{ size(state.log) }}", inner: "${{ steps.inside.output.size }}"}
flows:
  inner:
    inputs: {rounds: {type: integer}}
    state: {log: {type: array, default: [], reducer: append}}
    steps:
      - id: more
        python: say:say
        effect: pure
        with: {number: "${{ 1000 + round.number }}"}
        loop: {until: "${{ round.number >= inputs.rounds }}", max: 1000}
        set: {log: "${{ output }}"}
      - {id: ask, approval: More?}
    outputs: {size: "${{ size(state.log) }}"}
"""


@pytest.fixture
def engine(folder: Path, limits: Limits) -> Iterator[Engine]:
    """An engine that takes frequent snapshots, so that lists are stored in many parts."""
    limits(executions, SMALLEST_TAIL=4000)
    Path("say.py").write_text(MODULE)
    Path("f.yaml").write_text(FLOW)
    with Engine("store") as engine:
        yield engine


def wait_of(engine: Engine, id: str) -> str:
    (wait,) = engine.approvals.list(execution=id).items
    return str(wait["id"])


def expect_same_state(engine: Engine, id: str) -> Any:
    """Check that the snapshot and the whole journal lead to the same state."""
    found = world.host_of(engine).stored(id, 0)
    journal = read(engine.store, id)
    _, whole = state_at(world.host_of(engine).flows, found.linked.hash, journal, len(journal))
    assert found.state == whole
    assert pack(found.state) == pack(whole)
    return found.state


def test_a_state_is_the_same_from_its_snapshot_and_from_the_journal(engine: Engine) -> None:
    id = engine.run("f.yaml", {"rounds": 40}).execution
    loaded = engine.store.load(id)
    assert len([part for part in loaded.lists if part.name == "log"]) > 3
    assert len({part.name for part in loaded.lists}) == 2
    assert expect_same_state(engine, id)["vars"]["log"][0][-1] == {"made": "here 40"}

    engine.approvals.approve(wait_of(engine, id))

    expect_same_state(engine, id)
    result = engine.approvals.approve(wait_of(engine, id)).result
    assert result is not None
    assert result.outputs == {"size": 81, "inner": 40}
    expect_same_state(engine, id)


def test_a_fork_has_lists_of_its_own(engine: Engine) -> None:
    id = engine.run("f.yaml", {"rounds": 30}).execution

    fork = engine.executions.fork(id, from_step="inside/ask").execution

    assert engine.store.load(fork).lists
    expect_same_state(engine, fork)
    engine.approvals.approve(wait_of(engine, fork))
    expect_same_state(engine, fork)
    expect_same_state(engine, id)


def test_who_goes_back_writes_lists_anew(engine: Engine) -> None:
    text = FLOW.replace("sure, approval: Sure?,", "sure, call: no, on_error: fail,")
    Path("f.yaml").write_text(
        text.replace("output.choice", "output").replace(
            "steps:\n  - id: grow", 'tools: {no: {python: "no:no"}}\nsteps:\n  - id: grow', 1
        )
    )
    Path("no.py").write_text("def no() -> str:\n    raise ValueError('no')\n")
    id = engine.run("f.yaml", {"rounds": 30}).execution
    engine.approvals.approve(wait_of(engine, id))
    assert engine.executions.result(id).status == "failed"

    engine.executions.retry(id)

    expect_same_state(engine, id)


def test_a_list_that_is_set_from_outside_is_written_anew(engine: Engine) -> None:
    id = engine.run("f.yaml", {"rounds": 30}).execution
    engine.approvals.approve(wait_of(engine, id))

    fork = engine.executions.fork(id, from_step="sure", set={"log": ["one", "x" * 5000]}).execution

    assert expect_same_state(engine, fork)["vars"]["log"][0] == ["one", "x" * 5000]


WRONG: dict[str, Any] = {
    "no list": {},
    "too few": [],
    "an event that is not there": [TextPosition(10_000, 0, 3)],
    "a place outside": [TextPosition(2, 10**9, 3)],
    "a negative place": [TextPosition(2, -3, 3)],
    "half a letter": [TextPosition(2, 0, 1)],
}


@pytest.mark.parametrize("what", WRONG)
def test_damage_is_named(engine: Engine, what: str) -> None:
    id = engine.run("f.yaml", {"rounds": 30}).execution
    *_, last = (part for part in engine.store.load(id).lists if part.name == "log")
    wrong = WRONG[what]
    if isinstance(wrong, list):
        texts = [str(number) * 200 for number, _ in enumerate(wrong)]
        places = dict(zip(texts, wrong, strict=True))
        part = ListPart("log", last.first, pack_placed(texts, lambda: places))
    else:
        part = ListPart("log", last.first, pack(wrong))
    with closing(sqlite3.connect("store/flowengine.db")) as database, database:
        database.execute(
            "UPDATE lists SET items = ?, sum = ? WHERE name = 'log' AND first = ?",
            (part.items, list_sum(part), part.first),
        )

    with pytest.raises(StoreError, match=id):
        world.host_of(engine).stored(id, 0)
