# Shows S42
"""Reads and writes in a workspace while a program in it swaps path components (S43)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentFailure, LimitExceeded, NotAFile, PathEscape, StepError
from flowengine.sdk.environments import Sandbox
from flowengine.sdk.files import confined_files, trees
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.files.path_walk import DirectoryEntry, LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.files.read_folders import UnreadableFolder, read_folder
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.workspaces import files
from flowengine_envs.workspaces.files import PathRefused, Workspace
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
    """A host folder with a file that must stay unread and unchanged."""
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
    """Return the result of a verb, or the type of the error it raised."""
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


Verbs = Callable[[Path, ExitStack], list[Callable[[], object]]]


class Steered:
    """Swaps paths before one call of a C function, and back after a number of calls.

    Only C functions call the operating system, so this covers each moment at which another program
    could swap them.

    Args:
        at: Number of the call.
        lasts: Number of calls until it is swapped back.
        swap: Called with whether paths shall lead outside.
    """

    def __init__(self, at: int, lasts: int, swap: Callable[[bool], None]) -> None:
        self._at = at
        self._back = at + lasts
        self._swap = swap
        self.calls = 0

    def __enter__(self) -> Steered:
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _called(self, _frame: object, event: str, _argument: object) -> None:
        if event == "c_call":
            if self.calls in {self._at, self._back}:
                self._swap(self.calls == self._at)
            self.calls += 1


@contextmanager
def careless(root: int, path: str, *, enter: bool = False, **_: object) -> Iterator[DirectoryEntry]:
    """Look at a path before it is opened."""
    base = os.readlink(f"/proc/self/fd/{root}")
    if not os.path.realpath(f"{base}/{path}").startswith(base):
        raise LeadsOut("")
    folder, name = (path, ".") if enter else os.path.split(path)
    opened = os.open(f"{base}/{folder}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield DirectoryEntry(opened, name)
    finally:
        os.close(opened)


def of_workspace(folder: Path, closed: ExitStack) -> list[Callable[[], object]]:
    """Every operation on a workspace, as the supervisor performs it."""
    space = Workspace(str(folder))
    closed.callback(os.close, space.fd)

    def read(path: str) -> bytes:
        reading = space.read(path, 100)
        try:
            return reading.piece(100)
        finally:
            reading.close()

    def write(path: str) -> None:
        draft = space.write(path, 0o600)
        try:
            draft.add(b"inside")
            draft.finish()
        finally:
            draft.drop()

    return [
        lambda: read("folder/canary"),
        lambda: read("link"),
        lambda: write("folder/new"),
        lambda: write("link"),
        lambda: [each["path"] for each in space.entries("folder", deep=True)],
        lambda: space.remove("folder/canary"),
    ]


def of_below(folder: Path, _closed: ExitStack) -> list[Callable[[], object]]:
    """Return the operations on the files below a host folder."""
    below = Below(folder)
    return [
        lambda: below.read("folder/canary", 100),
        lambda: below.read("link", 100),
        lambda: below.write("folder/new", b"inside"),
        lambda: below.write("link", b"inside"),
        lambda: below.glob("folder", "**"),
        lambda: below.folder("folder"),
        lambda: below.remove("folder/canary"),
    ]


def of_tree(folder: Path, closed: ExitStack) -> list[Callable[[], object]]:
    """Every operation on the contents of a host directory."""
    copies = folder.parent / "copies"
    copies.mkdir()
    closed.callback(shutil.rmtree, copies)

    def copied() -> list[str]:
        copy = copies / str(len(os.listdir(copies)))
        trees.copy_tree(folder, copy, 10, lambda size: None)
        return [path.name for path in copy.rglob("*") if not path.is_symlink()]

    return [
        lambda: [entry.path for entry in trees.tree(folder, 10)],
        copied,
        lambda: read_folder(str(folder), 100),
    ]


REFUSALS = (OSError, StepError, PathRefused, UnreadableFolder)


def escapes(workspace: Path, outside: Path, verbs: list[Callable[[], object]]) -> set[str]:
    """Return the effects outside of the workspace if paths are swapped at any moment of a verb."""

    def swap(away: bool) -> None:
        for link, inside, target in (
            ("folder", "real", outside),
            ("link", "file", outside / "canary"),
        ):
            (workspace / link).unlink(missing_ok=True)
            (workspace / link).symlink_to(target if away else inside)
        turned, kept = workspace / "turned", workspace / ".turned"
        if away and not turned.is_symlink():
            turned.rename(kept)
            turned.symlink_to(outside)
        elif not away and turned.is_symlink():
            turned.unlink()
            kept.rename(turned)

    found = set()
    for number, verb in enumerate(verbs):
        for lasts in (1, 1000):
            at, calls = 0, 1
            while at < calls:
                swap(False)
                (workspace / "file").write_bytes(b"inside")
                result = None
                with suppress(*REFUSALS), Steered(at, lasts, swap) as steered:
                    result = verb()
                calls, at = steered.calls, at + 1
                if str(result).count("canary") or str(outside) in str(result) or result == CANARY:
                    found.add(f"{number} reads")
                if os.listdir(outside) != ["canary"] or (outside / "canary").read_bytes() != CANARY:
                    found.add(f"{number} changes")
                    for each in outside.iterdir():
                        each.unlink()
                    (outside / "canary").write_bytes(CANARY)
                (workspace / "real" / "new").unlink(missing_ok=True)
    return found


@pytest.mark.parametrize(
    ("verbs", "walk", "expected"),
    [
        (of_workspace, walked, set()),
        pytest.param(of_below, walked, set(), marks=pytest.mark.endurance),
        (of_workspace, careless, {"0 reads", "2 changes", "5 changes"}),
        pytest.param(of_tree, walked, set(), marks=pytest.mark.endurance),
    ],
    ids=["workspace", "below", "found-in-workspace", "tree"],
)
def test_no_moment_is_one_at_which_a_swap_leads_outside(
    tmp_path: Path,
    outside: Path,
    verbs: Verbs,
    walk: Any,
    expected: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (confined_files, files):
        monkeypatch.setattr(module, "walked", walk)
    workspace = tmp_path / "workspace"
    (workspace / "real").mkdir(parents=True)
    (workspace / "turned").mkdir()

    with ExitStack() as closed:
        assert escapes(workspace, outside, verbs(workspace, closed)) == expected


def test_only_a_regular_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another entry has taken its name since it was looked at."""
    (tmp_path / "file").write_bytes(b"inside")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    folder = os.open(tmp_path, os.O_RDONLY)
    regular, stat = os.stat(tmp_path / "file"), os.stat
    try:
        with open(open_file("file", folder), "rb") as file:
            assert file.read() == b"inside"
        for kind in ("link", "folder", "pipe"):
            with pytest.raises(NotRegular, match=f"it is {kind}"):
                open_file(kind, folder)
        monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
        for kind in ("link", "folder", "pipe"):
            with pytest.raises(OSError, match=r"it is|Too many"):
                os.close(open_file(kind, folder))
    finally:
        monkeypatch.setattr(os, "stat", stat)
        os.close(folder)


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


@pytest.mark.endurance
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
