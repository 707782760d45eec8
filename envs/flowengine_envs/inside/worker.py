"""The supervisor's side of a Python worker: one call after another, each with a time limit."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Optional

from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.inside import system
from flowengine_envs.inside.commands import STREAMS, Capture, OutputLimits, Say
from flowengine_envs.inside.keepers import Launch
from flowengine_envs.inside.loop import Call, EventLoop, Outbox, ScheduledCall
from flowengine_envs.inside.programs import ProgramEnd, ProgramStarter
from flowengine_envs.link import bootstrap, code_answers
from flowengine_envs.link.parts import Parts, TooLong, part
from flowengine_envs.workspaces.files import Workspace

_FILE_CLOCK = 5
"""CLOCK_REALTIME_COARSE, used by file systems. It may lag some milliseconds behind."""
CONTROL = 3
"""Initial descriptor of the worker's control socket."""
_AGAIN = 0.4
"""Seconds between interrupts, because a child process or C code may swallow one."""
_LATE_CALLS = 64
"""Number of calls whose late output is still read. Beyond it, the oldest is dropped."""
_LATE = 64 * 1024
"""Maximum bytes of late output forwarded per call."""
_LOOKED_AT = 2000
"""Maximum number of workspace entries checked for files changed by a call."""


class WorkerPlan(NamedTuple):
    """The plan of a worker."""

    argv: Sequence[str]
    """The interpreter and its options."""
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]


class Job(NamedTuple):
    """A call."""

    id: int
    code: str
    inputs: Any
    timeout: Optional[float]  # noqa: UP045
    grace: float
    output: OutputLimits
    largest: int
    """Maximum bytes of a value returned as data."""
    say: Say


class PythonWorker:
    """Runs calls in one namespace, which persists until the process ends.

    Args:
        programs: Starts it.
        plan: Its plan.
        workspace: Working directory of the code.
    """

    def __init__(self, programs: ProgramStarter, plan: WorkerPlan, workspace: Workspace) -> None:
        self._programs = programs
        self._loop = programs.loop
        self._plan = plan
        self._workspace = workspace
        self._waiting: deque[Job] = deque()
        self._call: Optional[_Call] = None  # noqa: UP045
        self._process: Optional[_Process] = None  # noqa: UP045
        self._calls = 0
        self._late: deque[_Call] = deque()
        self._restarted: list[Call] = []
        self._gone: Optional[dict[str, Any]] = None  # noqa: UP045
        """How a process with names ended while it ran no call."""
        self.namespace = 0
        """Number of the namespace, incremented when one is lost."""

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._call is not None or bool(self._waiting)

    @property
    def idle(self) -> set[int]:
        """The process, if it runs nothing that could write: no call and no thread of one."""
        program = None if self._process is None else self._process.program
        if program is None or program.pid is None or self._call is not None:
            return set()
        with suppress(OSError):
            if len(os.listdir(f"/proc/{program.pid}/task")) == 1:
                return {program.pid}
        return set()

    def submit(self, job: Job) -> None:
        """Run a call after the preceding ones."""
        self._waiting.append(job)
        self._next()

    def stop(self, id: int, why: str) -> bool:
        """End a call that runs or waits.

        Args:
            id: Id of its request.
            why: The reason for the result.

        Returns:
            Whether the call existed.
        """
        if self._call is not None and self._call.job.id == id:
            self._call.stop(why)
            return True
        for job in list(self._waiting):
            if job.id == id:
                self._waiting.remove(job)
                job.say({"done": True, "stopped": why, "namespace": self.namespace}, b"")
                return True
        return False

    def stop_all(self, why: str) -> None:
        """End the running call."""
        if self._call is not None:
            self._call.stop(why)

    def restart(self, done: Call) -> None:
        """Drop the namespace. The next call starts with a new one.

        Args:
            done: Called when the process has ended.
        """
        if self._process is None:
            done()
        else:
            self._restarted.append(done)
            self._process.kill()

    def pause(self) -> None:
        """Pause reading output."""
        for call in [*self._late, *([self._call] if self._call else [])]:
            for capture in call.captures.values():
                capture.pause()

    def resume(self) -> None:
        """Resume reading output."""
        for call in [*self._late, *([self._call] if self._call else [])]:
            for capture in call.captures.values():
                capture.resume()

    def _next(self) -> None:
        if self._call is not None or not self._waiting:
            return
        if self._process is not None and self._process.dying:
            return  # Its end will be reported soon.
        job = self._waiting.popleft()
        fresh = self._process is None
        if self._process is None:
            self.namespace += 1
            self._process = _Process(self._programs, self._plan, self._answered, self._lost)
        self._calls += 1
        self._call = _Call(self._loop, job, self._calls, self._process, fresh=fresh)

    def _answered(self, answer: dict[str, Any]) -> None:
        """Process a message of the worker. Only answers to the running call count."""
        call = self._call
        if call is None or answer.get("id") != call.token:
            return
        if self._process is None or self._process.dying:
            return  # Its names are about to be lost, which the result must report.
        try:
            problem = code_answers.check(answer)
        except code_answers.Broken as error:
            self._process.give_up(str(error))
        else:
            self._end(call, problem)

    def _lost(self, ended: ProgramEnd, words: str) -> None:
        broken = None if self._process is None else self._process.broken
        self._process = None
        restarted, self._restarted = self._restarted, []
        for done in restarted:
            done()
        call = self._call
        if call is not None:
            lost = {"exit_code": ended.exit_code, "signal": ended.signal, "failed": ended.failed}
            self._end(call, {"lost": {**lost, "words": words, "broken": broken}})
        else:
            if not restarted:
                self._gone = {"exit_code": ended.exit_code, "signal": ended.signal, "words": words}
            self._next()

    def _end(self, call: _Call, answer: dict[str, Any]) -> None:
        self._call = None
        header = call.finish(answer, late=self._process is not None)
        header["namespace"] = self.namespace
        header["gone"], self._gone = self._gone, None
        files = self._workspace.files(_LOOKED_AT)
        header["files"] = sorted(path for path, info in files if info.st_ctime >= call.began)
        self._late = deque(each for each in [*self._late, call] if each.open)
        if len(self._late) > _LATE_CALLS:
            self._late.popleft().close()
        call.job.say(header, b"")
        self._loop.after(0, self._next)


