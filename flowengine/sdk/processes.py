"""Processes: their identity and end, the tree below them, and their temporary directories."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple, Protocol

from flowengine.util.files import remove_tree as remove_tree  # noqa: PLC0414 - for environments

# Cleanup at the end of the process, for managers and environments opened without one.


class Closable(Protocol):
    """An object that is closed when the process ends."""

    @property
    def pid(self) -> int:
        """The process it belongs to."""

    def close(self) -> object:
        """Release everything."""


_opened: dict[int, Closable] = {}
"""Objects that have opened something, by identity."""
_registered: list[bool] = []


def close_at_exit(opened: Closable) -> None:
    """Close something when the interpreter ends, while threads can still be started.

    `atexit` is too late for that: it runs after the thread pools are closed.

    Args:
        opened: An object that has opened something. It is kept alive until `forget`.
    """
    import concurrent.futures.thread  # noqa: F401 - its own hook has to come after this one

    if not _registered:
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]
        _registered.append(True)
    _opened[id(opened)] = opened


def forget(closed: Closable) -> None:
    """Forget an object that has been closed."""
    _opened.pop(id(closed), None)


def _close_all() -> None:
    for opened in list(_opened.values()):
        if opened.pid == os.getpid():
            opened.close()


# Identity of processes, and detection of processes that are certainly dead.
#
# A pid alone is ambiguous because it is reused. Pid, start time, boot of the machine and pid
# namespace together identify one process permanently.


class ProcessIdentity(NamedTuple):
    """The identity of a process. No other process ever has the same four values."""

    pid: int
    started: int
    """Start of the process, in the kernel's ticks since the machine's boot."""
    boot: str
    """Which boot of the machine, and which namespace of pids, `pid` and `started` belong to."""
    host: str
    """Name of the machine."""


class HasOwner(Protocol):
    """Anything that identifies a process like `ProcessIdentity`."""

    @property
    def pid(self) -> int:
        """Its pid."""

    @property
    def started(self) -> int:
        """Its start in ticks."""

    @property
    def boot(self) -> str:
        """Boot and namespace."""

    @property
    def host(self) -> str:
        """Machine."""


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(pid, started(pid) or 0, boot(), os.uname().nodename)


def as_text(owner: ProcessIdentity) -> str:
    """Return a process of this machine as text, for marks in environment variables."""
    return f"{owner.pid}.{owner.started}.{owner.boot}"


def from_text(text: str) -> ProcessIdentity | None:
    """Return the process of this machine that a text of `as_text` names, or None."""
    try:
        pid, began, boot_ = text.split(".", 2)
        return ProcessIdentity(int(pid), int(began), boot_, os.uname().nodename)
    except ValueError:
        return None


def is_dead(owner: HasOwner) -> bool:
    """Return whether a process is certainly dead.

    It is dead if this machine has been rebooted since, or if, in a shared pid namespace, its pid is
    free or belongs to a process that started at another time. A stopped process is alive, and so is
    one with a running thread.

    Args:
        owner: The process.
    """
    here = boot()
    if not here:
        return False
    if owner.boot != here:
        same_machine = owner.host == os.uname().nodename
        return same_machine and owner.boot.partition("/")[0] != here.partition("/")[0]
    return started(owner.pid) != owner.started


def is_stopped(owner: HasOwner) -> bool:
    """Return whether a process is stopped, by a signal or a debugger, and not dead."""
    fields = _fields(owner.pid) if owner.boot == boot() else None
    return fields is not None and fields[0] in {b"T", b"t"} and int(fields[19]) == owner.started


def is_program(owner: HasOwner, name: str) -> bool:
    """Return whether a process runs a command, as a script or as a Python module of that name."""
    try:
        with open(f"/proc/{owner.pid}/cmdline", "rb") as file:
            words = [word.decode(errors="replace") for word in file.read().split(b"\0")]
    except OSError:
        return False
    is_script = any(os.path.basename(word) == name for word in words[:2])
    return owner.boot == boot() and (is_script or words[1:3] == ["-m", name])


def boot() -> str:
    """Return which boot of the machine, and which namespace of pids, this process is in."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            text = file.read().strip()
        return f"{text}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def started(pid: int) -> int | None:
    """Return the start of a process in ticks since boot, or None if it has ended."""
    fields = _fields(pid)
    return None if fields is None or has_ended(fields) else int(fields[19])


def _fields(pid: int | str) -> list[bytes] | None:
    """Return the fields after the name in the `stat` of a process, or None if there is none."""
    try:
        # The program's name, in parentheses, may contain any character. The remaining fields are
        # regular.
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def has_ended(fields: Sequence[bytes]) -> bool:
    """Return whether a process has ended, although its parent has not reaped it yet (a zombie).

    The kernel reports this state as soon as the first thread has ended. Other threads may still
    run, and after `kill -9` they hold its files and may finish a write.

    Args:
        fields: The fields after the name in its `stat`.
    """
    return fields[0] in {b"Z", b"X"} and int(fields[17]) <= 1


