"""Rights of users on flows: those of their roles, narrowed by the scope of the credential."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flowengine.settings import Settings

USER_NAME = re.compile(r"[^\s\x00-\x1f\x7f,:]{1,200}")
"""The name of a user, as a proxy or an OpenID provider may give it."""
LOCAL = "(local)"
"""Name of the credential in the token file of the user who runs the server. No token has it."""


class Right(StrEnum):
    """A right that a request can need."""

    SEE = "see"
    """Executions, steps and waits with their status and times."""
    CONTENT = "content"
    """Inputs, outputs, errors, events and files."""
    START = "start"
    """Start executions, and send signals that start them."""
    DECIDE = "decide"
    """Decide, claim and delegate approvals that are addressed to the user."""
    OPERATE = "operate"
    """Cancel, retry, fork and upgrade executions, send signals to them, and release their
    environments."""
    ADMINISTER = "administer"
    """Tokens, the audit record and settings. Not a right on a flow."""


_RIGHTS = {
    "viewer": {Right.SEE},
    "starter": {Right.SEE, Right.START},
    "approver": {Right.SEE, Right.DECIDE},
    "operator": {Right.SEE, Right.START, Right.OPERATE},
    "admin": set(Right),
}


class Access(NamedTuple):
    """A role on the flows that match one of the patterns."""

    role: str
    flows: tuple[str, ...] = ("*",)
    content: bool = False

    def has(self, right: Right) -> bool:
        """Return whether the role has a right on any flow."""
        return right in _RIGHTS[self.role] or (right is Right.CONTENT and self.content)

    def gives(self, right: Right, flow: str) -> bool:
        """Return whether the role has a right on a flow. `ADMINISTER` needs the pattern `*`."""
        if right is Right.ADMINISTER:
            flow = ""
        return self.has(right) and any(fnmatchcase(flow, pattern) for pattern in self.flows)


class Principal(NamedTuple):
    """The user of a request, as its credential proves."""

    user: str
    """`user:NAME`."""
    token: str
    """Name of the credential, for the audit record."""
    access: tuple[Access, ...]
    """Of the user."""
    scope: Access | None = None
    """Of the credential: no right beyond it. None: all rights of the user."""

    def may(self, right: Right, flow: str) -> bool:
        """Return whether the user has a right on a flow."""
        if self.scope is not None and not self.scope.gives(right, flow):
            return False
        return any(access.gives(right, flow) for access in self.access)

    def may_somewhere(self, right: Right) -> bool:
        """Return whether the user may have a right on some flow."""
        if right is Right.ADMINISTER:
            return self.may(right, "")
        if self.scope is not None and not self.scope.has(right):
            return False
        return any(access.has(right) for access in self.access)


def access_of(
    user: str, owner: str, settings: Settings, groups: Sequence[str] = ()
) -> tuple[Access, ...]:
    """Return the roles of a user.

    Args:
        user: `user:NAME`.
        owner: The user who runs the server, who has all rights.
        settings: Those of the host.
        groups: Groups of the user besides those in the settings, as `group:NAME`.
    """
    access = [Access("admin")] if user == owner else []
    access += [
        Access(entry.role, tuple(entry.flows), entry.content)
        for entry in settings.access
        if settings.is_one_of(user, entry.who) or not {*groups}.isdisjoint(entry.who)
    ]
    return tuple(access)


def names(rights: Iterable[Right]) -> str:
    """Return rights as text, for messages."""
    return ", ".join(right.value for right in rights)
