"""Records of specs, their openings, and the holds on these.

They are changed only under the manager's lock.
"""

from __future__ import annotations

import os
from asyncio import Task
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.execution_environment.bookkeeping.states import CLOSABLE, OPENING, State
from flowengine.execution_environment.registry.entries import RegistryEntry
from flowengine.execution_environment.registry.screens import Window
from flowengine.execution_environment.specs.spec import EnvironmentSpec
from flowengine.sdk.environments import Capabilities, Provider, Sandbox, Scope
from flowengine.sdk.errors import EnvironmentClosed, EnvironmentLost


class Waiter(NamedTuple):
    """A caller that waits until the environment is open."""

    future: Future[Handle | None]
    holder: str | None
    holds: bool = True
    """Whether it receives a hold. Otherwise it opens the environment ahead, and cannot leave."""


class Record:
    """A declared spec.

    Args:
        spec: The spec.
    """

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self.current: Instance | None = None
        """The opening for new holders."""
        self.instances: dict[str, Instance] = {}
        """All existing openings, by id, oldest first."""
        self.generation = 0
        self.was_open = False
        """Whether an opening was ever ready, as far as this process knows."""
        self.reserved = 0
        """Number of places reserved for it."""


class Provision(NamedTuple):
    """How an environment is provided on this machine."""

    provider: Provider[Any]
    choice: str
    """The chosen sandbox."""
    sandbox: type[Sandbox] | None = None
    capabilities: Capabilities = Capabilities()
    """The limits and rules that are enforced."""
    unenforced: Sequence[str] = ()
    """Limits that are not enforced here."""
    resource: Any = None
    """The live resource, once it is open."""


class Instance:
    """One opening of a spec: a resource that is opened once and closed once.

    Args:
        id: Id of its handles.
        record: Its spec.
        generation: Its number among the openings of the spec.
    """

    def __init__(self, id: str, record: Record, generation: int) -> None:
        self.id = id
        self.record = record
        self.generation = generation
        self.state: State = "declared"
        """Changed only by `Books.move`."""
        self.events = 0
        self.waiters: list[Waiter] = []
        self.holds: dict[int, Handle] = {}
        """By number: one for each handle that has not been released."""
        self.opened: Provision | None = None
        self.opened_at = 0.0
        """Time by the monotonic clock."""
        self.asked_at = 0.0
        """When it was requested: seconds since 1970."""
        self.ready_at = 0.0
        """When it was open: seconds since 1970."""
        self.checked_at: float | None = None
        self.task: Future[None] | None = None
        """The task that opens it."""
        self.finishing: Task[None] | None = None
        """The task that ends an unsuccessful opening."""
        self.closing: Future[str | None] | None = None
        """The task that closes it. Its result is the name of an error, or None."""
        self.checking: Future[bool] | None = None
        """A slow check, shared by all callers."""
        self.withdrawn = False
        """Whether the opening was cancelled."""
        self.parked = False
        """Whether its owner started to wait before it was open."""
        self.ended: Future[None] = Future()
        """Done when nothing of it remains, or when it could not be closed."""
        self.place = False
        """Whether it occupies a place."""
        self.entry: RegistryEntry | None = None
        self.window: Window | None = None
        """Through which others look into it. None: it has no screen."""
        self.workspace: Path | None = None
        self.mounted: list[Handle] = []
        """Handles on the environments whose directories it mounts."""
        self.timers: dict[str, Callable[[], object]] = {}
        """Scheduled actions, by name → function that cancels it."""
        self.error: str | None = None
        self.attempts = 0
        """Number of attempts to close it."""
        self.mask: Callable[[Any], Any] = _same

    @property
    def is_opening(self) -> bool:
        """Whether it is still being opened."""
        return self.state in OPENING

    @property
    def is_ahead(self) -> bool:
        """Whether it is being opened ahead, without a waiting holder."""
        return self.is_opening and not any(waiter.holds for waiter in self.waiters)

    def stop_timer(self, name: str) -> None:
        """Cancel a scheduled action."""
        withdraw = self.timers.pop(name, None)
        if withdraw is not None:
            withdraw()

    @property
    def holders(self) -> list[str]:
        """The names of its holders, if specified."""
        return sorted({hold.holder for hold in self.holds.values() if hold.holder})


