"""`python`: code in a process whose names persist between calls."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from flowengine.sdk import EnvironmentUnavailable, Plain
from flowengine.sdk.environments import Request, Sandbox, both_forms
from flowengine_envs.kinds.code import CodeProvider, stopped_error
from flowengine_envs.kinds.configurations import PythonConfig
from flowengine_envs.kinds.results import (
    CodeError,
    CodeResult,
    OnOutput,
    OutputStreams,
    last_line,
    limit_met,
)
from flowengine_envs.kinds.supervised import Supervised
from flowengine_envs.link import plain
from flowengine_envs.link.call_limits import GRACE, Counted
from flowengine_envs.link.channel import Channel

LARGEST_VALUE = 1024 * 1024
"""Maximum bytes of a value returned as data. A larger one is returned as truncated text."""
_LATE_CALLS = 64
_OLDEST = (3, 9)
_VERSION = "import sys; sys.stdout.write('%d %d' % sys.version_info[:2])"


class Late(NamedTuple):
    """Output that a thread or process left by a call printed after the call's end."""

    stdout: str = ""
    stderr: str = ""


class PythonSandbox(Supervised):
    """Runs Python code. Names, imports and files persist until release.

    Args:
        sandbox: The open sandbox.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel) -> None:
        super().__init__(request, sandbox, channel)
        self._late: OrderedDict[int, Late] = OrderedDict()
        self._planned = False
        channel.on_late = self._keep_late

    async def _run(
        self,
        code: str,
        inputs: Mapping[str, Plain] | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CodeResult:
        """Run code. Errors in the code are part of the result and are not raised.

        The value is that of the name `_result`, if the code sets it, or else of the last
        expression. `await` may be used outside functions.

        Args:
            code: The code.
            inputs: Plain data, available to the code as `inputs`.
            timeout: Seconds. Default: the spec's, or 30. Maximum: the spec's, which `inf` selects.
            on_output: Called with output as it arrives.

        Returns:
            Output, value, error.

        Raises:
            ValidationError: The code is not text or is too long, or the inputs are not plain data.
            EnvironmentBusy: Another call runs, and `on_busy` is `refuse`.
            EnvironmentLost: The sandbox has ended.
        """
        given = self.call_limits.encoded_inputs(code, inputs)
        seconds = self.call_limits.seconds(timeout)
        await self.cancelled_calls_ended()
        await self._plan()
        streams = OutputStreams(on_output)
        counted = Counted(self.sandbox)
        began = time.monotonic()
        answer = await self._channel.request(
            "python",
            about="code",
            on_answer=streams.feed,
            code=code,
            inputs=given,
            timeout=seconds,
            grace=GRACE,
            largest=LARGEST_VALUE,
            busy=str(getattr(self.request.config, "on_busy", "wait")),
            kept=self.call_limits.kept,
            file=self.call_limits.file,
        )
        duration = time.monotonic() - began
        self.call_limits.spend(duration)
        killed = counted.killed
        error = self._error(answer, timeout, killed=killed)
        raised = answer.get("error") or {}
        no_memory = killed or raised.get("type") == "MemoryError"
        limit = limit_met(
            answer["stopped"],
            out_of_memory=error is not None and no_memory,
            file_is_full="file_is_full" in raised,
        )
        result = _result(answer, streams, error, duration)._replace(limit=limit)
        notes = self.call_limits.met(
            killed=killed and not result.namespace_lost,
            refused=counted.refused,
            left_full=bool(answer.get("left_full")),
        )
        if answer.get("gone") is not None:
            notes.insert(0, f"since the last call {_crash(answer['gone'])}: earlier names are gone")
        return result._replace(stderr=result.stderr + "".join(f"{each}\n" for each in notes))

    run, async_run = both_forms(_run)

    async def _restart(self) -> None:
        """Drop all names. The next call starts with a new namespace."""
        if self._planned:
            await self._channel.request("restart")

    restart, async_restart = both_forms(_restart)

    @property
    def late(self) -> Mapping[int, Late]:
        """Output printed after the end of its call, by call number, for the last 64 such calls."""
        return dict(self._late)

    def _keep_late(self, header: Mapping[str, Any], payload: bytes) -> None:
        call = int(header["late"])
        text = payload.decode(errors="replace")
        old = self._late.pop(call, Late())
        stream = str(header["stream"])
        self._late[call] = old._replace(**{stream: getattr(old, stream) + text})
        while len(self._late) > _LATE_CALLS:
            self._late.popitem(last=False)

    async def start(self, deadline: float) -> None:
        """Check that the user's own interpreter, if one is named, runs in the sandbox."""
        program = self.interpreter
        if program is None:
            return
        done = await self.program([program, "-I", "-c", _VERSION], timeout=20)
        numbers = [int(part) for part in done.stdout.split()[:2] if part.isdigit()]
        if done.exit_code != 0 or len(numbers) != 2:
            raise EnvironmentUnavailable(
                f"{self.request.spec}: {program} is not a Python that runs in the sandbox: "
                f"{last_line(done)}"
            )
        if tuple(numbers) < _OLDEST:
            raise EnvironmentUnavailable(
                f"{self.request.spec}: {program} is Python {numbers[0]}.{numbers[1]}; "
                f"{_OLDEST[0]}.{_OLDEST[1]} or newer is needed"
            )

    async def _plan(self) -> None:
        """Send the supervisor, once, the command that starts the process for code."""
        if self._planned:
            return
        self._planned = True
        await self._channel.request(
            "worker",
            argv=[self.interpreter or getattr(self.request.config, "python", "python3")],
            env=self._variables,
            cwd=self.sandbox.workdir,
            limits=dict(self.sandbox.resource_limits()),
        )

    def _error(
        self, answer: Mapping[str, Any], timeout: float | None, *, killed: bool
    ) -> CodeError | None:
        """Return why the code failed, the outermost reason first."""
        if answer["stopped"] is not None:
            return stopped_error(self.call_limits, answer["stopped"], timeout)
        lost = answer.get("lost")
        if lost is not None and lost["broken"] is not None:
            return CodeError(
                "ProtocolError",
                f"unexpected answer of the interpreter: {lost['broken']}. It was ended",
            )
        if lost is not None:
            return CodeError(
                "Crashed", self.call_limits.out_of_memory() if killed else _crash(lost)
            )
        error = answer.get("error")
        if error is None:
            return None
        kind, message = error["type"], error["message"]
        parts = [message]
        if kind == "MemoryError" or killed:
            parts = [message, self.call_limits.out_of_memory()]
        elif "file_is_full" in error:
            kind, parts = "LimitExceeded", [kind, message, self.call_limits.file_too_large()]
        message = ": ".join(part for part in parts if part)
        return CodeError(kind, message, error["line"], error["traceback"])


