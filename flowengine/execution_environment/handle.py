"""What `ensure` returns: one hold on one opened environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.sdk.errors import EnvironmentClosed, EnvironmentLost

if TYPE_CHECKING:
    from flowengine.execution_environment.instances import Instance
    from flowengine.execution_environment.states import State
    from flowengine.sdk.environments import Capabilities, Scope


class Handle:
    """One hold on an open environment; give it back with `release`.

    Two handles on the same opening are equal. What a handle says of the environment is what is true
    at that moment.
    """

    __slots__ = ("_instance", "_pid", "given_back", "holder", "manager", "number")

    def __init__(self, instance: Instance, manager: str, number: int, holder: str | None) -> None:
        self._instance = instance
        self._pid = os.getpid()
        self.manager = manager
        """Id of the manager it belongs to."""
        self.number = number
        self.holder = holder
        """Who holds it, as they said."""
        self.given_back = False

    @property
    def id(self) -> str:
        """Id of this opening; equal for all handles on it."""
        return self._instance.id

    @property
    def spec_id(self) -> str:
        """Id of the spec."""
        return self._instance.record.declared.id

    @property
    def kind(self) -> str:
        """Its kind."""
        return self._instance.record.declared.spec.kind

    @property
    def scope(self) -> Scope:
        """How far it is shared."""
        return self._instance.record.declared.spec.scope

    @property
    def owner_id(self) -> str:
        """Whose it is."""
        return self._instance.record.declared.spec.owner_id

    @property
    def resource_key(self) -> str:
        """Under which name users find the resource."""
        return self._instance.record.declared.resource_key

    @property
    def state(self) -> State:
        """Its state now."""
        return self._instance.state

    @property
    def generation(self) -> int:
        """1 for the first opening of the spec; higher after each time it was opened anew."""
        return self._instance.generation

    @property
    def provider(self) -> str:
        """The sandbox that was taken; for kinds without one the kind."""
        opened = self._instance.opened
        return opened.choice if opened else ""

    @property
    def capabilities(self) -> Capabilities:
        """What is held on this machine, and how."""
        opened = self._instance.opened
        assert opened is not None
        return opened.capabilities

    @property
    def isolation(self) -> str:
        """How far programs in it are kept from the machine."""
        return self.capabilities.isolation

    @property
    def unenforced(self) -> list[str]:
        """Limits that the spec has and nobody holds here (`best_effort`)."""
        opened = self._instance.opened
        return list(opened.unenforced) if opened else []

    @property
    def image(self) -> str:
        """Digest of the image that runs (`sha256:...`); empty where none does."""
        opened = self._instance.opened
        return str(getattr(opened.resource, "image", "") or "") if opened else ""

    @property
    def workspace(self) -> Path | None:
        """Its folder on this machine, if it has one."""
        return self._instance.workspace

    @property
    def resource(self) -> Any:
        """The live resource.

        Raises:
            EnvironmentClosed: The hold was given back, the environment was closed, or this is
                another process than the one that opened it.
            EnvironmentLost: It was cut off although it was held.
        """
        instance = self._instance
        name = instance.record.declared
        if self._pid != os.getpid():
            raise EnvironmentClosed(f"{name} belongs to process {self._pid}, not to this one")
        if instance.error == "EnvironmentLost":
            raise EnvironmentLost(f"{name} was closed; ensure it again")
        if self.given_back or instance.opened is None or instance.state in _GONE:
            raise EnvironmentClosed(f"{name} was released; ensure it again")
        return instance.opened.resource

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._instance is self._instance

    def __hash__(self) -> int:
        return hash(self._instance.id)

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self._instance.record.declared} {self.state}>"


_GONE = frozenset({"releasing", "released", "failed"})
