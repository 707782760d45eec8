"""Rights of users on flows: those of their roles, narrowed by the scope of the credential."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from flowengine.server.refusals import RequestRefused
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


CHECKED_EVERY = 5.0
"""Seconds after which the proof of a user's rights is read again, while an answer lasts."""


class Proof:
    """The proof of a user's rights, which an answer that lasts reads again.

    Args:
        read: Reads it from the credential of the request. It raises `RequestRefused`.
    """

    def __init__(self, read: Callable[[], Principal]) -> None:
        self._read = read
        self.proven = read()
        self._read_at = time.monotonic()

    def __eq__(self, other: object) -> bool:
        """Return whether it is a proof, too: users with the same rights are equal."""
        return isinstance(other, Proof)

    def __hash__(self) -> int:
        """Return the same for each."""
        return 0

    @property
    def is_old(self) -> bool:
        """Return whether it has to be read again before more is shown."""
        return time.monotonic() - self._read_at >= CHECKED_EVERY

    def check(self) -> None:
        """Read it again, and check that the credential is valid and gives the same rights.

        Raises:
            RequestRefused: It is not valid, or gives other rights.
        """
        if self._read() != self.proven:
            raise RequestRefused(401, "the credential has other rights now", hint="connect again")
        self._read_at = time.monotonic()


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
    proof: Proof | None = None
    """None: it needs no further proof, as of the user whose program this is."""

    def check(self, *, anew: bool = False) -> None:
        """Check that the user still has these rights, which were proven a moment ago or `anew`."""
        if self.proof is not None and (anew or self.proof.is_old):
            self.proof.check()

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
