"""How a command of a shell stands, as kind `shell` gives it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from flowengine_envs.kinds.results import LimitMet
from flowengine_envs.link.terminal_text import clean

Status = Literal[
    "done", "running", "waiting_for_input", "timeout", "cancelled", "syntax_error", "lost", "disk"
]


class Waiting(NamedTuple):
    """What a command waits for."""

    kind: Literal["line", "secret", "keys"]
    """A line; a line that is not shown; single keys."""
    prompt: str
    """The last line of its output."""


class Process(NamedTuple):
    """A process of the terminal."""

    pid: int
    command: str
    state: str
    """As the system names it: `R` runs, `S` sleeps, `D` waits for a device, `T` is stopped."""


class ShellResult(NamedTuple):
    """How a command stands."""

    id: int
    """Number of the command; 0: it was not begun."""
    status: Status
    exit_code: int | None
    """None: it has not ended, or nobody knows."""
    output: str
    """What it wrote, without control sequences; a secret of the spec is `***`."""
    raw: bytes
    """The same as it was written."""
    duration: float
    """Seconds since it began."""
    cwd: str
    """Directory of the shell."""
    pipe_codes: Sequence[int] = ()
    """Exit codes of the last pipeline."""
    signal: int | None = None
    """By which signal it ended, as its exit code says."""
    waiting: Waiting | None = None
    background: str = ""
    """What earlier jobs wrote between the command before and this one."""
    jobs: Sequence[Process] = ()
    """What the shell has started and what still runs, when the command has ended."""
    processes: Sequence[Process] = ()
    """What runs now."""
    shell_restarted: bool = False
    """Whether the command ended the shell: directory, variables and functions are gone."""
    left_out: int = 0
    """Bytes of output that are in none of these."""
    limit: LimitMet | None = None
    """The limit of the environment because of which it failed; `output` says only `Killed`."""
    notes: Sequence[str] = ()
    """Which limits were met, each with its value, when it has ended."""

    @property
    def idle(self) -> bool:
        """Whether the next command can be run."""
        return not self.busy

    @property
    def busy(self) -> bool:
        """Whether the command goes on."""
        return self.status in {"running", "waiting_for_input"}


def step_code(result: ShellResult) -> int:
    """Return the exit code that a step has."""
    if result.status == "timeout":
        return 124
    if result.exit_code is None or (result.status != "done" and result.exit_code == 0):
        return 1
    return result.exit_code


def shell_result(answer: Mapping[str, Any], raw: bytes, background: bytes) -> ShellResult:
    """Return what a supervisor tells of a command."""
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
        jobs=[Process(**each) for each in answer["jobs"]],
        processes=[Process(**each) for each in answer["processes"]],
        shell_restarted=answer["restarted"],
        left_out=answer["left_out"],
    )
