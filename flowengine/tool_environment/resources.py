"""The managed environments that tools declare, opened before a call and released by their scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.sdk import StepError

if TYPE_CHECKING:
    from flowengine.execution_environment import EnvironmentManager, Handle

FOR_A_CALL = "action_call"


class Resources:
    """Opens the environments that tools declare.

    Args:
        specs: Name → spec, as declared by the tool environment.
        owner: Owner of environments whose spec declares none.
        manager: Opens them. Default: the manager of the process.
    """

    def __init__(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        owner: str,
        manager: EnvironmentManager | None = None,
    ) -> None:
        self._specs = dict(specs)
        self._owner = owner
        self._manager = manager
        self._held: dict[str, Handle] = {}

    def _manages(self) -> EnvironmentManager:
        if self._manager is None:
            from flowengine.execution_environment import manager

            self._manager = manager()
        return self._manager

    def spec(self, name: str, own: Mapping[str, Any] | None, tool: str) -> dict[str, Any]:
        """Return the spec of a resource.

        Args:
            name: Name of the resource.
            own: The tool's own declaration, if any.
            tool: Name of the tool, for messages.

        Raises:
            StepError: It is not declared anywhere.
        """
        declared = own or self._specs.get(name)
        if declared is None:
            raise StepError(
                f"tool '{tool}' needs the environment '{name}', and there is no spec for it: pass "
                f"environments={{'{name}': {{'kind': …}}}}",
                type="MissingEnvironment",
            )
        scope = declared.get("scope", "execution")
        return {"owner_id": self._owner, **declared, "scope": scope}

    async def ensure(
        self, declared: Mapping[str, Mapping[str, Any] | None], tool: str, holder: str
    ) -> tuple[dict[str, Any], list[Handle]]:
        """Open the resources of a tool.

        Args:
            declared: Name → spec, or None for the spec of the tool environment.
            tool: Its name.
            holder: Id of the call.

        Returns:
            The resources by name, and the handles to release after the call.
        """
        specs = {name: self.spec(name, own, tool) for name, own in declared.items()}
        resources: dict[str, Any] = {}
        after: list[Handle] = []
        manager = self._manages()
        try:
            for name, spec in specs.items():
                handle = await manager.async_ensure(spec, holder=holder)
                after.append(handle)
                resources[name] = handle.resource
        except BaseException:
            await self.release(after)
            raise
        for handle, spec in zip(list(after), specs.values(), strict=True):
            if spec["scope"] != FOR_A_CALL and handle.spec_id not in self._held:
                self._held[handle.spec_id] = handle  # until the environment is disposed of
                after.remove(handle)
        return resources, after

    async def release(self, handles: list[Handle]) -> None:
        """Release handles, the last one first."""
        for handle in reversed(handles):
            await self._manages().async_release(handle)

    async def close(self) -> None:
        """Release the resources that outlive a single call."""
        held, self._held = list(self._held.values()), {}
        await self.release(held)
