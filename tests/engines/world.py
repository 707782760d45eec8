"""Folders for the flows of these tests: a flow, its module, and a record of its effects."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.results import ExecutionResult, WaitInfo

EFFECTS = Path(__file__).with_name("effects.py")


class Clock:
    """A clock that moves only when a test sets it.

    Args:
        time: Milliseconds since 1970.
    """

    def __init__(self, time: int = 1_800_000_000_000) -> None:
        self.time = time

    def now(self) -> int:
        return self.time


class Outcome(NamedTuple):
    """The outcome of an execution, with everything that must not depend on crashes."""

    status: str
    outputs: Any
    error: str | None
    steps: list[tuple[str, str, str | None]]
    """(address, status, outcome) of each activation, by address."""


def make(folder: Path, text: str) -> Path:
    """Write a flow file and its module into a folder, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(EFFECTS, folder / "effects.py")
    file = folder / "flow.yaml"
    file.write_text(f"flowengine: 1\nid: flow\n{text}")
    return file


def effects(folder: Path) -> list[tuple[str, str, Any]]:
    """Return (address, key, result) of each effect, in order."""
    file = folder / "effects.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    found = [line.split(" ", 2) for line in lines]
    return [(address, key, json.loads(result)) for address, key, result in found]


def until(holds: Callable[[], object], *, pause: float = 0.01, bound: float = 300) -> None:
    """Wait for a condition that another process fulfills, with a pause (s) between looks."""
    end = time.monotonic() + bound
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(pause)


class Read(NamedTuple):
    """A part of a journal that an engine has read from its store."""

    id: str
    since: int
    events: int
    """Their number."""


def note_reads(engine: Engine, patch: pytest.MonkeyPatch) -> list[Read]:
    """Return a list to which each part of a journal that the engine reads from now on is added."""
    reads: list[Read] = []
    events = type(engine.store).events

    def noted(store: Any, id: str, since: int = 0, limit: int | None = None) -> Any:
        found = events(store, id, since, limit)
        if store is engine.store:
            reads.append(Read(id, since, len(found)))
        return found

    patch.setattr(type(engine.store), "events", noted)
    return reads


def host_of(engine: Engine) -> Any:
    """Return what an engine drives executions with: their states, leases, flows and clock."""
    return engine._host  # what other processes hold and know is shown by no method of an engine


def cut_off(engine: Engine, id: str) -> None:
    """Begin an execution as a process does that dies while its first step runs.

    An engine in this process would end the step before it closes.
    """
    found = engine._driving.loaded(id)  # driven without running a step
    found.apply_queue()
    host = host_of(engine)
    assert host.journals.commit([found.take(release=True)]) == [None]
    host.keeper.released(id)


def hold(engine: Engine, id: str) -> int:
    """Hold an execution as a process does that drives it. Return the epoch of its lease."""
    return int(host_of(engine).keeper.acquire(id))


def answer(engine: Engine, wait: WaitInfo, folder: Path) -> None:
    """Answer a wait in a deterministic way."""
    if wait["kind"] == "question":
        done = [result for address, _, result in effects(folder) if address == wait["address"]]
        if done:
            engine.approvals.decide(wait["id"], "result", value=done[-1], resume=False)
        else:
            engine.approvals.decide(wait["id"], "retry", resume=False)
    elif wait["kind"] in ("approval", "ask"):
        edits = {"amount": 7} if wait.get("edit") else {}
        asked = wait.get("form", {}).get("properties", {})
        form = {"why": "fine"} if "why" in asked else {}
        engine.approvals.approve(wait["id"], edit=edits, form=form, resume=False)
    elif wait["kind"] == "signal":
        name = wait["signals"][0]["signal"]
        message = f"{name} at {wait['address']}"
        engine.signal(name, {"n": 5}, execution=wait["execution"], id=message, resume=False)


def finish(engine: Engine, file: Path, id: str, flow: LoadedFlow | None = None) -> ExecutionResult:
    """Run an execution to its end, answering all its waits."""
    result = engine.run(flow or file, id=id)
    while not result.ended:
        for wait in result.waits:
            answer(engine, wait, file.parent)
        result = engine.resume(id)
    return result


def outcome(engine: Engine, id: str) -> Outcome:
    """Return how an execution ended."""
    shown = engine.executions.show(id)
    error = shown["error"]
    return Outcome(
        shown["status"],
        shown["outputs"],
        None if error is None else error["type"],
        sorted((step["address"], step["status"], step["outcome"]) for step in shown["steps"]),
    )


def check_effects(folder: Path) -> set[str]:
    """Check that no effect was repeated against its rules, and return the addresses of all effects.

    Steps whose name begins with `once` may have taken effect once. All others may have done so
    repeatedly, always with the same key.
    """
    keys: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for address, key, _ in effects(folder):
        keys.setdefault(address, set()).add(key)
        counts[address] = counts.get(address, 0) + 1
    assert all(len(found) == 1 for found in keys.values()), keys
    once = {a: n for a, n in counts.items() if a.split("/")[-1].startswith("once")}
    assert all(n == 1 for n in once.values()), once
    return set(counts)
