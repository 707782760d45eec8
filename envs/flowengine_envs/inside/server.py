"""The supervisor: handles many concurrent requests of the engine in one thread.

| request | answers |
|---|---|
| `hello` | description of the sandbox |
| `ping` | confirmation |
| `run` | output of a program, then how it ended |
| `worker` | confirmation that the process for Python code was configured |
| `python` | output of code, then its result |
| `restart` | confirmation that the process for Python code has ended |
| `write` | none: it sends input to `run`, bytes to `put` |
| `signal`, `cancel` | whether there was a target |
| `put` | confirmation when the file is in place |
| `get` | pieces of a file |
| `list`, `remove` | entries of a directory |
| `terminal` | confirmation when a shell on a terminal is ready |
| `type` | output of a command in it, then how it ended, or that it waits for input or runs |
| `await` | the same for the running command |
| `send`, `press`, `interrupt` | confirmation when done |
| `screen` | content of the terminal |
| `watch` | its content, again at each change, until it is cancelled |
| `hang_up` | confirmation when the terminal and all programs on it have ended |

Each request has an `id`, which its answers carry. The last answer has `done`. Requests from
`terminal` on carry the number of their terminal. When the engine ends, standard input ends, and
with it everything here.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Optional, Union

from flowengine_envs.inside import killing, system
from flowengine_envs.inside.commands import CommandTask, OutputLimits, RunningCommand, Say
from flowengine_envs.inside.file_requests import FileRequests
from flowengine_envs.inside.forwarding import Forwarding
from flowengine_envs.inside.killed_first import KilledFirst
from flowengine_envs.inside.loop import EventLoop, Outbox
from flowengine_envs.inside.programs import Children, ProgramStarter
from flowengine_envs.inside.reserve import Reserve
from flowengine_envs.inside.terminal.command import Busy, Gone, NoCommand
from flowengine_envs.inside.terminal.requests import TerminalRequests
from flowengine_envs.inside.worker import Job, PythonWorker, WorkerPlan
from flowengine_envs.link import frames, parts
from flowengine_envs.workspaces.files import PathRefused, Workspace

_FALLOCATE = {"x86_64": (0xC000003E, 285), "aarch64": (0xC00000B7, 47)}
"""Machine → the kernel's constant for it, and the number of the call."""
_GIVES_BACK = 0x02 | 0x08
"""Flags of `fallocate` that free space: make a hole, or remove a range."""
_GET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 39, 22, 2
_LOAD, _EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _SECOND_ARGUMENT = 0, 4, 24
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def deny() -> None:
    """Deny to reserve space without writing it, here and in child processes, if the kernel can.

    The kernel requires `no_new_privs`, which is not set outside a sandbox.
    """
    machine = os.uname().machine
    if machine not in _FALLOCATE:
        return
    architecture, number = _FALLOCATE[machine]
    # Each test has the numbers of steps to skip if it is met and if it is not.
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_HAS_BITS, 1, 0, _GIVES_BACK),
        (_RETURN, 0, 0, _ERROR | errno.EOPNOTSUPP),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    with suppress(AttributeError):  # a C library without prctl
        prctl = ctypes.CDLL(None).prctl
        if prctl(_GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0) == 1:
            prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.c_char_p(program), 0, 0)


_READ = 1 << 18
_LARGEST_CODE = 16 * 1024 * 1024


def main(number: int) -> None:
    """Serve the engine until it ends.

    Args:
        number: Descriptor of the key and the requests. Answers go to descriptor 1.
    """
    killed_first, entrances = KilledFirst(), system.Entrances()
    system.become_unreadable()
    system.adopt_orphans()
    source = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 100)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 100)
    with open(os.devnull, "r+b", buffering=0) as null:
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)
    key = parts.exactly(partial(os.read, source), frames.KEY)
    if key is not None:
        SupervisorServer(source, sink, key, killed_first, entrances).serve()


def _identity(path: str) -> list[int]:
    """Return the identity of a directory, as the engine sees it from outside."""
    info = os.stat(path)
    return [info.st_dev, info.st_ino]


