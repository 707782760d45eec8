"""Who may answer a wait: its assignees, but for those whom it excludes or who gave it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.waiting.approval_ownership import gave_away

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flowengine.settings import Settings


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
