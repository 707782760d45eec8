"""The context of an attempt: directories, files, programs, environments and the log."""

from __future__ import annotations

import logging
import threading
from _thread import allocate_lock
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from flowengine import registry
from flowengine.engines.attempts.environments import AttemptEnvironment
from flowengine.engines.attempts.lines_at_work import LogLines
from flowengine.engines.attempts.outcome import Patience
from flowengine.engines.attempts.printed import Printed
from flowengine.engines.attempts.processes import ProcessRunner, report_left
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Log, Opening
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.addresses import idempotency_key
from flowengine.kernel.notation.traces import attempt_span
from flowengine.kernel.view import as_said
from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.processes import mark_of
from flowengine.sdk.python.user_code import CALLS, on_thread
from flowengine.sdk.steps.context import CommandEnvironment, ExecutionContext, Processes
from flowengine.sdk.steps.step_log import StepLog
from flowengine.sdk.values.read_only import ReadOnlyDict, read_only
from flowengine.secrets import Secrets

_Result = TypeVar("_Result")
_beginning = allocate_lock()


class AttemptContext:
    """The context of an attempt. See `flowengine.sdk.StepContext`.

    Args:
        execution: The execution, as visible to the step.
        run: The kernel's command.
        secrets: Secrets of the flow.
        timed: Whether the step has a timeout.
        output: Receives the printed output.
        patience: Returns how long to wait for a function once the attempt is withdrawn. None: do
            not wait.
        for_model: Whether the result is sent to a model.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        run: Run,
        secrets: Secrets,
        timed: bool,
        output: Printed | None = None,
        patience: Patience | None = None,
        for_model: bool = False,
    ) -> None:
        self.execution = execution
        self.for_model = for_model
        self.output = output
        self._secrets = secrets
        self.timed = timed
        self._patience = patience
        self.run = run
        self.environments: Mapping[str, AttemptEnvironment] = {}
        self.openings: Sequence[Opening] = ()
        self.lines: LogLines | None = None
        """The log so far. None: nothing yet."""
        self._cancelled: threading.Event | None = None

    @property
    def address(self) -> str:
        """Address of the step."""
        return self.run.address

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        return self.run.attempt

    @property
    def idempotency_key(self) -> str:
        """The same key for all attempts."""
        if self.run.key is not None:
            return self.run.key
        return idempotency_key(self.execution.identity, self.run.address)

    @property
    def traceparent(self) -> str | None:
        """The span of the attempt, as the parent of spans of other programs."""
        if not self.execution.trace:
            return None

        span = attempt_span(self.execution.id, self.run.address, self.run.at)
        return f"00-{self.execution.trace}-{span}-01"

    @property
    def resources(self) -> Mapping[str, Any]:
        """Resources provided by its environments and by the caller, by name."""
        if not self.environments:
            return {**self.execution.resources}
        managed = {name: opened.resource for name, opened in self.environments.items()}
        return {**self.execution.resources, **managed}

    @property
    def approval(self) -> Mapping[str, Any] | None:
        """The recorded approval of this call. None: no approval was required."""
        approved: Mapping[str, Any] | None = self.run.approved
        return approved

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Answers to questions of earlier attempts of this call."""
        return self.run.inputs or {}

    @property
    def answers(self) -> Sequence[Mapping[str, Any]] | None:
        """The answers to the calls of its last round. None: it is the first round."""
        answers: Sequence[Mapping[str, Any]] | None = read_only(self.run.answers)
        return answers

    @property
    def caught(self) -> Mapping[str, Any] | None:
        """The error of its last round, if it catches it."""
        return self.run.caught

    @property
    def state(self) -> Mapping[str, Any]:
        """The state that its kind reads, as of the start of the attempt."""
        return ReadOnlyDict(self.run.state or {})

    @property
    def fallback(self) -> bool:
        """Whether a budget has reached its `fallback_at`."""
        return self.run.fallback

    @property
    def granted(self) -> Mapping[str, float] | None:
        """The amounts that it may use of the enclosing budgets. None: unlimited."""
        return None if self.run.granted is None else as_said(self.run.granted)

    @property
    def hidden(self) -> frozenset[str]:
        """Names of variables that hold secrets."""
        return self._secrets.variables

    @property
    def processes(self) -> Processes:
        """Runs programs."""
        mark = mark_of(self.execution.id, self.run.unit)
        return ProcessRunner(
            self.execution.artifacts,
            mark,
            self.mask,
            left=lambda left: report_left(left, self),
            printed=None if self.output is None else self.output.feed,
        )

    @property
    def cancelled(self) -> threading.Event:
        """Set when the attempt is withdrawn."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
        return self._cancelled

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that masks secrets, and whose lines are recorded with the attempt."""
        run = self.run
        return StepLog(self.execution.id, run.address, self.mask, self.traceparent, self._keep)

    @property
    def logged(self) -> Log | None:
        """The log so far, for its event. None: nothing."""
        return None if self.lines is None else self.lines.log()

    def _keep(self, level: int, text: str) -> None:
        """Keep a line of the log."""
        lines = self.lines or self._begin_log()
        line = lines.append(level, text)
        at_work = self.execution.lines_at_work and self.execution.lines_at_work(self.execution.id)
        if at_work is not None:
            at_work.append((self.run.unit, self.run.attempt), lines, line)

    def _begin_log(self) -> LogLines:
        with _beginning:  # a step may log from several threads
            if self.lines is None:
                self.lines = LogLines()
                if self.output is not None:
                    self.output.lines = self.lines
            return self.lines

    def say(self, text: str) -> None:
        """Show a text."""
        self.execution.say(self.run.address, self.mask(text))

    def printed(self, stream: str, text: str) -> None:
        """Receive printed text."""
        if self.output is not None:
            self.output.feed(stream, text)

    def part(self, part: str, text: str | None = None, **data: Plain) -> None:
        """Forward a part of a reply."""
        parts = None if self.output is None else self.output.parts
        if parts is not None:
            parts.feed(part, text, data)

    @property
    def followed(self) -> bool:
        """Whether parts are received as they arrive."""
        return self.output is not None and self.output.parts is not None

    def mask(self, value: Plain) -> Plain:
        """Return a value with secrets masked."""
        return self._secrets.mask(value)

    def environment(self, name: str) -> CommandEnvironment:
        """Return an environment: one opened for the attempt, or a registered one."""
        if name in self.environments:
            return self.environments[name]
        try:
            return registry.environment(name)
        except registry.UnknownKind as error:
            raise EnvironmentUnavailable(error.with_hint) from error

    def on_thread(
        self, function: Callable[[], _Result], *, settles: bool = False
    ) -> Coroutine[Any, Any, _Result]:
        """Call a function on a thread."""
        if (calls := CALLS.get()) is not None:
            function = partial(calls.call, function)
        return on_thread(function, self._outlast if settles else None)

    def _outlast(self) -> float:
        """Signal the withdrawal to a function, and return how long to wait for it."""
        self.withdraw()
        return 0.0 if self._patience is None else self._patience()

    def withdraw(self) -> None:
        """Signal the withdrawal to functions that check `cancelled`."""
        self.cancelled.set()