class _Call:
    """A running job."""

    def __init__(
        self, loop: EventLoop, job: Job, number: int, process: _Process, *, fresh: bool
    ) -> None:
        self.job = job
        self.token = os.urandom(8).hex()
        self.began = time.clock_gettime(_FILE_CLOCK)
        self._loop = loop
        self._number = number
        self._process = process
        self._fresh = fresh
        self._ticks = system.ticks()
        self._stopped: Optional[str] = None  # noqa: UP045
        self._late_bytes = 0
        self._timers: list[ScheduledCall] = []
        self.captures: dict[str, Capture] = {}
        sinks = []
        for stream in STREAMS.values():
            reader, sink = os.pipe()
            sinks.append(sink)
            self.captures[stream] = Capture(
                loop,
                reader,
                job.output,
                f"call-{number}-{stream}",
                partial(self._pass_on, stream),
                _nothing,
            )
        message = {
            "id": self.token,
            "call": number,
            "code": job.code,
            "inputs": job.inputs,
            "largest": job.largest,
        }
        process.send(message, sinks)
        for sink in sinks:
            os.close(sink)
        if job.timeout is not None:
            self._timers.append(loop.after(job.timeout, partial(self.stop, "timeout")))

    @property
    def open(self) -> bool:
        """Whether output may still arrive."""
        return any(capture.open for capture in self.captures.values())

    def stop(self, why: str) -> None:
        """Interrupt it repeatedly, and kill the process after the grace period."""
        if self._stopped is None:
            self._stopped = why
            self._timers.append(self._loop.after(self.job.grace, self._process.kill))
            self._interrupt()

    def _interrupt(self) -> None:
        program = self._process.program
        program.signal(signal.SIGINT)
        program.kill_started(since=self._ticks)
        self._timers.append(self._loop.after(_AGAIN, self._interrupt))

    def finish(self, answer: dict[str, Any], *, late: bool) -> dict[str, Any]:
        """Return the result of the call."""
        for timer in self._timers:
            timer.cancel()
        streams = {}
        for name, capture in self.captures.items():
            capture.drain()
            streams[name] = capture.finish(partial(self._pass_on_late, name) if late else None)
            if capture.tail:
                self.job.say({"stream": name, "tail": True}, capture.tail)
        names = ("value", "text", "large", "error", "left", "lost")
        return {
            "done": True,
            "call": self._number,
            "fresh": self._fresh,
            "stopped": self._stopped,
            "streams": streams,
            **{name: answer[name] for name in names if name in answer},
        }

    def close(self) -> None:
        """Stop reading its output."""
        for capture in self.captures.values():
            capture.close()

    def _pass_on(self, stream: str, data: bytes) -> None:
        self.job.say({"stream": stream}, data)

    def _pass_on_late(self, stream: str, data: bytes) -> None:
        part = data[: max(0, _LATE - self._late_bytes)]
        self._late_bytes += len(data)
        if part:
            self.job.say({"late": self._number, "stream": stream}, part)


