"""What goes in and out of a workspace while a program in it swaps what paths lead to (S43)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentFailure, LimitExceeded, NotAFile, PathEscape
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.workspaces.files import Refused, Workspace
from tests.envs.opening import opened

TRIES = 15
CANARY = b"what is outside"

SWAPPING = """
import os, threading, time
os.makedirs('real', exist_ok=True)
open('real/file', 'w').write('inside')
open('file', 'w').write('inside')
outside = {outside!r}

def swap():
    n = 0
    while not os.path.exists('stop'):
        n += 1
        for target in ('real', outside, '/proc/self/root' + outside):
            os.symlink(target, f'.next{{n}}')
            os.replace(f'.next{{n}}', 'folder')
        for target in ('file', outside + '/canary', '/proc/self/root' + outside + '/canary'):
            os.symlink(target, f'.next{{n}}')
            os.replace(f'.next{{n}}', 'link')

threading.Thread(target=swap, daemon=True).start()
while not os.path.lexists('link'):
    time.sleep(0.01)
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host with a file that nobody may read or change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "canary").write_bytes(CANARY)
    return folder


@contextmanager
def swapped(python: PythonSandbox, outside: Path) -> Iterator[None]:
    result = python.run(SWAPPING.format(outside=str(outside)))
    assert result.error is None, result.error
    yield
    python.put("stop", b"")


def tried(verb: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a verb gave, or the type of what it raised."""
    try:
        return verb(*arguments)
    except EnvironmentFailure as error:
        return type(error)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_no_verb_reads_or_writes_outside(
    sandbox: type[Sandbox], tmp_path: Path, outside: Path, block: int
) -> None:
    got: set[Any] = set()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    copy = tmp_path / "copy"
    with (
        opened(Python(), sandbox, workspace, limits={"time": 60}) as python,
        swapped(python, outside),
    ):
        for number in range(block * TRIES, (block + 1) * TRIES):
            got.add(tried(python.get, "folder/canary"))
            got.add(tried(python.get, "link"))
            if tried(python.fetch, "link", copy) is None:
                got.add(copy.read_bytes())
            got.add(tried(python.put, f"folder/new{number}", b"x"))
            got.add(tried(python.put, "link", b"inside"))
            listed = tried(python.list, "folder")
            if isinstance(listed, list):
                assert "folder/canary" not in [entry.path for entry in listed]
            tried(python.remove, "folder/canary")

    assert got <= {None, b"inside", b"", PathEscape, NotAFile}, got
    assert os.listdir(outside) == ["canary"]
    assert (outside / "canary").read_bytes() == CANARY


def read(workspace: Workspace, path: str) -> bytes:
    reading = workspace.read(path, 100)
    try:
        return reading.piece(100)
    finally:
        reading.close()


def write(workspace: Workspace, path: str) -> None:
    draft = workspace.write(path, 0o600)
    try:
        draft.add(b"new")
        draft.finish()
    finally:
        draft.drop()


def names(workspace: Workspace, path: str) -> set[str]:
    return {entry["path"] for entry in workspace.entries(path, deep=True)}


@pytest.mark.parametrize("swapped_to", ["outside", "inside"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        (read, "folder/canary"),
        (read, "link"),
        (write, "folder/canary"),
        (write, "folder/more/new"),
        (write, "link"),
        (Workspace.remove, "folder/canary"),
        (names, "folder"),
        (names, "."),
    ],
)
def test_whoever_wins_the_race_at_any_moment_gains_nothing(
    verb: Callable[[Workspace, str], Any],
    path: str,
    swapped_to: str,
    tmp_path: Path,
    outside: Path,
) -> None:
    """The paths are swapped before the first call of the system that a verb makes, the second, …

    Programs that swap at random seldom meet the moment.
    """
    (outside / "of the host").touch()
    got: list[Any] = []
    for moment in count(1):
        root, aside = tmp_path / str(moment), tmp_path / f"{moment} aside"
        lay_out(root, aside, outside)
        if swapped_to == "inside":
            swap(root, aside)
        workspace = Workspace(str(root))
        with before_call(moment, partial(swap, root, aside)) as reached:
            try:
                got.append(verb(workspace, path))
            except Refused as error:
                got.append(error.kind)
        os.close(workspace.fd)
        if not reached:
            break

    assert len(got) > 5
    assert CANARY not in got
    assert not any("folder/of the host" in each for each in got if isinstance(each, set))
    assert sorted(os.listdir(outside)) == ["canary", "of the host"]
    assert (outside / "canary").read_bytes() == CANARY


def lay_out(root: Path, aside: Path, outside: Path) -> None:
    """Make a workspace, and aside what leads out of it."""
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "canary").write_text("inside")
    (root / "link").write_text("inside")
    aside.mkdir()
    (aside / "folder").symlink_to(outside)
    (aside / "link").symlink_to(outside / "canary")


def swap(root: Path, aside: Path) -> None:
    for name in ("folder", "link"):
        os.rename(root / name, aside / "old")
        os.rename(aside / name, root / name)
        os.rename(aside / "old", aside / name)


@contextmanager
def before_call(number: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Act before the n-th call of a function that is not written in Python; yield if it came."""
    reached: list[int] = []
    calls = count(1)

    def see(_frame: Any, event: str, _called: Any) -> None:
        if event == "c_call" and next(calls) == number:
            reached.append(number)
            act()

    sys.setprofile(see)
    try:
        yield reached
    finally:
        sys.setprofile(None)


ODD = """
import os, socket
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink('loop', 'loop')
os.symlink('/dev/zero', 'zero')
open('new\\nline', 'w').write('x')
os.mkdir('many')
for n in range(11000):
    os.close(os.open(f'many/{n}', os.O_CREAT))
here = os.open('.', os.O_RDONLY)
for n in range(300):
    os.mkdir('deep', dir_fd=here)
    here, old = os.open('deep', os.O_RDONLY, dir_fd=here), here
    os.close(old)
"""


@pytest.mark.wherever
def test_odd_things_are_told_and_hold_nothing_up(sandbox: type[Sandbox], tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with opened(Python(), sandbox, workspace, limits={"time": 60}) as python:
        result = python.run(ODD)
        assert result.error is None, result.error

        for name in ("fifo", "socket", "loop", "zero", "many"):
            assert tried(python.get, name) in {NotAFile, PathEscape}, name
            assert tried(python.put, name, b"x") in {NotAFile, PathEscape}, name
        assert python.get("new\nline") == b"x"
        assert {entry.kind for entry in python.list()} >= {"pipe", "socket", "link", "file"}
        for more in ({"path": "many"}, {"deep": True}):
            with pytest.raises(LimitExceeded, match="more than 10,000 entries"):
                python.list(**more)
        assert python.run("1 + 1").value == 2