class _Fault(Exception):
    """An error of a request.

    Args:
        kind: The kind of error.
        message: Its description.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SupervisorServer:
    """Handles the requests of one engine.

    Args:
        source: Stream of incoming frames.
        sink: Stream of outgoing frames.
        key: The key of both directions.
        killed_first: Makes the kernel kill its forks first when memory is at its limit.
        entrances: Lets programs join their control groups.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        key: bytes,
        killed_first: KilledFirst,
        entrances: system.Entrances,
    ) -> None:
        self._loop = EventLoop()
        self._programs = ProgramStarter(self._loop, killed_first, entrances)
        self._source = source
        self._opener = frames.Opener(key, frames.TO_SUPERVISOR)
        self._sealer = frames.Sealer(key, frames.TO_ENGINE)
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        self._outbox = Outbox(self._loop, sink, self._end)
        self._paused = False
        self._workspace: Optional[Workspace] = None  # noqa: UP045
        self._output = ""
        self._commands: dict[int, RunningCommand] = {}
        self._worker: Optional[PythonWorker] = None  # noqa: UP045
        self._reserve = Reserve(self._loop, self._is_busy, self._stop_full, self._own)
        self._requests: dict[str, Callable[[int, dict[str, Any], bytes], None]] = {
            "hello": self._hello,
            "ping": self._ping,
            "run": self._run,
            "worker": self._plan,
            "python": self._python,
            "restart": self._restart,
            "write": self._write,
            "signal": self._signal,
            "cancel": self._cancel,
        }
        self._terminals = TerminalRequests(
            self._programs, self._say, self._reserve.begins, lambda: self._outbox.full
        )
        self._requests.update(self._terminals.requests)
        self._files = FileRequests(self._outbox, self._say)
        self._requests.update(self._files.requests)

    def serve(self) -> None:
        """Handle requests until the engine ends."""
        Children(self._loop, lambda: self._programs.own, self._programs.reserve.ended)
        # The kernel does not deliver signals from inside to the first process of a namespace unless
        # it has a handler. The engine does not need them, because it closes the input.
        handler = signal.SIG_DFL if os.getpid() == 1 else lambda *_: self._loop.stop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, handler)
        self._loop.reading(self._source, self._read)
        self._loop.run()
        killing.kill_everything()
        os._exit(0)

    def _end(self) -> None:
        self._loop.stop()

    # Frames

    def _read(self) -> None:
        try:
            data = os.read(self._source, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        try:
            for each in self._opener.feed(data):
                if isinstance(each, frames.Unusable):
                    self._fault(each.id, "bad_request", each.reason)
                else:
                    self._dispatch(each)
        except frames.Unauthentic as error:
            print(f"supervisor: {error}", file=sys.stderr)  # noqa: T201 - the sandbox's log
            self._end()

    def _dispatch(self, message: frames.LinkMessage) -> None:
        header = message.header
        id = header.get("id")
        if not isinstance(id, int):
            self._fault(None, "bad_request", "a request without an id")
            return
        request = self._requests.get(str(header.get("request")))
        try:
            if request is None:
                raise _Fault("bad_request", f"there is no request {header.get('request')!r}")
            if self._workspace is None and request != self._hello:
                raise _Fault("bad_request", "the first request must be 'hello'")
            request(id, header, message.payload)
        except _Fault as error:
            self._fault(id, error.kind, str(error))
        except PathRefused as error:
            self._fault(id, error.kind, error.reason)
        except Busy as error:
            self._fault(id, "busy", str(error))
        except NoCommand as error:
            self._fault(id, "bad_request", str(error))
        except Gone:
            self._fault(id, "gone", "the terminal is gone")
        except (KeyError, TypeError, ValueError) as error:
            self._fault(id, "bad_request", f"{type(error).__name__}: {error}")
        except OSError as error:
            self._fault(id, "failed", error.strerror or str(error))

    def _say(self, id: Optional[int], header: dict[str, Any], payload: bytes = b"") -> None:  # noqa: UP045
        if header.get("done") and "streams" in header:
            header = {**header, "left_full": self._reserve.took_left()}
        self._outbox.write(self._sealer.seal({"id": id, **header}, payload))
        if self._outbox.full and not self._paused:
            self._paused = True
            for each in self._readers():
                each.pause()
            self._outbox.when_empty(self._resume)

    def _resume(self) -> None:
        self._paused = False
        for each in self._readers():
            each.resume()

    def _readers(self) -> list[Union[RunningCommand, PythonWorker]]:  # noqa: UP007
        """Return the objects that read output."""
        return [*self._commands.values(), *([self._worker] if self._worker else [])]

    def _fault(self, id: Optional[int], kind: str, message: str) -> None:  # noqa: UP045
        self._say(id, {"done": True, "fault": {"kind": kind, "message": message}})

    def _done(self, id: int, **answer: Any) -> None:
        self._say(id, {"done": True, **answer})

    # Requests

    def _hello(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        if header["version"] != frames.VERSION:
            raise _Fault(
                "version", f"version {header['version']!r}: this supervisor speaks {frames.VERSION}"
            )
        for path, text in header["files"].items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
                file.write(text)
        if header["own_processes"]:
            killing.own_process_numbers()
        self._workspace = Workspace(header["workspace"])
        home = Workspace(header["home"])
        self._files.places = [self._workspace, home]
        self._output = header["output"]
        self._reserve.hold([self._workspace, home])
        deny()
        Forwarding(self._loop, header["forwards"])
        mounts = {path: _identity(path) for path in header["mounts"] if os.path.exists(path)}
        self._done(id, python=list(sys.version_info[:3]), pid=os.getpid(), mounts=mounts)

    def _ping(self, id: int, _header: dict[str, Any], _payload: bytes) -> None:
        self._done(id)

    def _run(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        task = CommandTask(
            header["argv"],
            header["env"],
            header["cwd"],
            header["limits"],
            header["timeout"],
            header["grace"],
            header["result"],
            header["preload"],
        )
        output = OutputLimits(header["kept"], header["file"], self._output)
        self._reserve.begins()
        self._commands[id] = RunningCommand(
            self._programs, task, output, f"run-{id}", partial(self._say_of_command, id)
        )

    def _say_of_command(self, id: int, header: dict[str, Any], payload: bytes) -> None:
        if header.get("done"):
            self._commands.pop(id, None)
        self._say(id, header, payload)

    def _plan(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        if self._worker is not None:
            raise _Fault("bad_request", "there is a worker already")
        plan = WorkerPlan(header["argv"], header["env"], header["cwd"], header["limits"])
        assert self._workspace is not None
        self._worker = PythonWorker(self._programs, plan, self._workspace)
        self._done(id)

    def _python(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        worker = self._its_worker()
        if header["busy"] == "refuse" and worker.busy:
            raise _Fault("busy", "another call runs")
        if len(header["code"]) > _LARGEST_CODE:
            raise _Fault("bad_request", f"code of over {_LARGEST_CODE} characters")
        say: Say = partial(self._say, id)
        self._reserve.begins()
        worker.submit(
            Job(
                id,
                header["code"],
                header["inputs"],
                header["timeout"],
                header["grace"],
                OutputLimits(header["kept"], header["file"], self._output),
                header["largest"],
                say,
            )
        )

    def _restart(self, id: int, _header: dict[str, Any], _payload: bytes) -> None:
        self._its_worker().restart(partial(self._done, id))

    def _is_busy(self) -> bool:
        """Return whether a call runs."""
        worker = self._worker is not None and self._worker.busy
        return bool(self._commands) or worker or self._terminals.busy

    def _stop_full(self) -> None:
        """End the running calls, because the disk is almost full."""
        for command in self._commands.values():
            command.stop("disk")
        if self._worker is not None:
            self._worker.stop_all("disk")
        self._terminals.stop("disk")

    def _own(self) -> set[int]:
        """Return the processes that no call has started."""
        worker = set() if self._worker is None else self._worker.idle
        return {*self._programs.own, *worker, *self._terminals.own}

    def _its_worker(self) -> PythonWorker:
        if self._worker is None:
            raise _Fault("bad_request", "no worker was planned")
        return self._worker

    def _write(self, id: int, header: dict[str, Any], payload: bytes) -> None:
        to = header["to"]
        command = self._commands.get(to)
        if command is not None:
            command.write(payload, last=header["last"])
        self._files.write(to, payload, last=header["last"])

    def _signal(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        command = self._commands.get(header["to"])
        if command is not None:
            command.signal(int(header["signal"]))
        self._done(id, found=command is not None)

    def _cancel(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        to = header["to"]
        stopped = self._worker is not None and self._worker.stop(to, "cancelled")
        stopped = self._terminals.forget(to) or stopped
        if to in self._commands:
            self._commands[to].stop("cancelled")
            stopped = True
        stopped = self._files.forget(to) or stopped
        self._done(id, found=stopped)
