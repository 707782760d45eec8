# Shows E87
"""Leftovers of a dead process, and only these, are found and removed (E86, E87, E110)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import (
    EnvironmentManager,
    TimeBounds,
    register_provider,
    unregister_provider,
)
from flowengine.execution_environment.registry.entries import Registry, signed
from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from tests.execution_environment.crash import Boxes
from tests.execution_environment.toy import SPEC, Heard, Toy, until

ROOT = Path(__file__).parents[2]
Make = Callable[..., EnvironmentManager]


@pytest.fixture
def boxes() -> Iterator[Boxes]:
    provider = Boxes()
    register_provider(provider)
    yield provider
    unregister_provider("box")


@pytest.fixture
def kill(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Run processes that open one box each, and kill them where they stop.

    All are started before any is killed, as a later one would reap the leftovers of a dead one.
    """
    started: list[subprocess.Popen[str]] = []

    def run_and_kill(stop: str, scope: str = "session", *, processes: int = 1) -> None:
        words = ["tests.execution_environment.crash", str(tmp_path), stop, scope]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for _ in range(processes)
        ]
        started.extend(running)
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "now\n"
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.communicate()

    yield run_and_kill
    for process in started:
        process.kill()
        process.communicate()
    for pid in of_manager(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def of_manager(tmp_path: Path) -> list[int]:
    """Return the processes started by any box of this test."""
    entries = tmp_path / "environments" / "seen"
    known = set(entries.read_text().split()) if entries.exists() else set()
    for path in (tmp_path / "environments" / "entries").glob("*.json"):
        known.add(path.stem)
    if known:
        entries.parent.mkdir(exist_ok=True)
        entries.write_text("\n".join(known))
    return [pid for pid, mark in marked(VARIABLE).items() if mark.partition("@")[0] in known]


def left_of(tmp_path: Path) -> list[str]:
    """Return all leftovers: processes, folders, entries, workspaces."""
    place = tmp_path / "environments"
    found = [str(pid) for pid in of_manager(tmp_path)]
    found += [path.name for path in tmp_path.glob("box-*")]
    found += [path.name for path in place.glob("entries/*")]
    found += [path.name for path in place.glob("workspaces/*/*/*")]
    return found


def reaped(manager: EnvironmentManager, tmp_path: Path) -> list[dict[str, Any]]:
    """Reap, and return the leftovers of this test.

    A manager also ends leftovers of dead processes anywhere on the machine, including parallel
    tests.
    """
    of_manager(tmp_path)
    seen = tmp_path / "environments" / "seen"
    own = set(seen.read_text().split()) if seen.exists() else set()
    anywhere = ("processes", "folder")
    return [one for one in manager.reap() if one["what"] not in anywhere or one.get("id") in own]


@pytest.mark.endurance
@pytest.mark.parametrize("stop", ["intent", "started", "ready", "releasing"])
# Shows E86
def test_wherever_a_process_is_killed_nothing_is_left(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path, stop: str
) -> None:
    kill(stop)
    assert left_of(tmp_path)
    manager = make()
    heard = Heard(manager)

    found = reaped(manager, tmp_path)

    assert left_of(tmp_path) == []
    assert heard.names() == ["reaped"]
    assert [each["what"] for each in found] == ["environment", "workspace"]
    assert [leftover.kind for leftover in boxes.reaped] == ["box"]
    assert reaped(manager, tmp_path) == []


# Shows E86
def test_the_next_opening_reaps_by_itself(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready")
    manager = make()
    spec = {"kind": "box", "owner_id": "new", "config": {"folder": str(tmp_path)}}

    handle = manager.ensure(spec)

    until(lambda: boxes.reaped)
    until(lambda: len(of_manager(tmp_path)) == 2)
    assert boxes.health_check(handle.resource)
    manager.release(handle)


def test_what_a_killed_process_had_begun_to_write_is_removed(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready")
    place = tmp_path / "environments"
    [above] = place.glob("workspaces/*/*")
    dead = subprocess.Popen(["true"])
    dead.wait()
    of_dead = [
        place / "entries" / f"a.json.{dead.pid}.0a.new",
        above / f"b.claim.{dead.pid}.0a.new",
    ]
    ours = place / "entries" / f"c.json.{os.getpid()}.0a.new"
    for path in (*of_dead, ours):
        path.write_text("{")

    make().reap()

    assert [path.exists() for path in (*of_dead, ours)] == [False, False, True]


@pytest.mark.endurance
def test_a_dead_executions_workspace_is_kept_while_it_may_go_on(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready", "execution")
    manager = make(wanted=lambda scope, owner_id: (scope, owner_id) == ("execution", "x"))

    manager.reap()

    assert of_manager(tmp_path) == []
    spec = {"kind": "box", "owner_id": "x", "config": {"folder": str(tmp_path)}}
    handle = manager.ensure(spec)
    assert handle.workspace is not None
    assert (handle.workspace / "file").read_text() == "kept"
    assert handle.generation == 2
    manager.release_scope("execution", "x")
    assert not handle.workspace.exists()


def test_what_lives_is_left_alone(boxes: Boxes, make: Make, tmp_path: Path) -> None:
    owner, other = make(), make()
    spec = {"kind": "box", "config": {"folder": str(tmp_path)}}
    handle = owner.ensure(spec)

    assert reaped(other, tmp_path) == []

    assert boxes.health_check(handle.resource)
    assert boxes.reaped == []
    assert handle.workspace is not None
    assert handle.workspace.is_dir()


@pytest.mark.endurance
def test_who_ends_a_scope_takes_no_folder_from_another_who_begins_it(make: Make) -> None:
    """Several concurrent users have one session each, which they end repeatedly."""
    spec = {"kind": "files", "scope": "session", "owner_id": "team"}

    def use(manager: EnvironmentManager) -> None:
        for _ in range(12):
            folder = manager.ensure(spec).resource
            folder.write("mine", manager.id)
            assert folder.read("mine") == manager.id.encode()
            assert not manager.release_scope("session", "team").failed

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(use, make()) for _ in range(4)]:
            done.result()


def change_entries(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    for path in (tmp_path / "environments" / "entries").glob("*.json"):
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(signed(path.name, data)))


def on_another_host(data: dict[str, Any]) -> None:
    data["owner"][2:] = ["another/pid:[1]", "another"]


def of_this_process(data: dict[str, Any]) -> None:
    from flowengine.sdk.processes import this_process

    data["owner"] = list(this_process())


@pytest.mark.endurance
@pytest.mark.parametrize("change", [on_another_host, of_this_process])
def test_entries_of_others_are_left_alone(
    kill: Callable[..., None],
    boxes: Boxes,
    make: Make,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
) -> None:
    kill("ready")
    change_entries(tmp_path, change)
    folders = list(tmp_path.glob("box-*"))

    make().reap()

    assert boxes.reaped == []
    assert list(tmp_path.glob("box-*")) == folders


def test_a_pid_that_a_stranger_has_now_is_not_killed(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    """The owner's process ID now belongs to another process, and so does that of its child."""
    kill("ready")
    time.sleep(0.02)  # start times of processes have a resolution of a hundredth of a second
    stranger = subprocess.Popen(["sleep", "1079"], start_new_session=True)

    def reuse(data: dict[str, Any]) -> None:
        data["owner"][0] = stranger.pid
        data["facts"]["pids"] = [[stranger.pid, data["facts"]["pids"][0][1]]]

    change_entries(tmp_path, reuse)
    try:
        make().reap()

        assert len(boxes.reaped) == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


DAMAGED = [b"{", b"", b"[]", b'{"format": 1}', b"\xff\x00", b"null"]


def test_a_damaged_entry_is_put_aside_and_its_processes_are_found_by_their_mark(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready")
    of_manager(tmp_path)
    entry = next((tmp_path / "environments" / "entries").glob("*.json"))
    entry.write_bytes(DAMAGED[0])
    for content in DAMAGED[1:]:  # for environments that left nothing else
        entry.with_name(f"{uuid.uuid4().hex}.json").write_bytes(content)

    found = reaped(make(), tmp_path)

    assert of_manager(tmp_path) == []
    kinds = [each["what"] for each in found]
    assert kinds == ["damaged entry"] * len(DAMAGED) + ["processes", "workspace"]
    put_aside = [Path(each["path"]).read_bytes() for each in found[: len(DAMAGED)]]
    assert sorted(put_aside) == sorted(DAMAGED)


def test_an_entry_without_end_is_put_aside_and_not_read(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "environments")
    for folder in (registry.folder, registry.entries):
        folder.mkdir(mode=0o700)
    with open(registry.entries / "a.json", "wb") as entry:
        entry.truncate(1 << 40)

    entries, [damaged] = registry.read()

    assert entries == []
    assert damaged.stat().st_size == 1 << 40


def test_an_entry_of_a_newer_release_is_left_to_it(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready")
    [entry] = (tmp_path / "environments" / "entries").glob("*.json")
    entry.write_text('{"format": 3, "what": ["this", "release", "cannot know"]}')

    found = reaped(make(), tmp_path)

    assert entry.exists()
    assert {each["what"] for each in found} == {"processes", "workspace"}  # marks name owners
    assert make().written() == []


@pytest.mark.endurance
def test_two_who_reap_at_once_end_each_thing_once(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready", processes=3)
    managers = [make() for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda manager: manager.reap(), managers))

    ids = [each["id"] for some in found for each in some if each["what"] == "environment"]
    assert len(ids) == len(set(ids)) == len(boxes.reaped) == 3
    assert left_of(tmp_path) == []


def test_what_cannot_be_reaped_is_told_and_tried_again(
    kill: Callable[..., None],
    boxes: Boxes,
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill("ready")
    manager = make()

    async def fail(leftover: Any) -> None:
        raise OSError("no daemon")

    with monkeypatch.context() as patch:
        patch.setattr(boxes, "reap", fail)
        assert reaped(manager, tmp_path)[0]["error"] == "OSError"

    assert "error" not in reaped(manager, tmp_path)[0]


def test_traced_folders_that_cannot_be_ours_are_not_removed(
    kill: Callable[..., None], boxes: Boxes, make: Make, tmp_path: Path
) -> None:
    kill("ready")
    victim = tmp_path / "victim"
    victim.mkdir()
    link = tmp_path / "link"
    link.symlink_to(victim)
    home = str(Path.home())

    def wrong(data: dict[str, Any]) -> None:
        data["facts"]["folders"] = ["/", "relative", home, os.path.dirname(home), str(link), 7]
        data["facts"]["pids"] = [[1, 1], [0, 5], ["x", 1], [os.getpid(), 1], 3]

    change_entries(tmp_path, wrong)
    make().reap()

    assert victim.is_dir()
    assert Path(home).is_dir()


# Without write access


@pytest.fixture
def unusable(tmp_path: Path) -> Iterator[Path]:
    """A path below a file, which no user can create, including root."""
    (tmp_path / "file").write_text("")
    yield tmp_path / "file" / "environments"
    assert (tmp_path / "file").read_text() == ""


# Shows E110
def test_where_nothing_can_be_written_what_could_be_left_is_not_opened(
    unusable: Path, boxes: Boxes, toy: Toy, tmp_path: Path
) -> None:
    spec = {"kind": "box", "config": {"folder": str(tmp_path)}}
    with EnvironmentManager(unusable) as manager:
        with pytest.raises(EnvironmentUnavailable) as refused:
            manager.ensure(spec)
        assert list(tmp_path.glob("box-*")) == []
        assert str(unusable) in str(refused.value)
        assert "XDG_STATE_HOME" in str(refused.value)

        assert manager.ensure(SPEC).state == "ready"  # in memory
        handle = manager.ensure({**spec, "resource_key": "x", "registry": "none"})
        workspace = handle.workspace
        assert workspace is not None
        assert workspace.is_dir()
        manager.release(handle)
        assert reaped(manager, tmp_path) == []
    assert not workspace.exists()


@pytest.mark.parametrize("ends", [True, False])
def test_a_closed_manager_touches_its_folder_no_more(
    boxes: Boxes, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The background sweep at the first opening ends earlier, or is abandoned."""
    begun, go, ended = threading.Event(), threading.Event(), []

    async def sweep(is_dead: Callable[..., bool]) -> None:
        begun.set()
        try:
            await asyncio.to_thread(go.wait, 60)
        finally:
            ended.append(go.is_set())

    monkeypatch.setattr(Boxes, "sweep", lambda _, is_dead: sweep(is_dead))
    (tmp_path / "environments").mkdir()  # a new folder would need no sweep
    manager = make(bounds=TimeBounds(sweep=60 if ends else 0.1))
    manager.ensure({"kind": "box", "config": {"folder": str(tmp_path)}})
    assert begun.wait(60)
    if ends:
        threading.Timer(0.2, go.set).start()

    manager.close()

    if not ends:
        until(lambda: ended)
    assert ended == [ends]
    go.set()


# Every way out

WAYS = ("end", "error", "int", "hup")
"""Beside the usual one."""


@pytest.mark.parametrize(
    "way", ["term", *(pytest.param(way, marks=pytest.mark.endurance) for way in WAYS)]
)
# Shows E22
def test_a_process_that_ends_leaves_nothing(tmp_path: Path, way: str) -> None:
    stop = "exit" if way == "error" else "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.execution_environment.crash", str(tmp_path), stop, "global"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    if way != "error":
        assert process.stdout.readline() == "now\n"
        of_manager(tmp_path)
        assert len(of_manager(tmp_path)) == 2
    if way == "int":
        process.send_signal(signal.SIGINT)
    if way == "term":
        process.terminate()
    if way == "hup":
        process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    expected = {"end": {0}, "error": {1}, "int": {1, -signal.SIGINT}, "term": {143}, "hup": {129}}
    assert process.returncode in expected[way], errors

    until(lambda: not left_of(tmp_path))  # killed processes take a moment to disappear
    assert "never awaited" not in errors
    assert "was destroyed" not in errors
