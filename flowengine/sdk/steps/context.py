"""Interfaces that a running step can use: its context, files, processes, and environments."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from typing import Any, NamedTuple, Protocol, TypedDict, TypeVar

from flowengine.kernel.graph.compiled import Plain

_Result = TypeVar("_Result")

WRITING: ContextVar[bool] = ContextVar("flowengine_writing_log", default=False)
"""Whether this context writes a line of a log, which is not output of the step that runs in it."""

LIVE = "_agent_functions"
"""Name of the execution's resource with functions that exist only in this program: key → function.
"""

# Files


class File(TypedDict):
    """A kept file as data, the form in which steps pass files to each other."""

    path: str
    """Path from which it can be read."""
    name: str
    size: int
    sha256: str


class Artifacts(Protocol):
    """Files and large values of one execution, kept by digest until the execution is pruned."""

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file under a name, and return it as data."""

    def path(self, sha256: str) -> str:
        """Return the path of a kept file, which must not be modified.

        Raises:
            KeyError: No file of this digest is kept.
        """


# Processes


class Completed(NamedTuple):
    """A process that ended."""

    exit_code: int
    """128 plus the number of the signal if a signal ended it, as in shells."""
    stdout: str
    stderr: str
    """Up to 64 KiB each: beginning and end, with a line between that contains the number of omitted
    bytes."""
    stdout_file: File | None = None
    stderr_file: File | None = None
    """The complete output, if it was longer."""


class Processes(Protocol):
    """Starts processes, and ends them with all their descendants."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes | None = None,
    ) -> Completed:
        """Run a program to its end. No process that it started outlives it.

        When the awaiting task is cancelled, the processes get SIGTERM and, after a grace period,
        SIGKILL. The cancellation continues once they have ended.

        Args:
            argv: Program and arguments, run without a shell.
            env: All of its environment variables.
            cwd: Its working directory.
            stdin: Its standard input. None means empty.

        Returns:
            Exit code and output.

        Raises:
            FileNotFoundError: The program or directory does not exist.
            OSError: It cannot be started.
        """


# Environments


class Command(NamedTuple):
    """The request of a `run` step or a shell tool to an environment. All values are evaluated."""

    script: str | None
    """Text for the environment's interpreter. None means that `argv` is run."""
    argv: Sequence[str] | None
    env: Mapping[str, Plain]
    stdin: Plain
    """Text, or a value that is passed as JSON. None means no input."""
    cwd: str | None
    files: Mapping[str, str]
    """Name → path or glob, kept when the command ends."""
    timeout: float | None = None
    """Seconds after which it is stopped, at most the limit of the environment. None means that only
    that limit applies. A stopped command is also a result, and its `stderr` reports the reason."""