class Python(CodeProvider[PythonSandbox]):
    """Opens Python sandboxes."""

    kind = "python"

    def config_model(self) -> type[BaseModel]:
        return PythonConfig


def _result(
    answer: dict[str, Any], streams: OutputStreams, error: CodeError | None, duration: float
) -> CodeResult:
    captured = answer.get("streams") or {"stdout": {}, "stderr": {}}
    lost = answer.get("lost") is not None
    return CodeResult(
        stdout=streams.text("stdout", captured["stdout"]),
        stderr=streams.text("stderr", captured["stderr"]),
        value=plain.decode(answer["value"]) if "value" in answer else None,
        text=answer.get("text", ""),
        error=error,
        exit_code=0 if error is None else 1,
        duration=duration,
        truncated=any("left_out" in stream for stream in captured.values()),
        stdout_file=captured["stdout"].get("file"),
        stderr_file=captured["stderr"].get("file"),
        files=answer.get("files", ()),
        left=answer.get("left", ()),
        call=answer.get("call", 0),
        namespace=answer["namespace"],
        namespace_lost=lost,
    )


def _crash(lost: Mapping[str, Any]) -> str:
    """Describe how the process ended."""
    import signal

    if lost.get("failed") is not None:
        return f"the interpreter cannot be started: {os.strerror(lost['failed'])}"
    words = f"; it said: {lost['words'].strip()}" if lost["words"].strip() else ""
    if lost["signal"] is not None:
        number = lost["signal"]
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return f"the process crashed: it was ended by {name}{words}"
    return f"the process crashed: it ended with exit code {lost['exit_code']}{words}"
