# Shows D8
"""Environments of executions in Temporal: opened at one worker, kept there, and lost with it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.temporal.heartbeat import VARIABLE as HEARTBEAT
from flowengine.telemetry import recorded_spans
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_temporal import replay, runs_of, shown, wait_until

pytestmark = pytest.mark.endurance

MODULE = """\
import time
from pathlib import Path

from flowengine_envs.kinds.files import Folder


def add(box: Folder, text: str) -> list[str]:
    box.write(text, b"")
    return sorted(box.list("*"))


def hold(box: Folder, mark: str) -> list[str]:
    if not Path(mark).exists():
        Path(mark).touch()
        time.sleep(600)
    return sorted(box.list("*"))


def hold_until(box: Folder, file: str) -> None:
    box.write("held", b"")
    while not Path(file).exists():
        time.sleep(0.05)


def count(n: int) -> int:
    return n
"""


def write_flow(folder: Path, text: str) -> Path:
    (folder / "boxes.py").write_text(MODULE)
    path = folder / "flow.yaml"
    path.write_text(f"flowengine: 1\nid: boxes\n{text}")
    return path


SCOPES = """\
environments:
  box: {kind: files, approval: ask}
  early: {kind: files, eager: true}
  part: {kind: files, scope: region}
  own: {kind: files, scope: step}
  shared: {kind: files, scope: session, key: one}
steps:
  - {id: one, python: "boxes:add", environments: [box], with: {text: one}}
  - {id: sign, approval: {title: Go on?}}
  - {id: two, python: "boxes:add", environments: [box], with: {text: two}}
  - {id: early, python: "boxes:add", environments: [early], with: {text: early}}
  - id: each
    map: {over: 2, concurrency: 1}
    group:
      - {id: c, python: "boxes:add", environments: [part], with: {text: "c${{ item }}"}}
      - {id: d, python: "boxes:add", environments: [part], with: {text: "d${{ item }}"}}
  - {id: own, python: "boxes:add", environments: [own], with: {text: a}}
  - {id: shared, python: "boxes:add", environments: [shared], with: {text: a}}
outputs:
  two: ${{ steps.two.output }}
  each: ${{ steps.each.output }}
  own: ${{ steps.own.output }}
  shared: ${{ steps.shared.output }}
"""


def test_environments_of_all_scopes_are_those_of_a_folder(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, SCOPES)
    with Engine(store) as there, Engine(tmp_path / "store", durability="power") as here:
        for engine in (there, here):
            for _ in range(2):  # to open the environment, and to go on
                [wait] = engine.run(flow, id="scopes").waits
                engine.approvals.approve(wait["id"])
            assert engine.executions.result("scopes").outputs == {
                "two": ["one", "two"],
                "each": [["c0", "d0"], ["c1", "d1"]],
                "own": ["a"],
                "shared": ["a"],
            }
        assert shown(there, "scopes") == shown(here, "scopes")
        assert opened(there, "scopes") == opened(here, "scopes") != []
    asyncio.run(replay(store, "scopes"))


def opened(engine: Engine, execution: str) -> list[tuple[str, str]]:
    """Return the spans of environments: their names, and the steps that opened them."""
    spans = recorded_spans(engine, execution)
    found = [
        (one.name, str(one.attributes["flowengine.step.address"]))
        for one in spans
        if one.name.startswith("environment ")
    ]
    return sorted(found)


AGAIN = """\
environments:
  box: {kind: files, config: {path: drafts, mode: rw}}
steps:
  - {id: one, python: "boxes:add", environments: [box], with: {text: one}}
  - {id: sign, approval: {title: Go on?}}
  - {id: two, python: "boxes:add", environments: [box], with: {text: two}}
outputs: {two: "${{ steps.two.output }}"}
"""


def test_what_cannot_be_opened_again_is_tried_by_each_resume(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, AGAIN)
    drafts, away = tmp_path / "drafts", tmp_path / "away"
    drafts.mkdir()
    with Engine(store, workdir=tmp_path) as engine:
        [wait] = engine.run(flow, id="reopened").waits
        drafts.rename(away)
        stalled = engine.approvals.approve(wait["id"]).result
        assert stalled is not None
        assert (stalled.status, stalled.waits[0]["ran"]) == ("stalled", "no")
        assert engine.resume("reopened").status == "stalled"
        away.rename(drafts)
        assert engine.resume("reopened").outputs == {"two": ["one", "two"]}


LOST = """\
environments:
  box: {kind: files}
  other: {kind: files}
