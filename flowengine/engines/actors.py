"""Who acts on an engine, for whom, and through which channel; and who may answer a wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel.waiting.approval_ownership import gave_away

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flowengine.settings import Settings


class Actor(NamedTuple):
    """Somebody who starts, decides, sends or cancels."""

    user: str
    """`user:NAME`: the user on whose behalf it is done."""
    via: str
    """`cli`, `python`, ..."""
    entered_by: str | None = None
    """`user:NAME`: who actually did it, if that is somebody else."""

    @property
    def users(self) -> tuple[str, ...]:
        """The user on whose behalf it is done, and who actually did it."""
        return (self.user,) if self.entered_by is None else (self.user, self.entered_by)

    def fields(self) -> dict[str, str]:
        """Return what an event records about the actor: `by`, `via` and possibly `entered_by`."""
        fields = {"by": self.user, "via": self.via}
        return fields if self.entered_by is None else {**fields, "entered_by": self.entered_by}


def is_assignee(wait: Mapping[str, Any], user: str, settings: Settings) -> bool:
    """Return whether a user is among the assignees of a wait, and neither excluded nor past it."""
    if excluded(wait, [user], settings) is not None or user in gave_away(wait):
        return False
    assignees = wait.get("assignees")
    return not assignees or settings.is_one_of(user, assignees)


def excluded(wait: Mapping[str, Any], users: Sequence[str], settings: Settings) -> str | None:
    """Return the first of the users whom a wait excludes."""
    named = wait.get("exclude") or []
    return next((user for user in users if settings.is_excluded(user, named)), None)
