"""The environments of executions: had for attempts, kept for scopes, given back on every way out.

What a step asks for is ensured when an attempt begins. The first hold on what belongs to a region,
an execution or a session is kept until that ends; what belongs to a step ends with the attempt.
Nothing here is loaded before a flow uses an environment.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.environments.specs import filled, name_with_args
from flowengine.errors import Conflict
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk import (
    Command,
    Environment,
    EnvironmentFailure,
    EnvironmentUnavailable,
    SecretMissing,
    StepError,
)

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from flowengine.execution_environment import EnvironmentManager, Handle, NotReleased, Report
    from flowengine.kernel.commands import Consult
    from flowengine.kernel.graph.compiled import CompiledFlow
    from flowengine.policy_approval import Answer
    from flowengine.sdk import Execution as Context
    from flowengine.sdk import StepContext
    from flowengine.sdk.environments import Scope

STEP: Scope = "action_call"
REGION: Scope = "region"
EXECUTION: Scope = "execution"
SESSION: Scope = "session"
_ANEW = "(reopened: variables set before in this environment are gone, files are still there)"
_ON_RELEASE = "closed while the execution waits (on_wait: release)"
_ON_END = "closed because this process ends (on_wait: keep cannot outlast it)"
_ENDING = 5.0
"""Seconds that a command has to end when its attempt is withdrawn."""
_TOLD = ("spec_id", "kind", "provider", "scope", "owner_id", "resource_key", "generation")
_SCOPES: dict[str, Scope] = {
    "step": STEP,
    "region": REGION,
    "execution": EXECUTION,
    "session": SESSION,
}


class Opened(Environment):
    """An environment that an attempt has.

    Args:
        handle: The hold.
        fresh: Whether it was opened anew since the execution used it last.
    """

    def __init__(self, handle: Handle, fresh: bool) -> None:
        self.handle = handle
        self.fresh = fresh

    @property
    def resource(self) -> Any:
        """The live resource."""
        return self.handle.resource

    @property
    def generation(self) -> int:
        """1 for the first opening; higher after each time it was opened anew."""
        return self.handle.generation

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run a command in it, as a `run` step says, and return what came of it.

        Args:
            command: What to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            EnvironmentUnavailable: Its kind runs no commands.
        """
        from flowengine import registry
        from flowengine.sdk.background import background

        provider = registry.provider(self.handle.kind)
        # What a provider does it does on the loop its resources live on, whatever loop drives this.
        running = provider.run(self.handle.resource, context, command)
        try:
            result = await background().see_through(running, _ENDING)
        except NotImplementedError as error:
            raise EnvironmentUnavailable(str(error)) from None
        if self.fresh and provider.live:
            result = {**result, "stderr": f"{_ANEW}\n{result['stderr']}"}
        return result


class Had(NamedTuple):
    """What one attempt has."""

    environments: dict[str, Opened]
    """By the names under which the step knows them."""
    holds: list[Handle]
    """Those that end with the attempt."""


class NotAgain(Exception):
    """An environment that an execution had before cannot be had again.

    Args:
        why: What the manager says; its data then say which environment it is, too.
        which: What the manager knows of it.
    """

    def __init__(self, why: StepError, which: Mapping[str, Any]) -> None:
        super().__init__(why.message)
        more = why.data if isinstance(why.data, dict) else {}
        why.data = {**more, "environment": {key: which.get(key) for key in _TOLD}}
        self.why = why


