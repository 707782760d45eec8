"""Executions are moved from a directory to Temporal and back, at every wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.temporal.store import TemporalStore
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.journal.sqlite.store import SqliteStore
from tests.command_line import flowengine
from tests.engines.temporal_server import command_line
from tests.engines.test_temporal import replay, shown, wait_until

EVERY_WAIT = """\
flowengine: 1
id: every
inputs: {order: {type: string}}
signals: {paid: {data: {type: integer}}, go: {data: {type: string}}}
flows:
  inner:
    steps: [{id: deep, approval: {title: Deep?}}]
    outputs: {said: deep}
steps:
  - {id: first, run: "head -c 200000 /dev/zero | tr '\\\\0' x"}
  - id: all
    parallel:
      - {id: sign, approval: {title: Sign?, need: 2}}
      - {id: go, wait: {signal: go}}
      - id: paid
        group:
          - {id: once, wait: {signal: paid, key: "${{ inputs.order }}"}}
          - {id: twice, wait: {signal: paid, key: "${{ inputs.order }}"}}
      - {id: pause, wait: 1h}
      - {id: sub, flow: inner}
      - {id: one, lock: {key: a, hold: true}, approval: {title: One?}}
      - {id: two, lock: {key: a, hold: true}, approval: {title: Two?}}
"""


def flow_of(folder: Path, text: str) -> Path:
    path = folder / "flow.yaml"
    path.write_text(text)
    return path


def settle(engine: Engine, addresses: set[str]) -> None:
    """Approve the open approvals at some addresses."""
    for wait in engine.result("moves").waits:
        if wait["address"] in addresses:
            engine.approve(wait["id"])


def test_waits_are_the_same_in_the_other_store(store: str, tmp_path: Path) -> None:
    flow, folder = flow_of(tmp_path, EVERY_WAIT), tmp_path / "store"
    with Engine(folder, user="user:ana", linger=0) as here, Engine(store, user="user:ben") as there:
        before = here.run(flow, {"order": "7"}, id="moves")
        settle(here, {"all/sign"})
        assert here.signal("go", "on", execution="moves", id="m1").first
        assert here.signal("paid", 5, key="7", id="m2").first
        known = shown(here, "moves"), waits(here)
        file = here.show("moves")["steps"][0]["output"]["stdout_file"]["sha256"]

        assert here.migrate("moves", to=store) == "moves"
        with pytest.raises(NotFound):
            here.show("moves")
        wait_until(lambda: there.result("moves").status == before.status)
        assert (shown(there, "moves")[1], waits(there)) == (known[0][1], known[1])
        assert not there.signal("go", "on", execution="moves", id="m1").first
        there.signal("paid", 5, key="7", id="m2")  # it is dropped
        with there.store.open_artifact(file, "moves") as content:
            assert content.read() == b"x" * 200_000
        assert [one["execution"] for one in there.executions(flow="every").items] == ["moves"]
        settle(there, {"all/sign", "all/one"})
        known = shown(there, "moves"), waits(there)

        assert there.migrate("moves", to=folder) == "moves"
        assert (shown(here, "moves")[1], waits(here)) == (known[0][1], known[1])
        assert (there.executions(flow="every").items, here.result("moves").status) == (
            [],
            "waiting",
        )
        with pytest.raises(NotFound):
            there.show("moves")
        assert not here.signal("paid", 5, key="7", id="m2").first
        assert "all/paid/twice" in {wait["address"] for wait in here.result("moves").waits}
        assert here.signal("paid", 6, key="7").execution == "moves"
        settle(here, {"all/two"})

        moved = command_line("--store", folder, "migrate", "--to", store, "--all")
        assert moved.code == 0, moved.err
        settle(there, {"all/sub/deep"})
        addresses = {wait["address"] for wait in there.result("moves").waits}
        assert addresses == {"all/pause"}
        there.cancel("moves")
    asyncio.run(replay(store, "moves"))


def waits(engine: Engine) -> list[Any]:
    return [*engine.waits(execution="moves", status="all").items]


SIGNALS = """\
flowengine: 1
id: signals
concurrency: {max: 1}
signals: {add: {data: {type: integer}}}
steps:
  - {id: first, wait: {signal: add}}
  - {id: second, wait: {signal: add}}
  - {id: third, wait: {signal: add}}