class Handle:
    """One hold on an open environment, released with `release`.

    Two handles on the same opening are equal. The properties of a handle reflect the current state
    of the environment.
    """

    __slots__ = ("_instance", "_pid", "given_back", "holder", "manager", "number")

    def __init__(self, instance: Instance, manager: str, number: int, holder: str | None) -> None:
        self._instance = instance
        self._pid = os.getpid()
        self.manager = manager
        """Id of its manager."""
        self.number = number
        self.holder = holder
        """Name of the holder, if specified."""
        self.given_back = False

    @property
    def id(self) -> str:
        """Id of this opening, equal for all its handles."""
        return self._instance.id

    @property
    def spec_id(self) -> str:
        """Id of the spec."""
        return self._instance.record.spec.id

    @property
    def kind(self) -> str:
        """Its kind."""
        return self._instance.record.spec.kind

    @property
    def scope(self) -> Scope:
        """The scope in which it is shared."""
        return self._instance.record.spec.scope

    @property
    def owner_id(self) -> str:
        """Its owner."""
        return self._instance.record.spec.owner_id

    @property
    def resource_key(self) -> str:
        """Name under which users look up the resource."""
        return self._instance.record.spec.key

    @property
    def state(self) -> State:
        """Its current state."""
        return self._instance.state

    @property
    def generation(self) -> int:
        """1 for the first opening of the spec, higher after each reopening."""
        return self._instance.generation

    @property
    def asked_at(self) -> float:
        """When this opening was requested: seconds since 1970."""
        return self._instance.asked_at

    @property
    def ready_at(self) -> float:
        """When this opening was ready: seconds since 1970."""
        return self._instance.ready_at

    @property
    def provider(self) -> str:
        """The chosen sandbox. For kinds without one, the kind."""
        opened = self._instance.opened
        return opened.choice if opened else ""

    @property
    def capabilities(self) -> Capabilities:
        """The limits and rules enforced on this machine, and the mechanisms."""
        opened = self._instance.opened
        assert opened is not None
        return opened.capabilities

    @property
    def isolation(self) -> str:
        """How strongly its programs are isolated from the machine."""
        return self.capabilities.isolation

    @property
    def unenforced(self) -> list[str]:
        """Limits of the spec that are not enforced here (`best_effort`)."""
        opened = self._instance.opened
        return list(opened.unenforced) if opened else []

    @property
    def image(self) -> str:
        """Digest of the running image (`sha256:...`), or empty."""
        opened = self._instance.opened
        return str(getattr(opened.resource, "image", "") or "") if opened else ""

    @property
    def workspace(self) -> Path | None:
        """Its directory on this machine, if it has one."""
        return self._instance.workspace

    @property
    def resource(self) -> Any:
        """The live resource.

        Raises:
            EnvironmentClosed: The hold was released, the environment was closed, or another process
                opened it.
            EnvironmentLost: It ended although it was held.
        """
        instance = self._instance
        name = instance.record.spec
        if self._pid != os.getpid():
            raise EnvironmentClosed(f"{name} belongs to process {self._pid}, not to this one")
        if instance.error == "EnvironmentLost":
            raise EnvironmentLost(f"{name} was closed: ensure it again")
        if self.given_back or instance.opened is None or instance.state not in CLOSABLE:
            raise EnvironmentClosed(f"{name} was released: ensure it again")
        return instance.opened.resource

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._instance is self._instance

    def __hash__(self) -> int:
        return hash(self._instance.id)

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self._instance.record.spec} {self.state}>"


def _same(value: Any) -> Any:
    return value


# Public descriptions of environments: plain data, without their content.


def describe(instance: Instance, now: float) -> dict[str, Any]:
    """Return the description of one opening.

    Args:
        instance: The opening.
        now: Time by the monotonic clock.

    Returns:
        Plain data, without configuration and resource.
    """
    opened, spec = instance.opened, instance.record.spec
    limits = spec.limits.model_dump(exclude_none=True)
    defaults = opened.capabilities.defaults if opened else {}
    return {
        "id": instance.id,
        **spec.named,
        "on_wait": "keep" if spec.is_kept else "release",
        "state": instance.state,
        "generation": instance.generation,
        "provider": opened.choice if opened else ",".join(spec.providers),
        "isolation": opened.capabilities.isolation if opened else None,
        "holds": len(instance.holds),
        "holders": instance.holders,
        "waiting": len(instance.waiters),
        "age": max(0.0, now - instance.opened_at) if opened else None,
        "checked": None if instance.checked_at is None else max(0.0, now - instance.checked_at),
        "limits": {**defaults, **limits},
        "held": dict(opened.capabilities.holds) if opened else {},
        "unenforced": list(opened.unenforced) if opened else [],
        "workspace": str(instance.workspace) if instance.workspace else None,
        "error": instance.error,
    }


def describe_spec(record: Record, now: float) -> dict[str, Any]:
    """Return the description of a spec, and of its opening if there is one.

    Args:
        record: The spec.
        now: Time by the monotonic clock.

    Returns:
        Plain data, as for `describe`. Without an opening, the state is `declared`.
    """
    if record.current is not None:
        return describe(record.current, now)
    not_begun = Instance("", record, record.generation)
    return {**describe(not_begun, now), "id": None}
