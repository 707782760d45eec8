# Shows D14
"""Executions are moved from a directory to Temporal and back, at every wait."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.environments.requests import FolderWorkspaces
from flowengine.engines.temporal.store import TemporalStore
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.execution_environment.registry.archives import MOST_BYTES
from flowengine.journal.sqlite.store import SqliteStore
from tests.command_line import flowengine
from tests.engines.conftest import Temporal
from tests.engines.temporal_server import RunningWorker, StoreNamed, command_line
from tests.engines.test_temporal import replay, shown, wait_until

pytestmark = pytest.mark.endurance

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
    for wait in engine.executions.result("moves").waits:
        if wait["address"] in addresses:
            engine.approvals.approve(wait["id"])


def test_waits_are_the_same_in_the_other_store(store: str, tmp_path: Path) -> None:
    flow, folder = flow_of(tmp_path, EVERY_WAIT), tmp_path / "store"
    with Engine(folder, user="user:ana", linger=0) as here, Engine(store, user="user:ben") as there:
        before = here.run(flow, {"order": "7"}, id="moves")
        settle(here, {"all/sign"})
        assert here.signal("go", "on", execution="moves", id="m1").first
        assert here.signal("paid", 5, key="7", id="m2").first
        known = shown(here, "moves"), waits(here)
        file = here.executions.show("moves")["steps"][0]["output"]["stdout_file"]["sha256"]

        assert here.executions.move("moves", to=store) == "moves"
        with pytest.raises(NotFound):
            here.executions.show("moves")
        wait_until(lambda: there.executions.result("moves").status == before.status)
        assert (shown(there, "moves")[1], waits(there)) == (known[0][1], known[1])
        assert not there.signal("go", "on", execution="moves", id="m1").first
        there.signal("paid", 5, key="7", id="m2")  # it is dropped
        with there.store.open_artifact(file, "moves") as content:
            assert content.read() == b"x" * 200_000
        assert [one["execution"] for one in there.executions.list(flow="every").items] == ["moves"]
        settle(there, {"all/sign", "all/one"})
        known = shown(there, "moves"), waits(there)

        assert there.executions.move("moves", to=folder) == "moves"
        assert (shown(here, "moves")[1], waits(here)) == (known[0][1], known[1])
        assert (
            there.executions.list(flow="every").items,
            here.executions.result("moves").status,
        ) == ([], "waiting")
        with pytest.raises(NotFound):
            there.executions.show("moves")
        assert not here.signal("paid", 5, key="7", id="m2").first
        assert "all/paid/twice" in {
            wait["address"] for wait in here.executions.result("moves").waits
        }
        assert here.signal("paid", 6, key="7").execution == "moves"
        settle(here, {"all/two"})

        moved = command_line("--store", folder, "move", "--to", store, "--all")
        assert moved.code == 0, moved.err
        settle(there, {"all/sub/deep"})
        addresses = {wait["address"] for wait in there.executions.result("moves").waits}
        assert addresses == {"all/pause"}
        there.executions.cancel("moves")
    asyncio.run(replay(store, "moves"))


def waits(engine: Engine) -> list[Any]:
    return [*engine.approvals.list(execution="moves", status="all").items]


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
                here.executions.move(id, to=new)
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
                here.executions.move(id, to=new)
        with pytest.raises(NotFound):
            here.executions.show(id)
        assert there.executions.result(id).status == "waiting"
        if back:
            with pytest.raises(Conflict, match="held by process 0 on another store"):
                there.resume(id)
        # Lists of the other store do not show that the move is not finished.
        done = command_line("--store", old, "move", "--all", "--to", new)
        assert (done.code, f"{id} is in {new} now" in done.err.splitlines()) == (0, True)
        wait_until(lambda: not here.executions.interrupted_moves(to=new))
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
                here.executions.move(id, to=new)
        assert [one.held for one in there.store.claims("concurrency signals:")] == [True]
        here.executions.cancel(id)
        with pytest.raises(Conflict, match="was cancelled"):
            here.executions.move(id, to=new)
        wait_until(lambda: not there.store.claims("concurrency signals:"))
        assert there.executions.list(flow="signals", status="waiting").items == []


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
            here.executions.move("holder", to=store)
        there.executions.cancel("blocks")
        wait_until(lambda: not claims(there))
        for _ in range(2):  # also where it was before
            here.executions.move("holder", to=store)
            assert (claims(here), claims(there)) == ([], both)
            check_others_hinder(there, flow, folder)
            there.executions.move("holder", to=folder)
            assert (claims(there), claims(here)) == ([], both)
            check_others_hinder(here, flow, store)
        here.executions.move("holder", to=store)
        for title in ("One?", "Two?"):
            assert [wait["title"] for wait in there.executions.result("holder").waits[:1]] == [
                title
            ]
            there.approvals.approve(there.executions.result("holder").waits[0]["id"])
        there.signal("go", key="holder")
        assert there.executions.result("holder").status == "succeeded"
        wait_until(lambda: not claims(there))


def check_others_hinder(engine: Engine, flow: Path, other: str | Path) -> None:
    """Check that neither the holder of a lock is moved nor an execution that waits for it."""
    id = engine.run(flow).execution
    with pytest.raises(UsageError, match=f"lock 'moved', for which execution {id} waits"):
        engine.executions.move("holder", to=other)
    with pytest.raises(UsageError, match="waits for the lock 'moved', which execution holder has"):
        engine.executions.move(id, to=other)
    engine.executions.cancel(id)
    wait_until(lambda: len(engine.store.claims("global:moved")) == 2)


BOXES = """\
flowengine: 1
id: boxes
environments: {box: {kind: files}, part: {kind: files, scope: region}}
steps:
  - {id: a, python: "boxes:add", environments: [box], with: {name: a}}
  - id: each
    map: {over: 2}
    group:
      - {id: b, python: "boxes:add", environments: [part], with: {name: "b${{ item }}"}}
      - {id: sign, approval: {title: "Sign ${{ item }}?"}}
      - {id: c, python: "boxes:add", environments: [part], with: {name: "c${{ item }}"}}
  - {id: d, python: "boxes:add", environments: [box], with: {name: d}}