steps:
  - {id: a, python: "boxes:add", effect: idempotent, environments: [box], with: {text: a}}
  - {id: b, python: "boxes:add", effect: idempotent, environments: [other], with: {text: b}}
  - {id: sign, approval: {title: Go on?}}
  - {id: c, python: "boxes:add", effect: idempotent, environments: [box], with: {text: c}}
  - id: both
    parallel:
      - {id: x, python: "boxes:hold", effect: once, environments: [box], with: {mark: FOLDER/x}}
      - id: y
        python: "boxes:hold"
        effect: idempotent
        environments: [box]
        with: {mark: FOLDER/y}
        retry: {attempts: 2, delay: 10ms}
  - {id: d, python: "boxes:add", effect: idempotent, environments: [box], with: {text: d}}
  - {id: e, python: "boxes:add", effect: idempotent, environments: [other], with: {text: e}}
outputs: {c: "${{ steps.c.output }}", d: "${{ steps.d.output }}", e: "${{ steps.e.output }}"}
"""


def test_environments_are_lost_with_their_worker(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, address = write_flow(tmp_path, LOST.replace("FOLDER", str(tmp_path))), server("lost")
    short = ("--heartbeat", "3s")  # shorter ones are missed on a busy machine
    with Engine(address) as engine:
        with RunningWorker(address):
            [wait] = engine.run(flow, id="boxes").waits
        with RunningWorker(address, *short):  # it takes the place of the one that was killed
            engine.approvals.approve(wait["id"], resume=False)
            wait_until(lambda: all((tmp_path / name).exists() for name in "xy"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other host"))
        with RunningWorker(address, *short):
            [uncertain] = engine.resume("boxes").waits
            assert (uncertain["address"], uncertain["ran"]) == ("both/x", "maybe")
            decided = engine.approvals.decide(uncertain["id"], "result", value=[]).result
            assert decided is not None
            [missing] = decided.waits
            assert (missing["address"], missing["ran"]) == ("e", "no")
            assert "does not respond" in missing["error"]["message"]
            assert engine.resume("boxes").status == "stalled"
            [why] = engine.executions.why("boxes")
            assert [*why["commands"]] == ["fail", "result", "retry"]  # `resume` would not help
            decided = engine.approvals.decide(missing["id"], "retry").result
            assert decided is not None
            assert decided.outputs == {"c": ["a", "c"], "d": ["d"], "e": ["e"]}
        tries = {
            step["address"]: step["attempts"] for step in engine.executions.show("boxes")["steps"]
        }
        assert tries["both/x"] == 1
        assert tries["both/y"] >= 3


LONG = """\
environments:
  box: {kind: files}
steps:
  - id: all
    parallel:
      - {id: long, python: "boxes:hold_until", environments: [box], with: {file: FOLDER/go}}
      - {id: each, map: {over: 60}, python: "boxes:count", with: {n: "${{ item }}"}}
  - {id: then, python: "boxes:add", environments: [box], with: {text: then}}
outputs: {then: "${{ steps.then.output }}"}
"""


# Shows D7
def test_a_long_attempt_keeps_its_environment_while_its_workflow_continues(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEARTBEAT, "20s")
    flow, address = write_flow(tmp_path, LONG.replace("FOLDER", str(tmp_path))), server("lost")
    with Engine(address) as engine, RunningWorker(address) as worker:
        engine.start(flow, id="long-box")
        wait_until(lambda: asyncio.run(runs_of(address, "long-box")) > 2, 200, pause=0.5)
        (tmp_path / "go").touch()
        assert engine.resume("long-box").outputs == {"then": ["held", "then"]}
        assert worker.stop() == 0


LEFT = """\
environments:
  box: {kind: files}
steps:
  - {id: a, python: "boxes:add", effect: idempotent, environments: [box], with: {text: a}}
  - {id: pause, wait: 9s}
  - {id: b, python: "boxes:add", effect: idempotent, environments: [box], with: {text: b}}
outputs: {b: "${{ steps.b.output }}"}
"""


def test_a_worker_that_was_stopped_closes_the_environments_that_it_has_lost(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, address, states = write_flow(tmp_path, LEFT), server("left"), tmp_path / "states"
    short = ("--heartbeat", "3s")
    monkeypatch.setenv("XDG_STATE_HOME", str(states))
    with RunningWorker(address, *short) as stopped, Engine(address) as engine:
        engine.start(flow, id="left")
        wait_until(lambda: engine.executions.result("left").due is not None, pause=0.2)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other host"))
        with RunningWorker(address, *short):
            [lost] = engine.resume("left").waits
            decided = engine.approvals.decide(lost["id"], "retry").result
            assert decided is not None
            assert decided.outputs == {"b": ["b"]}
            assert any(states.rglob("entries/*.json"))  # it is still open
            os.kill(stopped.process.pid, signal.SIGCONT)
            wait_until(lambda: not any(states.rglob("entries/*.json")))
        assert stopped.stop() == 0
