"""The environments of executions: acquired for attempts, kept for scopes, and always released.

The environments that a step requests are ensured when an attempt begins. The first hold on an
environment of a region, execution or session is kept until that scope ends. An environment of a
step ends with the attempt. Nothing here is loaded before a flow uses an environment, or a step must
be awaited.
"""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flowengine import registry
from flowengine.engines.attempts.environments import AttemptEnvironment, NotAgain
from flowengine.engines.environments.requests import (
    EXECUTION,
    REGION,
    SESSION,
    STEP,
    EnvironmentRequests,
    name_with_args,
    region_owner,
)
from flowengine.execution_environment import EnvironmentManager, Handle, ReleaseReport
from flowengine.execution_environment.specs.spec import check_spec
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Opening
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import execution_of
from flowengine.sdk import (
    EnvironmentClosed,
    EnvironmentFailure,
    EnvironmentUnavailable,
    SecretMissing,
    StepError,
)
from flowengine.sdk.environments import NotReleased, Scope
from flowengine.sdk.environments.resources import background
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine.sdk.steps.context import Command, ExecutionContext, StepContext
from flowengine.sdk.steps.step_log import StepLog

_ANEW = "(reopened: variables set before in this environment are gone, files are still there)"
_ENDING = 5.0
"""Seconds that a command has to exit when its attempt is withdrawn."""