outputs: {all: ["${{ steps.first.output.data }}", "${{ steps.second.output.data }}"]}
"""


class Died(Exception):
    """Stands for the end of the process that moves an execution."""


@pytest.mark.parametrize("back", [False, True])
def test_a_move_loses_and_doubles_nothing_whenever_it_is_interrupted(
    back: bool, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, folder, id = flow_of(tmp_path, SIGNALS), str(tmp_path / "store"), f"signals{back}"
    old, new = (store, folder) if back else (folder, store)
    source, target = (TemporalStore, SqliteStore) if back else (SqliteStore, TemporalStore)

    def die(*_: object) -> None:
        raise Died

    with Engine(old, linger=0) as here, Engine(new, linger=0) as there:
        here.run(flow, id=id)
        with monkeypatch.context() as patch:
            patch.setattr(source, "give_up", die)
            with pytest.raises(Died):
                here.migrate(id, to=new)
        here.signal("add", 1, execution=id)  # it is driven here

        hold = target.hold_copy
        with monkeypatch.context() as patch:  # something happens while it is copied

            def hold_late(self: Any, copy: Any) -> None:
                hold(self, copy)
                with suppress(Conflict):
                    here.signal("add", 2, execution=id, id="late")

            patch.setattr(target, "hold_copy", hold_late)
            patch.setattr(target, "drive_copy", die)
            with pytest.raises(Died):
                here.migrate(id, to=new)
        with pytest.raises(NotFound):
            here.show(id)
        assert there.result(id).status == "waiting"
        if back:
            with pytest.raises(Conflict, match="held by process 0 on another store"):
                there.resume(id)
        assert here.migrate(id, to=new) == id
        bound = "concurrency signals:"
        claims = here.store.claims(bound), [one.execution for one in there.store.claims(bound)]
        assert claims == ([], [id])
        there.signal("add", 3, execution=id)
        assert there.resume(id).outputs == {"all": [1, 2]}
        wait_until(lambda: not there.store.claims(bound))


@pytest.mark.parametrize("back", [False, True])
def test_of_an_execution_that_ends_no_copy_remains(
    back: bool, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, folder, id = flow_of(tmp_path, SIGNALS), str(tmp_path / "store"), f"ends{back}"
    old, new = (store, folder) if back else (folder, store)
    source = TemporalStore if back else SqliteStore

    def die(*_: object) -> None:
        raise Died

    with Engine(old, linger=0) as here, Engine(new, linger=0) as there:
        here.run(flow, id=id)
        with monkeypatch.context() as patch:
            patch.setattr(source, "give_up", die)
            with pytest.raises(Died):
                here.migrate(id, to=new)
        assert [one.held for one in there.store.claims("concurrency signals:")] == [True]
        here.cancel(id)
        with pytest.raises(Conflict, match="was cancelled"):
            here.migrate(id, to=new)
        wait_until(lambda: not there.store.claims("concurrency signals:"))
        assert there.executions(flow="signals", status="waiting").items == []


LOCKED = """\
flowengine: 1
id: locked
concurrency: {max: 2, then: reject}
signals: {go: {key: "${{ execution.id }}"}}
steps:
  - id: all
    parallel:
      - {id: one, lock: {key: moved, scope: global, hold: true}, approval: {title: One?}}
      - {id: two, lock: {key: moved, scope: global, hold: true}, approval: {title: Two?}}
  - {id: go, wait: {signal: go}}
"""


def test_shared_locks_move_if_no_other_execution_has_or_wants_them(
    store: str, tmp_path: Path
) -> None:
    flow, folder = flow_of(tmp_path, LOCKED), tmp_path / "store"
    with Engine(folder, linger=0) as here, Engine(store, linger=0) as there:

        def claims(engine: Engine) -> list[tuple[str, bool]]:
            return [(one.execution, one.held) for one in engine.store.claims("global:moved")]

        both = [("holder", True), ("holder", False)]
        there.run(flow, id="blocks")
        here.run(flow, id="holder")
        with pytest.raises(Conflict, match="the lock 'moved' is held by execution blocks"):
            here.migrate("holder", to=store)
        there.cancel("blocks")
        wait_until(lambda: not claims(there))
        for _ in range(2):  # also where it was before
            here.migrate("holder", to=store)
            assert (claims(here), claims(there)) == ([], both)
            check_others_hinder(there, flow, folder)
            there.migrate("holder", to=folder)
            assert (claims(there), claims(here)) == ([], both)
            check_others_hinder(here, flow, store)
        here.migrate("holder", to=store)
        for title in ("One?", "Two?"):
            assert [wait["title"] for wait in there.result("holder").waits[:1]] == [title]
            there.approve(there.result("holder").waits[0]["id"])
        there.signal("go", key="holder")
        assert there.result("holder").status == "succeeded"
        wait_until(lambda: not claims(there))


def check_others_hinder(engine: Engine, flow: Path, other: str | Path) -> None:
    """Check that neither the holder of a lock is moved nor an execution that waits for it."""
    id = engine.run(flow).execution
    with pytest.raises(UsageError, match=f"lock 'moved', for which execution {id} waits"):
        engine.migrate("holder", to=other)
    with pytest.raises(UsageError, match="waits for the lock 'moved', which execution holder has"):
        engine.migrate(id, to=other)
    engine.cancel(id)
    wait_until(lambda: len(engine.store.claims("global:moved")) == 2)


BOX = """\
flowengine: 1
id: box
environments: {box: {kind: files}}
steps:
  - {id: a, approval: {title: Go on?}}
  - {id: b, run: ls, in: box}
"""
ENDED = "flowengine: 1\nid: ended\nsteps: [{id: a, output: 1}]\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [(BOX, "files cannot be moved"), (ENDED, "has succeeded")],
)
def test_what_cannot_be_moved_is_refused(text: str, why: str, tmp_path: Path) -> None:
    flow, folder = flow_of(tmp_path, text), tmp_path / "store"
    with Engine(folder, linger=0) as engine:
        before = engine.run(flow, id="stays")
        with pytest.raises((Conflict, UsageError), match=why):
            engine.migrate("stays", to=tmp_path / "other")
        assert engine.result("stays") == before
    refused = flowengine("--store", folder, "migrate", "--to", folder, "stays")
    assert (refused.code, "both stores are" in refused.err) == (2, True)


def test_directories_are_stores_like_others(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, SIGNALS)
    with Engine(tmp_path / "one", linger=0) as one, Engine(tmp_path / "two", linger=0) as two:
        one.run(flow, id="a")
        one.migrate("a", to=tmp_path / "two")
        one.run(flow, id="a")
        with pytest.raises(Conflict, match="there is an execution a already"):
            one.migrate("a", to=tmp_path / "two")
        assert [two.signal("add", n, execution="a").first for n in range(3)] == [True] * 3
        assert two.result("a").outputs == {"all": [0, 1]}
