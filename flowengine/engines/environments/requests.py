"""Requests of executions to the manager: specs, each with its name and owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.engines.environments.specs import filled, name_with_args
from flowengine.errors import Conflict
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    from flowengine.execution_environment import EnvironmentManager
    from flowengine.sdk import ExecutionContext
    from flowengine.sdk.environments import Scope

STEP: Scope = "action_call"
REGION: Scope = "region"
EXECUTION: Scope = "execution"
SESSION: Scope = "session"
SCOPES: dict[str, Scope] = {
    "step": STEP,
    "region": REGION,
    "execution": EXECUTION,
    "session": SESSION,
}
"""Scope in a flow → the manager's name for it."""


class EnvironmentRequests:
    """The requests of all executions of an engine.

    Args:
        manager: Returns the manager.
        has: Returns whether a region, given by its owner id, has an environment with a name.
    """

    def __init__(
        self, manager: Callable[[], EnvironmentManager], has: Callable[[str, str], bool]
    ) -> None:
        self._manager = manager
        self._has = has
        self._ids: dict[tuple[Scope, str], dict[str, tuple[Plain, str]]] = {}
        """(scope, owner) → name → the declared use and the spec's id. Checking a spec takes twenty
        times as long as comparing it."""

    def forget(self, scope: Scope, owner: str) -> None:
        """Forget the declarations of an owner, as the manager does."""
        self._ids.pop((scope, owner), None)

    def forget_all(self) -> None:
        """Forget all declarations, so that each is declared again on its next use."""
        self._ids.clear()

    def of(
        self,
        context: ExecutionContext,
        run: Run,
        given: Mapping[str, Plain],
        secrets: Mapping[str, Plain],
    ) -> dict[str, Any] | str:
        """Return the request to the manager: a spec, or the id of a known spec."""
        spec = self._named(context, run, given)
        owner, name = (spec["scope"], spec["owner_id"]), spec["resource_key"]
        known = self._ids.get(owner, {}).get(name)
        if known is not None and known[0] == given:
            return known[1]
        if "secrets" in given:  # provided by a program, where `secret:NAME` is a reference
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
        id: str = self._manager().declare(spec)["id"]
        self._ids.setdefault(owner, {})[name] = (given, id)
        return id

    def _named(
        self, context: ExecutionContext, run: Run, given: Mapping[str, Plain]
    ) -> dict[str, Any]:
        """Return a spec with its name and owner for an attempt."""
        spec = dict(given["spec"])
        scope = spec["scope"] = SCOPES[given["scope"]]
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
        self,
        context: ExecutionContext,
        run: Run,
        given: Mapping[str, Plain],
        secrets: Mapping[str, Plain],
    ) -> str:
        wish = self.of(context, run, given, secrets)
        environment: str = wish if isinstance(wish, str) else self._manager().declare(wish)["id"]
        return environment

    def _region_of(self, execution: str, run: Run, spec: Mapping[str, Any]) -> str:
        """Return the innermost region that has the environment, or else the innermost region."""
        regions = run.regions or (0,)
        for region in regions:
            if self._has(owner := region_owner(execution, region), spec["resource_key"]):
                return owner
        return region_owner(execution, regions[0])

    def _note_answer(self, spec: Mapping[str, Any], approved: Mapping[str, Plain]) -> None:
        """Pass an answer to the manager. It may narrow the policy, or apply to a session.

        A session answer also applies to the other executions that share the session here.
        """
        if spec["scope"] != SESSION and "policy" not in approved:
            return
        manager = self._manager()
        answer = {"approved": True, "reason": approved["by"], "policy": approved.get("policy")}
        with suppress(Conflict):  # the first answer counts
            manager.answer(manager.declare(spec)["id"], answer)


def region_owner(execution: str, region: int) -> str:
    """Return the id of a region as an owner."""
    return f"{execution}/{region}"
