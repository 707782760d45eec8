"""Runs one attempt of a step: finds its kind, resolves secrets, checks arguments and result.

One `Runner` serves all executions of one compiled flow in a process. What can be found out once
for a step is found out once, and not before its first run (`flowengine.engines.attempts.tasks`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from flowengine.engines.attempts.printed import Printed
from flowengine.journal.shapes import Sound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.engines.attempts.outcome import Patience, QuickCall
    from flowengine.engines.attempts.printed import Follower
    from flowengine.engines.attempts.serialization import Kept
    from flowengine.engines.attempts.tasks import Task
    from flowengine.engines.environments.environments import Environments
    from flowengine.kernel.commands import Run
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import CompiledFlow
    from flowengine.sdk import ExecutionContext, Need
    from flowengine.sdk.previews import PreviewContext
    from flowengine.secrets import Secrets


class Runner:
    """Runs the tasks of one compiled flow.

    Args:
        flow: The flow in plain form.

    Attributes:
        quick: Returns what runs an attempt of a step, by its number, at once; None if it has to be
            awaited. The call takes the execution and the command, needs no event loop, costs a few
            microseconds, and raises `AttemptFailed` as `attempt` does.
        pure: The same if the effect of the step is `pure`, else None. Nobody can tell whether or
            how often such an attempt ran, except by its result.
    """

    def __init__(self, flow: CompiledFlow) -> None:
        self._flow = flow
        self._secrets: Secrets | None = None
        self._tasks: dict[int, Task] = {}
        self.quick = cache(self._quick)
        self.pure = cache(self._pure)

    async def attempt(
        self,
        execution: ExecutionContext,
        run: Run,
        environments: Environments | None = None,
        printed: Printed | None = None,
        patience: Patience | None = None,
    ) -> Kept:
        """Run one attempt to its end.

        Cancel the task to withdraw the attempt: processes are ended, requests given up; a function
        that runs on a thread cannot be stopped, it runs on. Its result is dropped if it does not
        come within `patience`.

        Args:
            run: The kernel's command.
            environments: Has what the step asks for.
            printed: Takes what it prints; see `printed`.
            patience: How long to wait for a function once the attempt is withdrawn; None: not.

        Returns:
            The value of the `succeeded` event: plain data, no secret in it; and its packed form.
        """
        return await self._task(run.step).attempt(execution, run, environments, printed, patience)

    async def needs(
        self, execution: ExecutionContext, run: Run, printed: Printed | None = None
    ) -> Mapping[str, Need]:
        """Return what an attempt may use of the budgets around it; see `StepKind.needs`.

        Raises:
            AttemptFailed: It cannot be worked out.
        """
        return await self._task(run.step).needs(execution, run, printed)

    def source(self, step: int) -> str | None:
        """Return the text of what a step calls, if its kind knows one; see `StepKind.source`."""
        from flowengine import registry

        spec = self._flow["steps"][step]
        return registry.kind(spec["kind"]).source(spec.get("task", {}))

    def preview(self, step: int, args: dict[str, Plain], context: PreviewContext) -> object:
        """Return what a tool says that a call of it would do; see `StepKind.preview`.

        Args:
            step: The step that calls.
            args: Its arguments, secrets masked.
            context: What the tool may look at.
        """
        from flowengine import registry
        from flowengine.python_modules import import_function
        from flowengine.sdk.previews import call_preview

        spec = self._flow["steps"][step]
        named = spec.get("preview")
        if named is not None:
            return call_preview(import_function(named["function"], named["folder"]), args)
        return registry.kind(spec["kind"]).preview(spec.get("task", {}), args, context)

    def mask(self, step: int, value: Plain) -> Plain:
        """Return a value without the secrets of the flow of a step."""
        return self._task(step).secrets.mask(value)

    def printed(self, step: int, follower: Follower | None) -> Printed:
        """Return what takes the output of an attempt.

        Args:
            step: Number of the step in the flow.
            follower: Takes lines and parts as they come; None: nobody follows.
        """
        secrets = self._task(step).secrets
        if follower is None:
            return Printed(secrets.mask)
        from flowengine.engines.attempts.parts import Parts

        return Printed(secrets.mask, follower.lines, Parts(secrets, follower.part))

    def secrets(self, step: int) -> Mapping[str, Plain]:
        """Return where the secrets of a step's flow come from."""
        return self._task(step).secrets.references

    def _quick(self, step: int) -> QuickCall | None:
        return self._task(step).quick_call()

    def _pure(self, step: int) -> QuickCall | None:
        is_pure = self._flow["steps"][step].get("effect") == "pure"
        return self.quick(step) if is_pure else None

    def _task(self, step: int) -> Task:
        task = self._tasks.get(step)
        if task is None:
            from flowengine.engines.attempts.tasks import Task
            from flowengine.secrets import Secrets

            if self._secrets is None:
                self._secrets = Secrets(self._flow.get("secrets", {}))
            with Sound(f"flow {self._flow['id']}"):
                task = self._tasks[step] = Task(self._flow["steps"][step], self._secrets)
        return task