outputs: {box: "${{ steps.d.output }}", each: "${{ steps.each.output }}"}
"""
ADD = """\
from flowengine_envs.kinds.files import Folder

def add(box: Folder, name: str) -> list[str]:
    box.write(f"{name}/file", name.encode())
    return sorted(box.read(path).decode() for path in box.list("**/file"))
"""
ALL_FILES = {"box": ["a", "d"], "each": [["b0", "c0"], ["b1", "c1"]]}


def boxes(folder: Path) -> Path:
    (folder / "boxes.py").write_text(ADD)
    return flow_of(folder, BOXES)


def sign(engine: Engine, id: str) -> None:
    """Approve the first open wait of an execution, once it can be found."""
    [wait, *_] = engine.executions.result(id).waits

    def is_signed() -> bool:
        with suppress(NotFound):
            engine.approvals.approve(wait["id"])
            return True
        return False

    wait_until(is_signed)


def workspaces(id: str) -> list[str]:
    """Return the environments of an execution that have files on this host, anywhere."""
    state = Path(os.environ["XDG_STATE_HOME"])
    owners = [json.loads(path.read_text()) for path in state.rglob("workspaces/*/*/owner.json")]
    return sorted(one["owner_id"] for one in owners if one["owner_id"].partition("@")[0] == id)


def test_files_of_environments_move_too(store: str, tmp_path: Path) -> None:
    flow, folder = boxes(tmp_path), tmp_path / "store"
    with Engine(folder, linger=0) as here, Engine(store, linger=0) as there:
        here.run(flow, id="passed")
        before = workspaces("passed")
        assert len(before) == 3
        here.executions.move("passed", to=store)
        assert workspaces("passed") == []
        there.executions.move("passed", to=folder)  # no worker has restored them
        assert workspaces("passed") == before
        here.executions.move("passed", to=store)
        for _ in range(2):
            sign(there, "passed")
        assert there.executions.result("passed").outputs == ALL_FILES
        wait_until(lambda: workspaces("passed") == [])

        here.run(flow, id="used")
        here.executions.move("used", to=store)
        sign(there, "used")  # a worker has them, and one of the regions has ended
        assert len(workspaces("used")) == 2
        there.executions.move("used", to=folder)
        sign(here, "used")
        assert here.executions.result("used").outputs == ALL_FILES
        assert workspaces("used") == []
    asyncio.run(replay(store, "passed"))


def test_moved_files_are_never_missing_in_silence(
    server: StoreNamed, temporal: Temporal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are restored by the first worker that can, and lost with it."""
    flow, address = boxes(tmp_path), server("lost")
    archives, away = Path(temporal.objects, "workspace"), Path(temporal.objects, "away")
    with Engine(tmp_path / "store", linger=0) as here, Engine(address, linger=0) as there:
        here.run(flow, id="moved")
        here.executions.move("moved", to=address)
        archives.rename(away)
        with RunningWorker(address, "--heartbeat", "3s"):
            sign(there, "moved")
            [missing] = [
                one for one in there.executions.result("moved").waits if one["kind"] == "question"
            ]
            assert (missing["ran"], missing["error"]["type"]) == ("no", "EnvironmentUnavailable")
            away.rename(archives)
            there.resume("moved")
            assert [one["kind"] for one in there.executions.result("moved").waits] == ["approval"]
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other host"))
        with RunningWorker(address, "--heartbeat", "3s"):
            with pytest.raises(Conflict, match="the worker that has its environments"):
                there.executions.move("moved", to=tmp_path / "store")
            sign(there, "moved")
            [lost] = there.executions.result("moved").waits
            assert (lost["ran"], lost["error"]["type"]) == ("no", "EnvironmentLost")
            there.approvals.decide(lost["id"], "retry")
            while (found := there.executions.result("moved")).status == "stalled":
                there.approvals.decide(found.waits[0]["id"], "retry")
            assert found.outputs is not None
            assert found.outputs["box"] == ["d"]