class Environments:
    """The environments of all executions of an engine.

    Args:
        folder: Returns where the manager writes down what is open, when it is first needed; None:
            nothing survives the process.
        wanted: Says whether an execution may still go on.
        guarded: Folders that no sandbox may see.
    """

    def __init__(
        self, folder: Callable[[], str] | None, wanted: Any, guarded: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._guarded = guarded
        self._wanted = wanted
        self._found: EnvironmentManager | None = None
        self._making = allocate_lock()
        self._temporary: Path | None = None
        self.on_not_released: Callable[[str, Sequence[NotReleased]], None] = lambda id, failed: None
        """Told of what could not be closed: of which execution, and what."""
        self._kept: dict[tuple[Scope, str], dict[str, Handle]] = {}
        """(scope, owner) → the holds that are kept for it, by id of the opening."""
        self._owners: dict[str, dict[tuple[Scope, str], None]] = {}
        """Execution → the scopes of it that have something."""
        self._ending: dict[str, dict[asyncio.Future[None], set[str]]] = {}
        """Execution → what tells that a region of it is closed → the names of what that had."""
        self._resting: dict[str, tuple[Context, dict[str, Handle]]] = {}
        """Execution → what stays open while it waits (`on_wait: keep`), by id of the opening."""
        self._seen: dict[str, dict[str, int]] = {}
        """Execution → id of the spec → the generation that it used last."""
        self._ids: dict[tuple[Scope, str], dict[str, tuple[Plain, str]]] = {}
        """(scope, owner) → name → what was declared for it, and its id: checking a spec takes
        twenty times as long as comparing it."""

    @property
    def manager(self) -> EnvironmentManager:
        """The manager, made when it is first asked for, by whichever thread that is."""
        if self._found is None:
            from flowengine.execution_environment import EnvironmentManager

            with self._making:
                if self._found is None:
                    folder: str | Path
                    if self._folder is None:
                        from flowengine.sdk.scratch import make_scratch

                        folder = self._temporary = make_scratch()
                    else:
                        folder = self._folder()
                    self._found = EnvironmentManager(
                        folder, wanted=self._is_wanted, guarded=self._guarded
                    )
        return self._found

    async def have(self, context: Context, run: Run, secrets: Mapping[str, Plain]) -> Had:
        """Open what an attempt asks for, all of it or nothing.

        Args:
            context: The execution.
            run: The attempt.
            secrets: Where the secrets of the flow come from.

        Returns:
            What it has, to be given back by `give_back`.

        Raises:
            NotAgain: The execution had it before, and cannot have it again now.
            EnvironmentFailure: It cannot be had.
            SecretMissing: It needs a secret that is not there.
        """
        names = list(run.environments)
        if context.id in self._ending:
            await self._let_end(context.id, run)
        try:
            handles = await self._ensure(context, run, secrets)
        except (EnvironmentFailure, SecretMissing) as error:
            spec = error.environment
            if spec is not None and self.manager.was_open(spec):
                raise NotAgain(error, self.manager.inspect(spec) or {}) from error
            raise
        holds = [handle for handle in handles if not self._keep(context.id, handle)]
        opened = {
            name: Opened(handle, self._is_fresh(context.id, handle))
            for name, handle in zip(names, handles, strict=True)
        }
        return Had(opened, holds)

    def may_answer(self) -> bool:
        """Return whether anybody in this process has to hear of a question, or may answer it."""
        from flowengine.policy_approval import configured

        return self._found is not None or configured() is not None

    async def consult(
        self, context: Context, asked: Consult, wait: str, secrets: Mapping[str, Plain]
    ) -> tuple[str, Answer] | None:
        """Ask whoever may answer at once whether an environment may be opened.

        Args:
            context: The execution.
            asked: What is asked about.
            wait: Full id of the question.
            secrets: Where the secrets of the flow come from.

        Returns:
            Who answered, and the answer; None: it is left to people.
        """
        run = Run(asked.unit, 1, asked.step, "", None, None, None, (asked.region,))
        spec = self._wish(context, run, asked.environment, secrets)
        return await self.manager.async_consult(spec, wait, asked.reason, asked.required)

    async def give_back(self, execution: str, had: Had) -> None:
        """Give back what ends with an attempt of an execution."""
        for handle in reversed(had.holds):
            self._look_at(execution, await self.manager.async_release(handle))
            if handle.scope == STEP:
                await self.manager.async_release_scope(STEP, handle.owner_id)

    async def end_region(self, execution: str, region: int) -> None:
        """Give back what belongs to a region that has ended; nothing takes its place before."""
        import asyncio

        owner = (REGION, _region(execution, region))
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

    def may_have(self, context: Context, flow: CompiledFlow) -> bool:
        """Return whether an execution has, or may have had, any environment."""
        return "environments" in flow or context.id in self._owners or bool(context.environments)

    async def finish(self, context: Context, flow: CompiledFlow) -> None:
        """Give back all that an execution has, which is over."""
        owners = [*self._owners.get(context.id, ())]
        await self._end(context.id, list(reversed(owners)))
        # What an earlier process had, and this one did not use, left its workspaces.
        scopes = {*flow.get("environments", ())}
        scopes |= {given["scope"] for given in context.environments.values()}
        for scope, owner in ((REGION, _region(context.id, 0)), (EXECUTION, context.id)):
            if scope in scopes and (scope, owner) not in owners:
                await self.manager.async_release_scope(scope, owner)
        self._owners.pop(context.id, None)
        self._resting.pop(context.id, None)
        self._seen.pop(context.id, None)

    async def suspend(self, context: Context) -> None:
        """Give back what need not be kept while an execution waits, or is let go."""
        for scope, owner in reversed(self._owners.get(context.id, {})):
            kept = self._kept.pop((scope, owner), {})
            report = await self.manager.async_suspend_scope(scope, owner)
            self._look_at(context.id, report)
            released = {one: kept.pop(one) for one in report.released if one in kept}
            _tell_closed(context, released.values(), _ON_RELEASE)
            if kept:
                _, resting = self._resting.setdefault(context.id, (context, {}))
                resting.update(kept)

    def close(self) -> None:
        """Close everything, and tell whose state is lost while its execution waits."""
        if self._found is not None:
            closed = set(self._found.close().released)
            self._found = None
            for context, resting in self._resting.values():
                lost = [handle for one, handle in resting.items() if one in closed]
                _tell_closed(context, lost, _ON_END)
            self._resting.clear()
        if self._temporary is not None:
            from flowengine.sdk.scratch import remove_scratch

            remove_scratch(self._temporary)
            self._temporary = None

    # Inside

    async def _ensure(
        self, context: Context, run: Run, secrets: Mapping[str, Plain]
    ) -> list[Handle]:
        try:
            return await self._ask(context, run, secrets)
        except EnvironmentFailure as error:
            if error.type != "UnknownEnvironment":
                raise
        # Somebody else has released the scope of one: all are declared again.
        self._ids.clear()
        return await self._ask(context, run, secrets)

    async def _let_end(self, execution: str, run: Run) -> None:
        """Wait for regions that are being closed and had what this attempt opens for another."""
        import asyncio

        uses = run.environments.values()
        names = {name_with_args(use["spec"]) for use in uses if use["scope"] == REGION}
        for region in run.regions:
            kept = self._kept.get((REGION, _region(execution, region)), {})
            names -= {handle.resource_key for handle in kept.values()}
        ending = [ended for ended, had in self._ending[execution].items() if had & names]
        if ending:
            await asyncio.wait(ending)

    async def _ask(self, context: Context, run: Run, secrets: Mapping[str, Plain]) -> list[Handle]:
        uses = run.environments.values()
        wishes = [self._wish(context, run, given, secrets) for given in uses]
        return await self.manager.async_ensure_all(wishes, holder=context.id)

    def _note_answer(self, spec: Mapping[str, Any], approved: Mapping[str, Plain]) -> None:
        """Pass an answer to the manager: it may narrow the policy, or apply to a session.

        That of a session counts for the other executions that share it here, too.
        """
        if spec["scope"] != SESSION and "policy" not in approved:
            return
        answer = {"approved": True, "reason": approved["by"], "policy": approved.get("policy")}
        with suppress(Conflict):  # the first one stands
            self.manager.answer(self.manager.declare(spec)["id"], answer)

    async def _end(self, execution: str, owners: Sequence[tuple[Scope, str]]) -> None:
        for scope, owner in owners:
            self._kept.pop((scope, owner), None)
            self._ids.pop((scope, owner), None)
            self._owners.get(execution, {}).pop((scope, owner), None)
            self._look_at(execution, await self.manager.async_release_scope(scope, owner))

    def _look_at(self, execution: str, report: Report) -> None:
        if report.failed:
            self.on_not_released(execution, report.failed)

    def _wish(
        self, context: Context, run: Run, given: Mapping[str, Plain], secrets: Mapping[str, Plain]
    ) -> dict[str, Any] | str:
        """Return what the manager is asked for: a spec, or the id of one that it knows already."""
        spec = self._named(context, run, given)
        owner, name = (spec["scope"], spec["owner_id"]), spec["resource_key"]
        known = self._ids.get(owner, {}).get(name)
        if known is not None and known[0] == given:
            return known[1]
        if "secrets" in given:  # a program gave it: `secret:NAME` is a reference there
            own = spec.get("secrets", {})
            spec |= {"secrets": {**secrets, **own}, "folder": context.workdir}
        else:
            spec |= filled(spec, context.workdir, secrets)
        if "mounts" in spec:
            spec["mounts"] = {
                inside: self._mounted(context, run, each, secrets)
                for inside, each in spec["mounts"].items()
            }
        if "approved" in given:
            self._note_answer(spec, given["approved"])
        if spec["scope"] == STEP or "mounts" in spec:
            return spec
        id: str = self.manager.declare(spec)["id"]
        self._ids.setdefault(owner, {})[name] = (given, id)
        return id

    def _named(self, context: Context, run: Run, given: Mapping[str, Plain]) -> dict[str, Any]:
        """Return a spec with the name and the owner that it has for an attempt."""
        spec = dict(given["spec"])
        scope = spec["scope"] = _SCOPES[given["scope"]]
        spec["resource_key"] = name_with_args(spec)
        if scope == STEP:
            spec["owner_id"] = f"{context.id}/{run.unit}.{run.attempt}"
        elif scope == EXECUTION:
            spec["owner_id"] = context.id
        elif scope == REGION:
            spec["owner_id"] = self._region_of(context.id, run, spec)
        else:
            spec.setdefault("owner_id", "")
        return spec

    def _mounted(
        self, context: Context, run: Run, given: Mapping[str, Plain], secrets: Mapping[str, Plain]
    ) -> str:
        wish = self._wish(context, run, given, secrets)
        found: str = wish if isinstance(wish, str) else self.manager.declare(wish)["id"]
        return found

    def _region_of(self, execution: str, run: Run, spec: Mapping[str, Any]) -> str:
        """Return the region that has it already, from the inside outwards; else the innermost."""
        regions = run.regions or (0,)
        for region in regions:
            owner = _region(execution, region)
            kept = self._kept.get((REGION, owner), {})
            if any(handle.resource_key == spec["resource_key"] for handle in kept.values()):
                return owner
        return _region(execution, regions[0])

    def _keep(self, execution: str, handle: Handle) -> bool:
        """Keep a hold for its scope, if it is the first on this opening."""
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

    def _is_fresh(self, execution: str, handle: Handle) -> bool:
        seen = self._seen.setdefault(execution, {})
        before, seen[handle.spec_id] = seen.get(handle.spec_id), handle.generation
        return handle.generation > 1 if before is None else before != handle.generation

    def _is_wanted(self, scope: str, owner: str) -> bool:
        if scope not in {EXECUTION, REGION}:
            return False
        return bool(self._wanted(owner.partition("/")[0]))


def _tell_closed(context: Context, handles: Iterable[Handle], why: str) -> None:
    """Tell which environments ended before their execution, if more than files was in them."""
    from flowengine import registry
    from flowengine.step_log import StepLog

    for handle in handles:
        if registry.provider(handle.kind).live:
            name = handle.resource_key
            text = f"{why}: its variables and current directory are lost, its files are kept"
            StepLog(context.id, name, str).warning("%s", text)
            context.warn(f"{name}: {text}", {"environment": name})


def _region(execution: str, region: int) -> str:
    return f"{execution}/{region}"
