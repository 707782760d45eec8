"""Actors, their channels, and the check which users may answer a wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.kernel.waiting.approvals import gave_away
from flowengine.settings import Settings


class Actor(NamedTuple):
    """The user who starts, decides, sends or cancels."""

    user: str
    """`user:NAME`: the user on whose behalf the action is performed."""
    via: str
    """`cli`, `python`, ..."""
    entered_by: str | None = None
    """`user:NAME`: the user who actually performed it, if different."""

    @property
    def users(self) -> tuple[str, ...]:
        """The user on whose behalf it is done, and the user who actually did it."""
        return (self.user,) if self.entered_by is None else (self.user, self.entered_by)

    def fields(self) -> dict[str, str]:
        """Return the fields of the actor in an event: `by`, `via` and possibly `entered_by`."""
        fields = {"by": self.user, "via": self.via}
        return fields if self.entered_by is None else {**fields, "entered_by": self.entered_by}


def is_assignee(wait: Mapping[str, Any], user: str, settings: Settings) -> bool:
    """Return whether a user is an assignee of a wait.

    Excluded users, and users who have delegated the wait, are not.
    """
    if excluded(wait, [user], settings) is not None or user in gave_away(wait):
        return False
    assignees = wait.get("assignees")
    return not assignees or settings.is_one_of(user, assignees)


class Exclusion(NamedTuple):
    """A user whom a wait excludes."""

    user: str
    entry: str
    """The entry of `exclude`: the user, or a group with the user."""

    def __str__(self) -> str:
        belongs = "" if self.entry == self.user else f", which {self.user} belongs to"
        return f"it excludes {self.entry}{belongs}"


def excluded(wait: Mapping[str, Any], users: Sequence[str], settings: Settings) -> Exclusion | None:
    """Return the first of the users whom a wait excludes, and the entry that does."""
    for user in users:
        entry = settings.excluding(user, wait.get("exclude") or [])
        if entry is not None:
            return Exclusion(user, entry)
    return None
