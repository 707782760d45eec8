"""The state of a shell command, as the kind `shell` reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from flowengine_documents.terminal_text import clean
from flowengine_envs.kinds.results import LimitMet, OnOutput

Status = Literal[
    "done", "running", "waiting_for_input", "timeout", "cancelled", "syntax_error", "lost", "disk"
]


class Waiting(NamedTuple):
    """The input that a command waits for."""

    kind: Literal["line", "secret", "keys"]
    """A line, a line that is not echoed, or single keys."""
    prompt: str
    """The last line of its output."""


class ShellProcess(NamedTuple):
    """A process of the terminal."""

    pid: int
    command: str
    state: str
    """The system's letter: `R` running, `S` sleeping, `D` waiting for a device, `T` stopped."""


class ShellResult(NamedTuple):
    """The state of a command."""

    id: int
    """Number of the command. 0: it was not started."""
    status: Status
    exit_code: int | None
    """None if it has not ended, or if its exit code is unknown."""
    output: str
    """Its output without control sequences. Secrets of the spec appear as `***`."""
    raw: bytes
    """The same output, unchanged."""
    duration: float
    """Seconds since it began."""
    cwd: str
    """Working directory of the shell."""
    pipe_codes: Sequence[int] = ()
    """Exit codes of the last pipeline."""
    signal: int | None = None
    """The signal that ended it, according to its exit code."""
    waiting: Waiting | None = None
    background: str = ""
    """Output of earlier jobs between the previous command and this one."""
    jobs: Sequence[ShellProcess] = ()
    """Processes that the shell started and that still run after the command has ended."""
    processes: Sequence[ShellProcess] = ()
    """Processes that run now."""
    shell_restarted: bool = False
    """Whether the command ended the shell. Its directory, variables and functions are lost."""
    left_out: int = 0
    """Bytes of output that were dropped."""
    limit: LimitMet | None = None
    """The limit of the environment that made it fail. `output` contains only `Killed`."""
    notes: Sequence[str] = ()
    """Limits that it reached, each with its value, once it has ended."""

    @property
    def idle(self) -> bool:
        """Whether the next command can be run."""
        return not self.busy

    @property
    def busy(self) -> bool:
        """Whether the command still runs."""
        return self.status in {"running", "waiting_for_input"}


def step_code(result: ShellResult) -> int:
    """Return the exit code of the step."""
    if result.status == "timeout":
        return 124
    if result.exit_code is None or (result.status != "done" and result.exit_code == 0):
        return 1
    return result.exit_code


def shell_result(answer: Mapping[str, Any], raw: bytes, background: bytes) -> ShellResult:
    """Return a result from a supervisor's answer about a command."""
    code = answer["exit_code"]
    waiting = answer["waiting"]
    return ShellResult(
        id=answer["command"],
        status=answer["status"],
        exit_code=code,
        output=clean(raw),
        raw=raw,
        duration=answer["duration"],
        cwd=answer["cwd"],
        pipe_codes=answer["pipe_codes"],
        signal=code - 128 if code is not None and 128 < code <= 192 else None,
        waiting=None if waiting is None else Waiting(**waiting),
        background=clean(background),
        jobs=[ShellProcess(**each) for each in answer["jobs"]],
        processes=[ShellProcess(**each) for each in answer["processes"]],
        shell_restarted=answer["restarted"],
        left_out=answer["left_out"],
    )


# Splits the output of a shell command into lines as it arrives.

LONGEST = 64 * 1024
"""Bytes after which an unfinished line is passed on."""


class LineAssembler:
    """Assembles lines of text from pieces.

    Args:
        mask: Removes secrets.
        on_output: Called with `stdout` and whole lines. The last one may be unfinished.
    """

    def __init__(self, mask: Callable[[bytes], bytes], on_output: OnOutput) -> None:
        self._mask = mask
        self._on_output = on_output
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Process the next piece."""
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > LONGEST:
            lines, newline, self._rest = lines + newline, self._rest, b""
        self._notify(lines + newline)

    def close(self) -> None:
        """Pass on an unfinished last line."""
        rest, self._rest = self._rest, b""
        self._notify(rest)

    def _notify(self, data: bytes) -> None:
        text = clean(self._mask(data))
        if text:
            self._on_output("stdout", text)
