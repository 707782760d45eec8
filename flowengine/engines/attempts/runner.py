"""The runner of attempts: finds the step kind, resolves secrets, checks arguments and result.

One `TaskRunner` serves all executions of one compiled flow in a process. Everything that depends
only on the step is computed once, at its first run (`flowengine.engines.attempts.tasks`).
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from typing import Any

from flowengine import registry
from flowengine.engines.attempts.environments import Environments
from flowengine.engines.attempts.outcome import Patience, QuickCall
from flowengine.engines.attempts.printed import AttemptParts, Follower, Printed
from flowengine.engines.attempts.serialization import StoredValue
from flowengine.engines.attempts.tasks import Task
from flowengine.journal.shapes import Sound
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.sdk.python.imported_modules import import_function
from flowengine.sdk.python.user_code import call_preview
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.sdk.steps.previews import PreviewContext
from flowengine.sdk.steps.step_kind import Need
from flowengine.secrets import Secrets


class TaskRunner:
    """Runs the tasks of one compiled flow.

    Args:
        flow: The flow in plain form.
        in_memory: Whether nothing of its executions outlives this process.

    Attributes:
        quick: Returns, for a step number, a function that runs an attempt synchronously, or None if
            the attempt must be awaited. The function takes the execution and the command, needs no
            event loop, costs a few microseconds, and raises `AttemptFailed` as `attempt` does.
        ahead: The same if the attempt may begin before earlier results are stored, because
            repeating those has no effect: the step is `pure`, or, in memory, `idempotent`, which
            only an interrupt could repeat there. Otherwise None.
    """

    def __init__(self, flow: CompiledFlow, *, in_memory: bool = False) -> None:
        self._flow = flow
        self._effects_ahead = ("pure", "idempotent") if in_memory else ("pure",)
        self._secrets: Secrets | None = None
        self._tasks: dict[int, Task] = {}
        self.quick = cache(lambda step: self._task(step).quick_call())
        self.ahead = cache(self._ahead)

    def attempt(
        self,
        execution: ExecutionContext,
        run: Run,
        environments: Environments | None = None,
        printed: Printed | None = None,
        patience: Patience | None = None,
    ) -> Coroutine[Any, Any, StoredValue]:
        """Run one attempt to its end, when it is awaited.

        Cancel the task to withdraw the attempt. Processes are ended and requests aborted. A
        function on a thread cannot be stopped and keeps running. Its result is dropped if it does
        not arrive within `patience`.

        Args:
            execution: The execution, as visible to the step.
            run: The kernel's command.
            environments: Provides the environments that the step requires.
            printed: Receives the output. See `printed`.
            patience: How long to wait for a function once the attempt is withdrawn. None: do not
                wait.

        Returns:
            The value of the `succeeded` event, as plain data without secrets, and its packed form.
        """
        task = self._tasks.get(run.step) or self._task(run.step)
        return task.attempt(execution, run, environments, printed, patience)

    async def needs(
        self, execution: ExecutionContext, run: Run, printed: Printed | None = None
    ) -> Mapping[str, Need]:
        """Return the amounts that an attempt may use of the enclosing budgets.

        See `StepKind.needs`.

        Raises:
            AttemptFailed: The amounts cannot be computed.
        """
        return await self._task(run.step).needs(execution, run, printed)

    def source(self, step: int) -> str | None:
        """Return the source text of the called tool, if its kind provides one.

        See `StepKind.source`.
        """
        spec = self._flow["steps"][step]
        return registry.kind(spec["kind"]).source(spec.get("task", {}))

    def preview(self, step: int, args: dict[str, Plain], context: PreviewContext) -> object:
        """Return a tool's preview of the effect of a call. See `StepKind.preview`.

        Args:
            step: The calling step.
            args: Its arguments, secrets masked.
            context: The context available to the tool.
        """
        spec = self._flow["steps"][step]
        named = spec.get("preview")
        if named is not None:
            return call_preview(import_function(named["function"], named["folder"]), args)
        return registry.kind(spec["kind"]).preview(spec.get("task", {}), args, context)

    def references(self, step: int) -> Mapping[str, Plain]:
        """Return the sources of the secrets of a step's flow."""
        return self._task(step).secrets.references

    def mask(self, step: int, value: Plain) -> Plain:
        """Return a value with the secrets of a step's flow masked."""
        return self._task(step).secrets.mask(value)

    def printed(self, step: int, follower: Follower | None) -> Printed:
        """Return the receiver of an attempt's output.

        Args:
            step: Number of the step in the flow.
            follower: Receives lines and parts as they arrive. None: without a follower.
        """
        secrets = self._secrets or self._task(step).secrets
        if follower is None:
            return Printed(secrets.mask)

        return Printed(
            secrets.mask, follower.lines, AttemptParts(secrets, follower.part, follower.end)
        )

    def _ahead(self, step: int) -> QuickCall | None:
        may_repeat = self._flow["steps"][step].get("effect") in self._effects_ahead
        return self.quick(step) if may_repeat else None

    def _task(self, step: int) -> Task:
        task = self._tasks.get(step)
        if task is None:
            if self._secrets is None:
                self._secrets = Secrets(self._flow.get("secrets", {}))
            with Sound(f"flow {self._flow['id']}"):
                task = self._tasks[step] = Task(self._flow["steps"][step], self._secrets)
        return task


# Preloading for steps while earlier steps are still running.


def load_ahead(steps: Sequence[StepSpec], labels: Mapping[str, str]) -> None:
    """Let step kinds preload the requirements of steps, on a separate thread.

    Args:
        steps: The steps marked for preloading.
        labels: Labels of the execution.
    """

    def load() -> None:
        for step in steps:
            with suppress(Exception):  # errors are reported when the step runs
                registry.kind_class(step["kind"]).ahead(step.get("task", {}), labels)

    run = copy_context().run  # context variables set by the program apply there too
    threading.Thread(target=run, args=(load,), name="flowengine-ahead", daemon=True).start()