class Opened(AttemptEnvironment):
    """An environment that an attempt uses.

    Args:
        handle: The hold.
        fresh: Whether it was reopened since the execution used it last.
        kept: Whether the hold outlasts the attempt.
        opening: How it was opened, if no earlier attempt of the execution has used it.
    """

    def __init__(self, handle: Handle, *, fresh: bool, kept: bool, opening: Opening | None) -> None:
        self.handle = handle
        self.fresh = fresh
        self.kept = kept
        self.opening = opening

    @property
    def resource(self) -> Any:
        return self.handle.resource

    @property
    def generation(self) -> int:
        """1 for the first opening, and higher after each reopening."""
        return self.handle.generation

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run a command of a `run` step in it, and return the result.

        Args:
            context: The context of the attempt.
            command: The command to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            EnvironmentUnavailable: Its kind cannot run commands.
        """
        provider = registry.provider(self.handle.kind)
        # Providers run on the loop that owns their resources, whichever loop drives this.
        running = provider.run(self.handle.resource, context, command)
        try:
            result = await background().see_through(running, _ENDING)
        except NotImplementedError as error:
            raise EnvironmentUnavailable(str(error)) from None
        if self.fresh and provider.live:
            result = {**result, "stderr": f"{_ANEW}\n{result['stderr']}"}
        return result


def opening_of(name: str, scope: str, handle: Handle) -> Opening:
    """Return how an environment was opened, for the journal.

    Args:
        name: Its name in the flow.
        scope: Its scope in the flow.
        handle: A hold on it.
    """
    return {
        "name": name,
        "kind": handle.kind,
        "scope": scope,
        "provider": handle.provider,
        "asked": int(handle.asked_at * 1000),
        "ready": int(handle.ready_at * 1000),
    }


_ON_RELEASE = "closed while the execution waits (on_wait: release)"
_ON_END = "closed because this process ends (on_wait: keep cannot outlast it)"


class EngineEnvironments:
    """The environments of all executions of an engine.

    Args:
        folder: Returns the directory in which the manager records open environments, on first use.
            None: no record survives the process.
        wanted: Returns whether an execution may still continue.
        on_not_released: Called with the id of an execution and its environments that could not be
            closed.
        on_opened_ahead: Called after an environment was opened in the background, with the id of
            the execution, the name, and the error or None.
        guarded: Directories that no sandbox may access.
    """

    def __init__(
        self,
        folder: Callable[[], str] | None,
        wanted: Callable[[str], bool],
        on_not_released: Callable[[str, Sequence[NotReleased]], None],
        on_opened_ahead: Callable[[str, str, StepError | None], None],
        guarded: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._guarded = guarded
        self._wanted = wanted
        self._found: EnvironmentManager | None = None
        self._making = allocate_lock()
        self._temporary: Path | None = None
        self._on_not_released = on_not_released
        self._on_opened_ahead = on_opened_ahead
        self._kept: dict[tuple[Scope, str], dict[str, Handle]] = {}
        """(scope, owner) → the holds kept for it, by id of the opening."""
        self._owners: dict[str, dict[tuple[Scope, str], None]] = {}
        """Execution → its scopes that have environments."""
        self._ending: dict[str, dict[asyncio.Future[None], set[str]]] = {}
        """Execution → future of a region that is being closed → the names of the region's
        environments."""
        self._resting: dict[str, tuple[ExecutionContext, dict[str, Handle]]] = {}
        """Execution → environments that stay open while it waits (`on_wait: keep`), by id of the
        opening."""
        self._seen: dict[str, dict[str, int]] = {}
        """Execution → id of the spec → the generation that it used last."""
        self._failed_ahead: dict[str, list[Mapping[str, Plain]]] = {}
        """Execution → environments that could not be opened ahead of their use."""
        self._requests = EnvironmentRequests(
            lambda: self.manager,
            lambda region: {h.resource_key for h in self._kept.get((REGION, region), {}).values()},
        )

    @property
    def manager(self) -> EnvironmentManager:
        """The manager, created on first use from any thread."""
        if self._found is None:
            with self._making:
                if self._found is None:
                    folder: str | Path
                    if self._folder is None:
                        folder = self._temporary = make_scratch()
                    else:
                        folder = self._folder()
                    self._found = EnvironmentManager(
                        folder, wanted=self._is_wanted, guarded=self._guarded
                    )
        return self._found

    def named(self, spec: Mapping[str, Any]) -> tuple[str, str]:
        """Check a spec without opening anything, and return its name and scope."""
        declared = check_spec(spec)
        return declared.key, declared.scope

    async def have(
        self,
        context: ExecutionContext,
        run: Run,
        secrets: Mapping[str, Plain],
        later: Collection[str] = (),
    ) -> dict[str, Opened]:
        """Open all environments that an attempt requests, or none of them.

        Args:
            context: The execution.
            run: The attempt.
            secrets: Sources of the flow's secrets.
            later: Names of environments that are only opened in the background once the others are
                open. The attempt does not receive them.

        Returns:
            The environments by the names under which the step uses them, to be released by
                `give_back`.

        Raises:
            NotAgain: The execution used an environment before that cannot be reopened now.
            EnvironmentFailure: An environment cannot be opened.
            SecretMissing: A required secret is missing.
        """
        uses = run.environments
        if later:
            now = {name: use for name, use in uses.items() if name not in later}
            run = run._replace(environments=now)
        if context.id in self._ending:
            await self._let_end(context, run)
        try:
            handles = await self._ensure(context, run, secrets)
        except (EnvironmentFailure, SecretMissing) as error:
            spec = error.environment
            if spec is not None and self.manager.was_open(spec):
                raise NotAgain(error, self.manager.inspect(spec) or {}) from error
            raise
        had: dict[str, Opened] = {}
        for (name, use), handle in zip(run.environments.items(), handles, strict=True):
            seen = self._seen.setdefault(context.id, {})
            before, seen[handle.spec_id] = seen.get(handle.spec_id), handle.generation
            is_first = self._keep(context.id, handle)
            opening = None
            if before != handle.generation and (is_first or handle.scope == STEP):
                opening = opening_of(str(use["spec"]["resource_key"]), use["scope"], handle)
            is_fresh = handle.generation > 1 if before is None else before != handle.generation
            had[name] = Opened(handle, fresh=is_fresh, kept=is_first, opening=opening)
        for name in later:
            self._open_ahead(context, run, name, uses[name], secrets)
        return had

    @property
    def is_used(self) -> bool:
        """Whether the manager has been used."""
        return self._found is not None

    async def give_back(self, execution: str, had: Iterable[Opened]) -> None:
        """Release the environments that end with an attempt of an execution, newest first."""
        for handle in reversed([opened.handle for opened in had if not opened.kept]):
            self._look_at(execution, await self.manager.async_release(handle))
            if handle.scope == STEP:
                await self.manager.async_release_scope(STEP, handle.owner_id)

    @asynccontextmanager
    async def lent(
        self, context: ExecutionContext, run: Run, secrets: Mapping[str, Plain], *, opens: bool
    ) -> AsyncIterator[dict[str, Any]]:
        """Provide the environments of a waiting call to its preview, and release them.

        Inert environments are opened. Others are provided if they are open.

        Args:
            context: The execution.
            run: The attempt that the call would make.
            secrets: Sources of the flow's secrets.
            opens: Whether the attempt will be made in this process.

        Raises:
            EnvironmentFailure: An environment cannot be opened.
            SecretMissing: A required secret is missing.
        """
        found, opening = {}, {}
        for name, use in run.environments.items():
            if opens and registry.provider(use["spec"]["kind"]).inert:
                opening[name] = use
                continue
            spec = self._requests.named(context, run, use)
            for handle in self._kept.get((spec["scope"], spec["owner_id"]), {}).values():
                if handle.resource_key == spec["resource_key"]:
                    found[name] = handle.resource
        handles: list[Handle] = []
        try:
            if opening:
                handles = await self._ensure(context, run._replace(environments=opening), secrets)
            for name, handle in zip(opening, handles, strict=True):
                found[name] = handle.resource
                if handle.scope in {EXECUTION, REGION}:  # their files are removed with it
                    owner: tuple[Scope, str] = (handle.scope, handle.owner_id)
                    self._owners.setdefault(context.id, {})[owner] = None
            yield found
        finally:
            lent = [Opened(handle, fresh=False, kept=False, opening=None) for handle in handles]
            await self.give_back(context.id, lent)

    async def end_region(self, context: ExecutionContext, region: int) -> None:
        """Release the environments of a region that has ended, before any replacement is opened."""
        execution, owner = context.id, (REGION, region_owner(context.owner, region))
        if owner not in self._owners.get(execution, ()):
            return
        ended = asyncio.get_running_loop().create_future()
        ending = self._ending.setdefault(execution, {})
        ending[ended] = {handle.resource_key for handle in self._kept.get(owner, {}).values()}
        try:
            await self._end(execution, [owner])
        finally:
            ended.set_result(None)
            del ending[ended]
            if not ending:
                del self._ending[execution]

    def has_any(self, execution: str) -> bool:
        """Return whether any environment is kept for an execution."""
        return execution in self._owners

    def opened(self, execution: str, name: str) -> Any:
        """Return the open environment of an execution with this name, or None."""
        for owner in self._owners.get(execution, ()):
            for handle in self._kept.get(owner, {}).values():
                if handle.resource_key == name:
                    return handle.resource
        return None

    async def finish(self, context: ExecutionContext, flow: CompiledFlow) -> None:
        """Release all environments of an execution that has ended."""
        owners = [*self._owners.get(context.id, ())]
        await self._end(context.id, list(reversed(owners)))
        # Workspaces of an earlier process may remain even if this one has not used them.
        scopes = {*flow.get("environments", ())}
        scopes |= {given["scope"] for given in context.environments.values()}
        for scope, owner in ((REGION, region_owner(context.owner, 0)), (EXECUTION, context.owner)):
            if scope in scopes and (scope, owner) not in owners:
                await self.manager.async_release_scope(scope, owner)
        self._owners.pop(context.id, None)
        self._resting.pop(context.id, None)
        self._seen.pop(context.id, None)
        self._failed_ahead.pop(context.id, None)

    async def suspend(self, context: ExecutionContext) -> None:
        """Release the environments not needed while an execution waits or is not driven."""
        for scope, owner in reversed(self._owners.get(context.id, {})):
            kept = self._kept.pop((scope, owner), {})
            report = await self.manager.async_suspend_scope(scope, owner)
            self._look_at(context.id, report)
            released = {handle: kept.pop(handle) for handle in report.released if handle in kept}
            _report_closed(context, released.values(), _ON_RELEASE)
            if kept:
                _, resting = self._resting.setdefault(context.id, (context, {}))
                resting.update(kept)

    def kept_for(self) -> list[str]:
        """Return the executions for which environments are kept."""
        return [*self._owners]

    async def lose(self, execution: str) -> None:
        """Close the environments of an execution that uses others now, but keep their files."""
        for owner in reversed(self._owners.get(execution, {})):
            for handle in self._kept.pop(owner, {}).values():
                self._look_at(execution, await self.manager.async_release(handle))

    def close(self) -> None:
        """Close all environments, and warn of lost state of waiting executions."""
        if self._found is not None:
            closed = set(self._found.close().released)
            self._found = None
            for context, resting in self._resting.values():
                lost = [handle for key, handle in resting.items() if key in closed]
                _report_closed(context, lost, _ON_END)
            self._resting.clear()
        if self._temporary is not None:
            remove_scratch(self._temporary)
            self._temporary = None

    # Internals

    async def _ensure(
        self, context: ExecutionContext, run: Run, secrets: Mapping[str, Plain]
    ) -> list[Handle]:
        try:
            return await self._ask(context, run, secrets)
        except EnvironmentFailure as error:
            self._forget_released(error)
        return await self._ask(context, run, secrets)

    def _forget_released(self, error: EnvironmentFailure) -> None:
        """Declare everything again if other code released a scope, otherwise raise the error."""
        if error.type != "UnknownEnvironment":
            raise error
        self._requests.forget_all()

    def _open_ahead(
        self,
        context: ExecutionContext,
        run: Run,
        name: str,
        use: Mapping[str, Plain],
        secrets: Mapping[str, Plain],
    ) -> None:
        """Begin to open an environment for its first user.

        After a failure, opening is left to that user. Otherwise each subflow that shares the
        environment would retry and report it again.
        """
        if use in self._failed_ahead.get(context.id, ()):
            return
        if use["scope"] != SESSION:
            self._owners.setdefault(context.id, {})[EXECUTION, context.owner] = None
        try:
            opening = self.manager.open_ahead(self._requests.of(context, run, use, secrets))
        except EnvironmentFailure as error:
            self._forget_released(error)
            opening = self.manager.open_ahead(self._requests.of(context, run, use, secrets))
        opening.add_done_callback(partial(self._report_opened, context.id, name, use))

    def _report_opened(
        self, execution: str, name: str, use: Mapping[str, Plain], opening: Future[None]
    ) -> None:
        """Report the result of a background opening, unless its owner has closed it."""
        error = opening.exception()
        if isinstance(error, EnvironmentClosed):
            return
        assert error is None or isinstance(error, StepError)
        if error is not None:
            self._failed_ahead.setdefault(execution, []).append(use)
        self._on_opened_ahead(execution, name, error)

    async def _let_end(self, context: ExecutionContext, run: Run) -> None:
        """Wait for closing regions with environments that this attempt opens for another region."""
        uses = run.environments.values()
        names = {name_with_args(use["spec"]) for use in uses if use["scope"] == REGION}
        for region in run.regions:
            kept = self._kept.get((REGION, region_owner(context.owner, region)), {})
            names -= {handle.resource_key for handle in kept.values()}
        ending = [ended for ended, had in self._ending[context.id].items() if had & names]
        if ending:
            await asyncio.wait(ending)

    async def _ask(
        self, context: ExecutionContext, run: Run, secrets: Mapping[str, Plain]
    ) -> list[Handle]:
        uses = run.environments.values()
        wishes = [self._requests.of(context, run, given, secrets) for given in uses]
        return await self.manager.async_ensure_all(wishes, holder=context.id)

    async def _end(self, execution: str, owners: Sequence[tuple[Scope, str]]) -> None:
        for scope, owner in owners:
            self._kept.pop((scope, owner), None)
            self._requests.forget(scope, owner)
            self._owners.get(execution, {}).pop((scope, owner), None)
            self._look_at(execution, await self.manager.async_release_scope(scope, owner))

    def _look_at(self, execution: str, report: ReleaseReport) -> None:
        if report.failed:
            self._on_not_released(execution, report.failed)

    def _keep(self, execution: str, handle: Handle) -> bool:
        """Keep a hold for its scope, if it is the first one on this opening."""
        if handle.scope == STEP:
            return False
        owner: tuple[Scope, str] = (handle.scope, handle.owner_id)
        kept = self._kept.setdefault(owner, {})
        if handle.scope != SESSION:
            self._owners.setdefault(execution, {})[owner] = None
        if handle.id in kept:
            return False
        kept[handle.id] = handle
        return True

    def _is_wanted(self, scope: str, owner: str) -> bool:
        if scope not in {EXECUTION, REGION}:
            return False
        return bool(self._wanted(execution_of(owner)))


def _report_closed(context: ExecutionContext, handles: Iterable[Handle], why: str) -> None:
    """Warn of environments that ended before their execution and held more than files."""
    for handle in handles:
        if registry.provider(handle.kind).live:
            name = handle.resource_key
            text = f"{why}: its variables and current directory are lost, its files are kept"
            StepLog(context.id, name, str).warning("%s", text)
            context.warn(f"{name}: {text}", {"environment": name})
