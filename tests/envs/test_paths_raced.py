"""What goes in and out of a workspace while a program in it swaps what paths lead to (S43)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentFailure, LimitExceeded, NotAFile, PathEscape
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from tests.envs.opening import opened

TRIES = 150
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


def test_no_verb_reads_or_writes_outside(
    sandbox: type[Sandbox], tmp_path: Path, outside: Path
) -> None:
    got: set[Any] = set()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    copy = tmp_path / "copy"
    with (
        opened(Python(), sandbox, workspace, limits={"time": 60}) as python,
        swapped(python, outside),
    ):
        for number in range(TRIES):
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
