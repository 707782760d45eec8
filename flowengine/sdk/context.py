"""What a step may use while it runs: its context, files, processes, and environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar

from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    import logging
    import threading
    from os import PathLike

_Result = TypeVar("_Result")

# Files


class File(TypedDict):
    """A kept file as data: what steps hand to one another."""

    path: str
    """Where it can be read."""
    name: str
    size: int
    sha256: str


class Artifacts(Protocol):
    """Files and large values of one execution, kept by digest until the execution is pruned."""

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file under a name, and return it as data."""

    def path(self, sha256: str) -> str:
        """Return where a kept file can be read; it must not be changed there.

        Raises:
            KeyError: No file of this digest is kept.
        """


# Processes


class Completed(NamedTuple):
    """A process that ended."""

    exit_code: int
    """128 + the number of the signal, if one ended it, as shells say it."""
    stdout: str
    stderr: str
    """Up to 64 KiB each: beginning and end, with a line that says how much is missing between."""
    stdout_file: File | None = None
    stderr_file: File | None = None
    """All of it, if it was more than that."""


class Processes(Protocol):
    """Starts processes, and ends them with all that they started."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes | None = None,
    ) -> Completed:
        """Run a program to its end; nothing it started outlives it.

        When the awaiting task is cancelled, the processes get SIGTERM and, after a grace period,
        SIGKILL; the cancellation goes on when they are gone.

        Args:
            argv: Program and arguments; no shell.
            env: Its whole environment.
            cwd: Its working directory.
            stdin: What it reads; None: nothing.

        Returns:
            Exit code and output.

        Raises:
            FileNotFoundError: There is no such program or directory.
            OSError: It cannot be started.
        """


# Environments


class Command(NamedTuple):
    """What a `run` step or a shell tool asks of an environment. All values are evaluated."""

    script: str | None
    """Text for the environment's interpreter; None: `argv`."""
    argv: Sequence[str] | None
    env: Mapping[str, Plain]
    stdin: Plain
    """Text, or a value that is passed as JSON; None: nothing."""
    cwd: str | None
    files: Mapping[str, str]
    """Name → path or glob, kept when the command ends."""
    timeout: float | None = None
    """Seconds after which it is stopped; the most is what the environment allows. None: only that
    holds. A command that was stopped is a result, too: `stderr` says so."""


class Environment:
    """A place where commands run. One object per process; `run` may be entered many times."""

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run one command to its end, whatever its exit code.

        Args:
            context: The attempt.
            command: What to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            NotImplementedError: This kind of environment runs no commands.
        """
        raise NotImplementedError


# Steps


class ExecutionContext(NamedTuple):
    """What steps may know of the execution they belong to; one object per execution."""

    id: str
    flow: str
    version: str
    workdir: str
    """Folder below which the file tools work; absolute."""
    artifacts: Artifacts
    say: Callable[[str, str], None]
    """Shows a text to the user: address of the activation, text."""
    resources: Mapping[str, Any] = {}
    """Objects that the program which runs the engine brought; nobody checks or closes them."""
    warn: Callable[[str, Mapping[str, Plain]], None] = lambda text, parts: None
    """Tells whoever watches the engine of something that is not valid: text, and its parts."""
    strict: bool = False
    """Whether a step fails that leaves something running."""
    environments: Mapping[str, Plain] = {}
    """What it was given beside what its flow declares: name → spec; for the engine."""
    missing: tuple[str, ...] = ()
    """Names of `resources` that it began with and that are not in this process; for the engine."""


class StepContext(Protocol):
    """What an attempt may use beside its input; a function takes it by its annotation."""

    @property
    def execution(self) -> ExecutionContext:
        """The execution it belongs to."""

    @property
    def address(self) -> str:
        """Address of the activation, for people: `each[inv_07.pdf]/extract`."""

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this activation, and in no other."""

    @property
    def timed(self) -> bool:
        """Whether the step says its own `timeout`, so that the kind needs none."""

    @property
    def resources(self) -> Mapping[str, Any]:
        """Live environments by name: the `runtime_resources` of a function."""

    @property
    def approval(self) -> Mapping[str, Any] | None:
        """The yes to this call, if people were asked: `by`, and perhaps `edits` and a `comment`."""

    @property
    def state(self) -> Mapping[str, Any]:
        """State of the flow by key, as it was when the attempt began: what the kind `reads`.

        Lists and maps in it are read-only, however deep; `copy.deepcopy` of a part gives plain data
        that may be changed. Nothing is copied before it is looked at.
        """

    @property
    def fallback(self) -> bool:
        """Whether a budget has reached its `fallback_at`: use less of it, such as a cheaper model.

        It is asked when the attempt begins, of those meters that the kind has; an attempt that runs
        again after a crash sees the same.
        """

    @property
    def for_model(self) -> bool:
        """Whether this is a tool call of an agent, so that a model reads what comes of it."""

    @property
    def granted(self) -> Mapping[str, float] | None:
        """What budgets let the attempt use: meter → amount, of those that the kind `needs`.

        None: it is not bounded.
        """

    @property
    def hidden(self) -> frozenset[str]:
        """Names of environment variables that hold secrets: commands do not inherit them."""

    @property
    def processes(self) -> Processes:
        """Starts processes."""

    @property
    def cancelled(self) -> threading.Event:
        """Set when the attempt is withdrawn: a function on a thread has to look by itself."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger of the attempt: it says where a line comes from and masks secrets."""

    def say(self, text: str) -> None:
        """Show a text to the user, secrets masked."""

    def printed(self, stream: str, text: str) -> None:
        """Take a piece of what the step's programs print: `run -v` shows it, secrets masked.

        Its end is kept if the attempt fails. May be called on any thread.

        Args:
            stream: `stdout` or `stderr`.
            text: The piece; need not end with a line.
        """

    def part(self, part: str, text: str | None = None, **data: Plain) -> None:
        """Pass on a part of a reply, or other data, while it arrives; it is never stored.

        Subscribers that follow output get an update `part` for each, secrets masked, also those
        that are split over several pieces. What counts is the output of the step. May be called on
        any thread.

        Args:
            part: Its kind. `start` begins a reply, `end` completes it, `restart` takes back what
                came so far; the other kinds are the step kind's own, such as `text`.
            text: The next piece; pieces of the same kind and data are one text.
            **data: What the piece belongs to, such as the id of a call; without a text, any plain
                data.

        Raises:
            ValidationError: `data` is no plain data.
        """

    @property
    def followed(self) -> bool:
        """Whether somebody is told of output and parts as they come."""

    def mask(self, value: Plain) -> Plain:
        """Return plain data with the values of secrets replaced by `***`."""

    def environment(self, name: str) -> Environment:
        """Return an environment by its name in the flow or its kind, or raise a `StepError`."""

    async def on_thread(self, function: Callable[[], _Result], *, settles: bool = False) -> _Result:
        """Call a function that may block on a thread, and return what it returns.

        When the awaiting task is cancelled the function runs on, and its result is dropped.

        Args:
            function: What to call.
            settles: It is all that the attempt does, so its result tells whether a cancelled
                attempt acted. If that has to be known, because the step may have to be undone, a
                function that has ended, or ends soon, still counts: its result is returned.
        """