class CommandEnvironment:
    """A place where commands run.

    Each process has one object, and `run` may be called concurrently.
    """

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run one command to its end, with any exit code.

        Args:
            context: The attempt.
            command: The command to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            NotImplementedError: This kind of environment runs no commands.
        """
        raise NotImplementedError


# Steps


class ExecutionContext(NamedTuple):
    """Properties of the execution that steps may use. Each execution has one object."""

    id: str
    flow: str
    version: str
    workdir: str
    """Absolute path of the directory below which the file tools work."""
    artifacts: Artifacts
    say: Callable[[str, str], None]
    """Shows a text to the user: address of the activation, text."""
    resources: Mapping[str, Any] = {}
    """Objects brought by the program that runs the engine. They are not checked or closed."""
    warn: Callable[[str, Mapping[str, Plain]], None] = lambda text, parts: None
    """Reports something invalid to observers of the engine: text, and its parts."""
    strict: bool = False
    """Whether a step fails whose script leaves something running."""
    environments: Mapping[str, Plain] = {}
    """Environments that the execution received besides those of its flow, as name → spec. For the
    engine."""
    missing: tuple[str, ...] = ()
    """Names of `resources` that existed at the start of the execution but not in this process. For
    the engine."""
    started_by: str = ""
    """The user who started it, `user:NAME`. Empty: unknown, as in Temporal."""
    trace: str | None = None
    """Id of its trace, which its attempts hand on. None: no traces are exported. For the engine."""
    lines_at_work: Callable[[str], Any] | None = None
    """Returns the file that keeps what its attempts log until they end, by its id. None: there is
    none. For the engine."""
    identity: str = ""
    """Random, and never used again, unlike `id`. Keys and rights depend on it. For the engine."""

    @property
    def owner(self) -> str:
        """Its name as the owner of environments."""
        return f"{self.id}@{self.identity}"


class StepContext(Protocol):
    """The context of an attempt besides its input.

    A function receives it through an annotated parameter.
    """

    @property
    def execution(self) -> ExecutionContext:
        """The execution it belongs to."""

    @property
    def address(self) -> str:
        """Address of the activation, as shown to users: `each[inv_07.pdf]/extract`."""

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this activation, and in no other."""

    @property
    def traceparent(self) -> str | None:
        """Header of W3C Trace Context for requests of the attempt. None: no traces are exported."""

    @property
    def timed(self) -> bool:
        """Whether the step declares its own `timeout`, so that the kind needs none."""

    @property
    def resources(self) -> Mapping[str, Any]:
        """Live environments by name: the `runtime_resources` of a function."""

    @property
    def approval(self) -> Mapping[str, Any] | None:
        """The approval of this call, if there was one: `by`, and possibly `edits` and `comment`."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Answers to the `NeedsInput` of earlier attempts of this call. Empty: there was none.

        `answers` maps each key to `action` (`accept`, `decline` or `cancel`), `content`, the values
        of an accepted form, `by` and `at`. `before` has the data of the last question.
        """

    @property
    def answers(self) -> Sequence[Mapping[str, Any]] | None:
        """The answers to the calls that its last round has returned, in their order.

        Each has `output` or `error`, and `approval` if the call was approved. None: it is the first
        round.
        """

    @property
    def caught(self) -> Mapping[str, Any] | None:
        """The error of the last round, which did not end the step. None: there was none."""

    @property
    def state(self) -> Mapping[str, Any]:
        """State of the flow at the start of the attempt: the keys that the kind `reads`.

        Lists and maps in it are read-only at every depth. `copy.deepcopy` of a part returns plain
        data that may be changed. Values are copied only when they are accessed.
        """

    @property
    def fallback(self) -> bool:
        """Whether a budget has reached its `fallback_at`: use less of it.

        It is determined when the attempt begins, for the meters of the kind. An attempt that is
        repeated after a crash sees the same value.
        """

    @property
    def for_model(self) -> bool:
        """Whether this is a tool call of an agent, so that a model reads its result."""

    @property
    def granted(self) -> Mapping[str, float] | None:
        """Amounts that budgets allow the attempt to use: meter → amount.

        They cover the meters that the kind `needs`. None means that the attempt is not limited.
        """

    @property
    def hidden(self) -> frozenset[str]:
        """Names of environment variables that hold secrets: commands do not inherit them."""

    @property
    def processes(self) -> Processes:
        """Starts processes."""

    @property
    def cancelled(self) -> threading.Event:
        """Set when the attempt is withdrawn. A function on a thread has to check it itself."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger of the attempt, which adds the origin to each line and masks secrets.

        The last lines are recorded with the end of the attempt.
        """

    def say(self, text: str) -> None:
        """Show a text to the user, with secrets masked."""

    def printed(self, stream: str, text: str) -> None:
        """Receive a piece of the output of the step's programs, for `run -v`.

        Secrets are masked.

        The end of the output is kept if the attempt fails. May be called on any thread.

        Args:
            stream: `stdout` or `stderr`.
            text: The piece, which may end in the middle of a line.
        """

    def part(self, part: str, text: str | None = None, **data: Plain) -> None:
        """Pass on a part of a reply, or other data, while it arrives. It is never stored.

        Subscribers that follow output receive an update `part` for each, with secrets masked,
        including secrets that are split over several pieces. Only the output of the step is its
        result. May be called on any thread.

        Args:
            part: Its kind. `start` begins a reply, `end` completes it, and `restart` discards the
                parts received so far. Other kinds, such as `text`, are defined by the step kind.
            text: The next piece. Pieces of the same kind and data form one text.
            **data: The object that the piece belongs to, such as the id of a call. Without a text,
                any plain data.

        Raises:
            ValidationError: `data` is not plain data.
        """

    @property
    def followed(self) -> bool:
        """Whether a subscriber receives output and parts as they arrive."""

    def mask(self, value: Plain) -> Plain:
        """Return plain data with the values of secrets replaced by `***`."""

    def environment(self, name: str) -> CommandEnvironment:
        """Return an environment by its name in the flow or its kind, or raise a `StepError`."""

    async def on_thread(self, function: Callable[[], _Result], *, settles: bool = False) -> _Result:
        """Call a function that may block on a thread, and return its result.

        When the awaiting task is cancelled, the function continues and its result is dropped.

        Args:
            function: The function to call.
            settles: The function is all that the attempt does, so its result shows whether a
                cancelled attempt took effect. If the step may have to be compensated, the result of
                a function that has ended, or ends soon, is still returned.
        """
