"""What the manager knows of each spec and of each opening of it. Changed under its lock only."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.execution_environment.states import State, check
from flowengine.sdk.environments import Capabilities, Provider, Sandbox

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable
    from pathlib import Path

    from flowengine.execution_environment.handle import Handle
    from flowengine.execution_environment.records import Entry
    from flowengine.execution_environment.spec import Declared
    from flowengine.policy_approval import Answer


class Waiter(NamedTuple):
    """Somebody who waits until it is open."""

    future: Future[Handle]
    holder: str | None


class Record:
    """A declared spec.

    Args:
        declared: The spec.
    """

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.current: Instance | None = None
        """The opening that new users get."""
        self.instances: dict[str, Instance] = {}
        """All that are not gone, by id, oldest first."""
        self.generation = 0
        self.was_open = False
        """Whether an opening of it has ever been ready, as far as this process knows."""
        self.reserved = 0
        """Places that are kept for it."""
        self.answer: Answer | None = None
        """Of whoever was asked; it counts for all openings."""


class Opened(NamedTuple):
    """What an opening has come to."""

    resource: Any
    provider: Provider[Any]
    choice: str
    """The sandbox that was taken."""
    sandbox: type[Sandbox] | None
    capabilities: Capabilities
    unenforced: list[str]
    """Limits that nobody holds here."""


class Instance:
    """One opening of a spec: a resource that is made once and closed once.

    Args:
        id: Of the handles on it.
        record: Its spec.
        generation: Its number among the openings of the spec.
    """

    def __init__(self, id: str, record: Record, generation: int) -> None:
        self.id = id
        self.record = record
        self.generation = generation
        self.state: State = "declared"
        self.events = 0
        self.waiters: list[Waiter] = []
        self.holds: dict[int, Handle] = {}
        """By number: one for each handle that was given out and not given back."""
        self.opened: Opened | None = None
        self.opened_at = 0.0
        """By the steady clock."""
        self.checked_at: float | None = None
        self.task: Future[None] | None = None
        """Opens it."""
        self.finishing: Task[None] | None = None
        """Ends an opening that came to nothing."""
        self.closing: Future[str | None] | None = None
        """Closes it; gives the name of the error, if there was one."""
        self.checking: Future[bool] | None = None
        """A check that takes its time, shared by all who ask."""
        self.withdrawn = False
        """Whether the opening was told to stop."""
        self.ended: Future[None] = Future()
        """Done when nothing of it is left, or it could not be closed."""
        self.place = False
        """Whether it takes up a place."""
        self.entry: Entry | None = None
        self.workspace: Path | None = None
        self.mounted: list[Handle] = []
        """Handles on the environments whose folders it uses."""
        self.timers: dict[str, Callable[[], object]] = {}
        """What is going to happen, by name → withdraws it."""
        self.error: str | None = None
        self.attempts = 0
        """How often closing it was tried."""
        self.mask: Callable[[Any], Any] = _same

    def move(self, state: State) -> None:
        """Go to another state."""
        check(self.state, state)
        self.state = state

    def stop_timer(self, name: str) -> None:
        """Withdraw something that was going to happen."""
        withdraw = self.timers.pop(name, None)
        if withdraw is not None:
            withdraw()

    @property
    def holders(self) -> list[str]:
        """Who holds it, as far as they said who they are."""
        return sorted({hold.holder for hold in self.holds.values() if hold.holder})


def _same(value: Any) -> Any:
    return value
