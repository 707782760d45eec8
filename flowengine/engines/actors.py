"""Actors, their channels, and the check which users may answer a wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from flowengine.errors import UsageError
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


def check_user(user: str) -> None:
    """Check the form of a user that a caller names.

    Raises:
        UsageError: It is a group, or not `user:NAME`.
    """
    if user.startswith("group:"):
        raise UsageError(
            f"{user} is a group, and only users act and decide", hint="name one of its members"
        )
    if not user.startswith("user:") or len(user) == len("user:"):
        raise UsageError(f"{user!r} is not a user", hint="users are written as user:NAME")


def is_assignee(wait: Mapping[str, Any], user: str, settings: Settings) -> bool:
    """Return whether a user is an assignee of a wait.

    Excluded users, and users who have delegated the wait, are not.
    """
    if excluded(wait, [user], settings) is not None or user in gave_away(wait):
        return False
    assignees = wait.get("assignees")
    return not assignees or settings.is_one_of(user, assignees)


def undecidable(wait: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    """Return why no user may decide on a wait: each assignee with a sentence.

    The sentences contain no paths of this host, because clients of a server read them.

    Returns:
        Assignee → reason. Empty if a user may decide.
    """
    rights = {}
    for name in wait.get("assignees") or ():
        group = name.removeprefix("group:")
        members = {name} if group == name else settings.groups.get(group, frozenset())
        if any(is_assignee(wait, user, settings) for user in members):
            return {}
        rights[name] = _why_none(wait, name, members, settings)
    return rights


def _why_none(wait: Mapping[str, Any], name: str, members: Set[str], settings: Settings) -> str:
    """Return why none of the users of an assignee may decide."""
    if not members:
        return f"{name} has no members"
    barred = sum(excluded(wait, [user], settings) is not None for user in members)
    who = name if name in members else f"every member of {name}"
    why = ["is excluded"] if barred else []
    if barred < len(members):
        why.append("has delegated it")
    return f"{who} {' or '.join(why)}"


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
