"""Starts each program below a keeper, so that all its descendants can be found and ended."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import NamedTuple, Optional

from flowengine_envs.inside import keepers, killing, system
from flowengine_envs.inside.keepers import Keeper, Launch
from flowengine_envs.inside.killed_first import KilledFirst, Reserve
from flowengine_envs.inside.killing import kill_below, signal_below
from flowengine_envs.inside.loop import EventLoop, ScheduledCall
from flowengine_envs.inside.system import Entrances

_REMOVE = 0
"""IPC_RMID. The kernel removes shared memory when the last process that has it ends."""
_KINDS = {"shm": ("shmid", ("cpid", "lpid")), "msg": ("msqid", ("lspid", "lrpid"))}
"""Name → column with the id, columns with processes."""


def free() -> None:
    """Free it if all processes belong to this sandbox. Elsewhere it may be another program's."""
    if not killing.has_own_processes():
        return
    library = ctypes.CDLL(None)
    for kind, (id, processes) in _KINDS.items():
        with suppress(OSError), open(f"/proc/sysvipc/{kind}") as file:
            names = file.readline().split()
            for line in file:
                row = dict(zip(names, map(int, line.split())))  # noqa: B905 - Python 3.9
                if not any(system.process(row[name]) for name in processes):
                    getattr(library, f"{kind}ctl")(row[id], _REMOVE, None)


# The supervisor's own children: keepers and others, and strangers left by a killed keeper.