POINTS = [
    (SqliteStore, "copy_execution"),
    (FolderWorkspaces, "pack"),
    (SqliteStore, "hold_copy"),
    (FolderWorkspaces, "put"),
    (SqliteStore, "give_up"),
    (FolderWorkspaces, "remove"),
    (SqliteStore, "drive_copy"),
]
"""What a move does, in this order."""


@pytest.mark.parametrize("goes_on", [False, True])
def test_files_are_there_whenever_a_move_is_interrupted(
    goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each part of it. The execution goes on meanwhile, if it is in its store."""
    flow, one, two = boxes(tmp_path), tmp_path / "one", tmp_path / "two"
    with Engine(one, linger=0) as here, Engine(two, linger=0) as there:
        for number, (owner, name) in enumerate(POINTS):
            for late in (False, True):
                id = f"e{number}{late}{goes_on}"
                here.run(flow, id=id)
                part = getattr(owner, name)

                def die(*given: Any, part: Any = part, late: bool = late) -> None:
                    if late:
                        part(*given)
                    raise Died

                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, die)
                    with pytest.raises(Died):
                        here.executions.move(id, to=two)
                is_here = here.executions.list(status="waiting").items
                assert bool(is_here) == (number < 4 or (name == "give_up" and not late)), id
                if is_here and goes_on:
                    sign(here, id)
                if (name, late) != ("drive_copy", True):  # with which the move ends
                    assert here.executions.move(id, to=two) == id
                for _ in range(1 if is_here and goes_on else 2):
                    sign(there, id)
                assert there.executions.result(id).outputs == ALL_FILES, id
                assert here.executions.list(status="waiting").items == []


def test_files_of_an_open_environment_stay(tmp_path: Path) -> None:
    """Its process can change them at any time."""
    flow = boxes(tmp_path)
    kept = BOXES.replace("{kind: files}", "{kind: files, on_wait: keep}", 1)
    flow.write_text(kept)
    with Engine(tmp_path / "one", linger=0) as engine:
        engine.run(flow, id="kept")
        with pytest.raises(Conflict, match=r"an environment of execution kept is open in process"):
            engine.executions.move("kept", to=tmp_path / "two")
        for _ in range(2):
            sign(engine, "kept")
        assert engine.executions.result("kept").outputs == ALL_FILES


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda box: (box / "link").symlink_to("/etc/passwd"), "link to '/etc/passwd'"),
        (lambda box: (box / "a" / "link").symlink_to("../../x"), r"link to '../../x'"),
        (lambda box: os.mkfifo(box / "pipe"), "a device or a pipe"),
        (lambda box: os.truncate((box / "a" / "file"), MOST_BYTES + 1), "more than"),
    ],
)
def test_what_files_cannot_be_moved_is_said_and_nothing_is_lost(
    make: Callable[[Path], object], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, state = boxes(tmp_path), tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    with Engine(tmp_path / "one", linger=0) as engine:
        before = engine.run(flow, id="whole")
        [box] = state.rglob("workspaces/execution/*/env_*/a/file")
        make(box.parent.parent)
        with pytest.raises(UsageError, match=why):
            engine.executions.move("whole", to=tmp_path / "two")
        assert engine.executions.result("whole") == before


ENDED = "flowengine: 1\nid: ended\nsteps: [{id: a, output: 1}]\n"


@pytest.mark.parametrize(("text", "why"), [(ENDED, "has succeeded")])
def test_what_cannot_be_moved_is_refused(text: str, why: str, tmp_path: Path) -> None:
    flow, folder = flow_of(tmp_path, text), tmp_path / "store"
    with Engine(folder, linger=0) as engine:
        before = engine.run(flow, id="stays")
        with pytest.raises((Conflict, UsageError), match=why):
            engine.executions.move("stays", to=tmp_path / "other")
        assert engine.executions.result("stays") == before
    refused = flowengine("--store", folder, "move", "--to", folder, "stays")
    assert (refused.code, "both stores are" in refused.err) == (2, True)