# Finds the processes that belong to an attempt or an environment, and kills them.
#
# A process is found by three marks, since a program may lose any one of them: its session (each
# program is started as the leader of one), its parents, and an environment variable that names its
# attempt or environment (which finds daemons that changed session and parent). Only a process that
# loses all three - `env -i setsid ...` whose parent has ended - escapes.

MARK = "FLOWENGINE_ATTEMPT"
"""The environment variable by which a process is found: `execution:unit@owner`."""
VARIABLE = "FLOWENGINE_ENVIRONMENT"
"""The environment variable that marks every process of an environment, with the value of
`Request.mark`. It identifies the processes of a dead owner."""
ROUNDS = 250
"""How often the search for processes to kill is repeated at most."""
_MOMENT = 0.001
"""Seconds between searches while processes are about to stop."""
_PATIENCE = 2.0
"""Seconds without progress after which processes are killed that have not stopped, as when they
wait for a disk that does not answer."""


class Family:
    """A group of related processes: those of a session, those marked, and their descendants.

    Args:
        mark: Value of the marking variable. A value that ends in `:` is a prefix. None means that
            marks are ignored.
        leader: Process that leads the session, if there is one. It counts as long as its id has not
            been reused by a process with another start time.
        variable: Name of the marking variable.
    """

    def __init__(
        self, mark: str | None, leader: int | None = None, *, variable: str = MARK
    ) -> None:
        self._mark = None if mark is None else f"{variable}={mark}".encode()
        self._leader = leader
        self._killed: set[tuple[int, int]] = set()
        """Ids and starts."""
        self._since = 0
        """Ticks since boot: processes older than the leader do not belong to it."""
        if leader is not None and (leader_process := _process(leader)):
            self._since = leader_process.started

    def members(self) -> list[int]:
        """Return the living processes, without zombies and this process."""
        return list(self._members())

    def _members(self) -> dict[int, ProcessEntry]:
        alive = {process.pid: process for process in processes(self._since)}
        alive.pop(os.getpid(), None)
        leader = self._leader
        if leader in alive and alive[leader].started != self._since:
            leader = None  # the kernel has reused its id, so its whole session has ended
        related = {
            process.pid
            for process in alive.values()
            if leader in {process.session, process.pid} or self._is_marked(process.pid)
        }
        return {pid: process for pid, process in alive.items() if _descends(pid, related, alive)}

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to all processes. With SIGKILL, none escapes by starting others meanwhile.

        Returns:
            Whether there was any.
        """
        if number == signal.SIGKILL:
            return self._kill()
        members = self.members()
        _send(members, number)
        return bool(members)

    def _kill(self) -> bool:
        """Stop all processes, and kill each once it and all its descendants have stopped.

        A process that is starting another one when it is stopped or killed still does so. If it
        were killed at that moment, its child would have no parent that could reveal it. So only
        processes that have been seen to have stopped are killed, after another search for children.
        Descendants are killed first because `vfork` returns only after the child has ended.

        Returns:
            Whether there was any, including those that are already dying.
        """
        found, dying = False, self._killed
        stopped: set[int] = set()
        until = monotonic() + _PATIENCE
        while members := self._members():
            found = True
            left = {pid for pid, each in members.items() if (pid, each.started) not in dying}
            if not left:
                break
            running, held = left - stopped, set[int]()
            for pid in running if monotonic() < until else ():
                ancestor = pid
                while ancestor in members and ancestor not in held:
                    held.add(ancestor)
                    ancestor = members[ancestor].parent
            _send(running, signal.SIGSTOP)
            _send(left - held, signal.SIGKILL)
            dying |= {(pid, members[pid].started) for pid in left - held}
            now_stopped = {pid for pid in running & held if _has_stopped(pid)}
            stopped |= now_stopped
            if now_stopped:
                until = monotonic() + _PATIENCE
            elif held:
                sleep(_MOMENT)
        return found

    def kill(self) -> None:
        """Kill all processes, and wait until they are dead."""
        for _ in range(ROUNDS):
            if not self.signal(signal.SIGKILL):
                return
            sleep(_MOMENT)

    def _is_marked(self, pid: int) -> bool:
        if self._mark is None:
            return False
        variables = _environment(pid)
        if self._mark.endswith(b":"):
            return any(variable.startswith(self._mark) for variable in variables)
        return self._mark in variables


def _has_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped. One that has ended is, too."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    fields = (_fields(f"{pid}/task/{thread}") for thread in threads)
    return all(found is None or found[0] in b"TtZX" for found in fields)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_marked(execution: str, last: HasOwner | None = None) -> None:
    """Kill the processes of an execution that a dead engine process left running.

    Call it before interrupted attempts are run again: a script whose engine was killed keeps
    running, and its second run must not overlap the first. An execution of another store may have
    the same id: what another living process runs is left to it.

    Args:
        execution: Id of the execution.
        last: The process that had the execution before, if it may still live.
    """
    ours = {(one.pid, one.started) for one in (this_process(), last) if one is not None}
    for mark in sorted(set(marked(MARK).values())):
        owner = from_text(mark.rpartition("@")[2])
        of_another = (
            owner is not None
            and owner.boot == boot()
            and not is_dead(owner)
            and (owner.pid, owner.started) not in ours
        )
        if mark.startswith(f"{execution}:") and not of_another:
            Family(mark).kill()


def mark_of(execution: str, unit: int) -> str:
    """Return the mark of an attempt's processes. It names the process that runs the attempt."""
    return f"{execution}:{unit}@{as_text(this_process())}"