class Children:
    """Reaps children as they end, and kills strangers.

    Args:
        own: Returns the processes that are not strangers.
        ended: Called with each child that has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        own: Callable[[], Container[int]],
        ended: Callable[[int], None],
    ) -> None:
        self._own = own
        self._ended = ended
        self._source, sink = os.pipe()
        for fd in (self._source, sink):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        loop.reading(self._source, self._reap)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._source, 4096)
        orphaned = False
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                orphaned = orphaned or status != 0
                self._ended(pid)
        if orphaned:
            end_strangers(self._own())


def end_strangers(own: Container[int]) -> None:
    """Kill the other children of this process, because their keeper was killed."""
    kill_below(os.getpid(), without=own)


_SPARE = 2
"""Number of idle keepers that are kept."""
_REAPING = 10.0
"""Seconds after which the end of a program is reported although killed processes remain."""


class ProgramEnd(NamedTuple):
    """How a program ended."""

    exit_code: Optional[int]  # noqa: UP045
    """None: ended by a signal."""
    signal: Optional[int]  # noqa: UP045
    failed: Optional[int] = None  # noqa: UP045
    """Number of the error that prevented its start."""


class ProgramStarter:
    """Starts programs.

    Args:
        killed_first: Makes the kernel kill its forks first when memory is at its limit.
        entrances: Lets them join their control groups.
    """

    def __init__(self, loop: EventLoop, killed_first: KilledFirst, entrances: Entrances) -> None:
        self.loop = loop
        self._killed_first = killed_first
        self._entrances = entrances
        self.reserve = Reserve(loop, killed_first)
        self.keepers: dict[int, Keeper] = {}
        """All keepers, by process id."""
        self._free: list[Keeper] = []

    @property
    def own(self) -> set[int]:
        """The processes that belong to no program."""
        servers = {keeper.server for keeper in self.keepers.values() if keeper.server}
        return {*self.keepers, *servers, *self.reserve.pids}

    def start(
        self, task: Launch, fds: Mapping[int, int], ended: Callable[[ProgramEnd], None]
    ) -> SupervisedProgram:
        """Start a program.

        Args:
            fds: Descriptor in the program → descriptor here, for all that it inherits.
            ended: Called once, when it has ended or could not be started.

        Returns:
            The program.
        """
        return SupervisedProgram(self, task, fds, ended)

    def keeper(self) -> tuple[Keeper, bool]:
        """Return a free keeper, and whether it is new."""
        if self._free:
            return self._free.pop(), False
        keeper = Keeper(self.loop, self._killed_first, self._entrances)
        self.keepers[keeper.pid] = keeper
        return keeper, True

    def give_back(self, keeper: Keeper) -> None:
        """Take back a free keeper."""
        keeper.on_record = lambda *_: None
        keeper.lost = lambda: self.forget(keeper)
        if len(self._free) < _SPARE:
            self._free.append(keeper)
        else:
            keeper.close()

    def forget(self, keeper: Keeper) -> None:
        """Forget a keeper that has ended."""
        if self.keepers.get(keeper.pid) is keeper:  # A new one may already have its process id.
            del self.keepers[keeper.pid]
        if keeper in self._free:
            self._free.remove(keeper)


class SupervisedProgram:
    """A program that runs below a keeper.

    Args:
        programs: The object that started it.
        fds: As for `ProgramStarter.start`.
        ended: Called once, when it has ended or could not be started.
    """

    def __init__(
        self,
        programs: ProgramStarter,
        task: Launch,
        fds: Mapping[int, int],
        ended: Callable[[ProgramEnd], None],
    ) -> None:
        self._programs = programs
        self._task = task
        self._fds = {target: os.dup(fd) for target, fd in fds.items()}
        self._ended = ended
        self._keeper: Optional[Keeper] = None  # noqa: UP045
        self.pid: Optional[int] = None  # noqa: UP045
        """Process id of the program itself, once it is known."""
        self.ended: Optional[ProgramEnd] = None  # noqa: UP045
        self._reaping: Optional[ScheduledCall] = None  # noqa: UP045
        """Set while the processes that it left are killed and reaped."""
        self._begin()

    def signal(self, number: int) -> None:
        """Send a signal to the program itself, if it runs."""
        if self.pid is not None and self.ended is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_all(self, number: int) -> None:
        """Send a signal to the program and its descendants."""
        if self._keeper is not None:
            signal_below(self._keeper.pid, number)

    def kill(self) -> None:
        """Kill the program and its descendants."""
        if self._keeper is not None:
            kill_below(self._keeper.pid, groups=[] if self.pid is None else [self.pid])
            self._keeper.wake()

    def kill_started(self, since: int) -> None:
        """Kill the program's descendants, but not the program itself.

        Args:
            since: Spare processes started earlier, in `system.ticks`.
        """
        if self._keeper is not None and self.pid is not None:
            kill_below(self._keeper.pid, since, [self.pid])

    def _begin(self) -> None:
        try:
            keeper, new = self._programs.keeper()
        except OSError as error:
            self._close_fds()
            failed = ProgramEnd(None, None, error.errno)
            self._programs.loop.after(0, lambda: self._end(failed))
            return
        self._keeper = keeper
        keeper.on_record = self._on_record
        keeper.lost = lambda: self._lost(keeper, again=not new)
        keeper.start(self._task, self._fds)

    def _on_record(self, kind: bytes, value: int, extra: int) -> None:
        if kind == keepers.TAKEN:
            self._close_fds()
        elif kind == keepers.STARTED:
            self.pid = value
        elif kind == keepers.FAILED:
            self._free_keeper()
            self._end(ProgramEnd(None, None, value))
        elif kind == keepers.ENDED:
            if extra:
                self._free_keeper()
                self._end(_decode(value))
            else:
                self._kill_rest(_decode(value))
        elif kind == keepers.FREE:
            self._free_keeper()
            self._report()

    def _free_keeper(self) -> None:
        if self._keeper is not None:
            self._programs.give_back(self._keeper)
            self._keeper = None

    def _lost(self, keeper: Keeper, *, again: bool) -> None:
        """Handle the death of the keeper, whose processes are now strangers."""
        self._programs.forget(keeper)
        self._keeper = None
        end_strangers(self._programs.own)  # They must end before the program's end is reported.
        if again and self._fds:  # It was killed before it received this program.
            self._begin()
        else:
            self._close_fds()
            self._end(ProgramEnd(None, int(signal.SIGKILL)))
            self._report()

    def _close_fds(self) -> None:
        """Close the descriptors that the keeper has received."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _end(self, ended: ProgramEnd) -> None:
        if self.ended is None:
            self.ended = ended
            self._report_end(ended)

    def _kill_rest(self, ended: ProgramEnd) -> None:
        """Kill the processes that the program has left, and report its end once they are reaped.

        Until then they count against the limit on processes, so another program might not start.
        """
        if self.ended is None:
            self.ended = ended
            self._reaping = self._programs.loop.after(_REAPING, self._report)
            self.kill()

    def _report(self) -> None:
        """Report an end that was put off."""
        if self._reaping is not None and self.ended is not None:
            self._reaping.cancel()
            self._reaping = None
            self._report_end(self.ended)

    def _report_end(self, ended: ProgramEnd) -> None:
        if signal.SIGKILL in {ended.signal, (ended.exit_code or 0) - 128}:  # or a child was killed
            free()
        self._ended(ended)


def _decode(status: int) -> ProgramEnd:
    if os.WIFSIGNALED(status):
        return ProgramEnd(None, os.WTERMSIG(status))
    return ProgramEnd(os.WEXITSTATUS(status), None)