class _Process:
    """A worker process and the socket to it."""

    def __init__(
        self, programs: ProgramStarter, plan: WorkerPlan, answered: Any, lost: Any
    ) -> None:
        loop = programs.loop
        self._loop = loop
        self._answered = answered
        self._lost = lost
        self._parts = Parts(code_answers.LARGEST)
        self._words = bytearray()
        self.dying = False
        """Whether it was killed, but its end has not been reported yet."""
        self.broken: Optional[str] = None  # noqa: UP045
        """Why its message was not a valid answer."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._control = ours
        self._outbox = Outbox(loop, ours.fileno(), _nothing)
        self._errors, errors = os.pipe()
        os.set_blocking(self._errors, False)
        with open(os.devnull, "r+b", buffering=0) as null:
            fds = {0: null.fileno(), 1: null.fileno(), 2: errors, CONTROL: theirs.fileno()}
            argv = [*plan.argv, "-I", "-c", bootstrap.SCRIPT, str(CONTROL)]
            task = Launch(argv, plan.env, plan.cwd, plan.limits)
            self.program = programs.start(task, fds, self._ended)
        theirs.close()
        os.close(errors)
        loop.reading(ours.fileno(), self._read)
        loop.reading(self._errors, self._read_words)
        self._outbox.write(
            bootstrap.program(
                "inside.python_worker",
                "link.parts",
                "link.plain",
                "flowengine.sdk.texts.exception_text",
            )
        )

    def kill(self) -> None:
        """Kill it and its descendants."""
        self.dying = True
        self.program.kill()

    def give_up(self, why: str) -> None:
        """Kill it because it violates the protocol."""
        self.broken = self.broken or why
        self.kill()

    def send(self, message: dict[str, Any], fds: list[int]) -> None:
        """Send a call with the writing ends of its pipes."""
        data = part(json.dumps(message).encode())
        self._outbox.when_empty(partial(self._send_now, data, [_copy(fd) for fd in fds]))

    def _send_now(self, data: bytes, fds: list[int]) -> None:
        try:
            sent = socket.send_fds(self._control, [data], fds)
        except OSError:  # It has ended, or does not read although it is idle.
            self.kill()
            return
        finally:
            for fd in fds:
                os.close(fd)
        if sent < len(data):
            self._outbox.write(data[sent:])

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for body in () if self.dying else self._parts.feed(data):
                if self.dying:
                    break
                self._answered(code_answers.read(body))
        except TooLong:
            self.give_up(f"it has over {size_text(code_answers.LARGEST)}")
        except code_answers.Broken as error:
            self.give_up(str(error))
        if not data:  # Without it the process is of no use.
            self._loop.forget(self._control.fileno())
            self._loop.after(0.05, self.kill)

    def _read_words(self) -> None:
        try:
            data = os.read(self._errors, 4096)
        except BlockingIOError:
            return
        self._words = (self._words + data)[-4096:]
        if not data:
            self._loop.forget(self._errors)

    def _ended(self, ended: ProgramEnd) -> None:
        self._outbox.close()
        self._read_words()
        for fd in (self._control.fileno(), self._errors):
            self._loop.forget(fd)
        self._control.close()
        os.close(self._errors)
        self._lost(ended, self._words.decode(errors="replace"))


def _copy(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _nothing() -> None:
    """Do nothing."""