def end_orphans() -> list[str]:
    """Kill the processes of attempts whose engine is dead.

    Returns:
        Their marks, without the dead process: `execution:unit`.
    """
    ended = []
    for mark in sorted(set(marked(MARK).values())):
        name, _, owner = mark.rpartition("@")
        process = from_text(owner)
        if process is not None and is_dead(process):
            Family(mark).kill()
            ended.append(name)
    return ended


def marked(variable: str) -> dict[int, str]:
    """Return the living processes whose environment has a variable.

    Args:
        variable: Its name.

    Returns:
        Pid → value, without this process.
    """
    start = f"{variable}=".encode()
    values = {}
    for pid in _pids():
        if pid != os.getpid():
            for entry in _environment(pid):  # a zombie has none
                if entry.startswith(start):
                    values[pid] = entry[len(start) :].decode(errors="replace")
    return values


def end_session(leader: int, started: int) -> None:
    """Kill a process, its session and all its descendants, if it is still the same process.

    The leader itself may have ended: as long as a member lives, the kernel does not reuse its id.

    Args:
        leader: The process that leads, or led, the session.
        started: When it started, in ticks since boot.
    """
    now = _process(leader)
    if now is not None and now.started != started:
        return
    if leader in {os.getpid(), os.getsid(0)}:
        return  # it would end this process's own session
    Family(None, leader).kill()


class ProcessEntry(NamedTuple):
    """A process."""

    pid: int
    parent: int
    session: int
    started: int
    """In ticks since boot."""


def _process(pid: int) -> ProcessEntry | None:
    """Return a process, or None if it has ended or is a zombie."""
    fields = _fields(pid)
    if fields is None or has_ended(fields):
        return None
    return ProcessEntry(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def _environment(pid: int) -> list[bytes]:
    try:
        return _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:  # ended, or another user's
        return []


def _read(path: str) -> bytes:
    """Return the content of a kernel file, without the cost of a buffer."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _pids() -> Iterator[int]:
    """Yield the ids of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def processes(since: int = 0) -> Iterator[ProcessEntry]:
    """Yield the living processes, without zombies, that started at a tick since boot or later."""
    for pid in _pids():
        process = _process(pid)
        if process is not None and process.started >= since:
            yield process


def _descends(pid: int, ancestors: set[int], processes: Mapping[int, ProcessEntry]) -> bool:
    while pid not in ancestors:
        if pid not in processes:
            return False
        pid = processes[pid].parent
    return True


# Temporary directories that are removed even if their process is killed.
#
# Each is locked by that process, and the kernel releases the lock when its holder ends. A
# directory that can be locked was therefore left by a dead process. The next process that creates
# a directory removes it.

PREFIX = "flowengine-scratch-"

_locks: dict[str, int] = {}
_swept: set[str] = set()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary directory for a `with` block, and remove those of dead processes."""
    path = make_scratch()
    try:
        yield path
    finally:
        remove_scratch(path)


def make_scratch() -> Path:
    """Create a temporary directory, to be removed by `remove_scratch`."""
    import tempfile

    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        sweep_scratch()
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # another process's sweep may have removed it before it was locked
            if os.path.exists(path):
                _locks[path] = handle
                return Path(path)
            os.close(handle)


def remove_scratch(path: Path) -> None:
    """Remove a temporary directory with all its content."""
    remove_tree(path)
    handle = _locks.pop(str(path), None)
    if handle is not None:
        os.close(handle)


def sweep_scratch() -> list[Path]:
    """Remove the directories of dead processes, and end the programs that ran in them.

    Returns:
        The removed directories.
    """
    import tempfile

    found: list[Path] = []
    with suppress(OSError):
        found += Path(tempfile.gettempdir()).glob(f"{PREFIX}*")
    left = [(path, handle) for path in found if (handle := _locked(path)) is not None]
    if left:
        end_orphans()
    for path, handle in left:
        remove_tree(path)
        os.close(handle)
    return [path for path, _ in left]


def _locked(path: Path) -> int | None:
    """Return the lock on a directory of this user, or None if it is in use or another user's."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.fstat(handle).st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
    os.close(handle)
    return None
