"""The user of a request, from its credential alone."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from flowengine.server.problems import Refused
from flowengine.server.rights import LOCAL, Principal, access_of

if TYPE_CHECKING:
    from flowengine.server.records import Records, Session, Token
    from flowengine.settings import Settings

FAILURES = 20
"""Failed attempts of an address within `WINDOW` after which it is refused."""
WINDOW = 60.0
_MOST_ADDRESSES = 10_000
_CHALLENGE = {"www-authenticate": "Bearer"}


class Identity:
    """Checks credentials.

    Args:
        records: Contains the tokens.
        settings: Those of the host, with the roles.
        owner: The user who runs the server.
        local: The token of this user.
    """

    def __init__(self, records: Records, settings: Settings, owner: str, local: str) -> None:
        self._records = records
        self._settings = settings
        self._owner = owner
        self._local = local
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def of_session(self, secret: str) -> tuple[Principal, Session] | None:
        """Return the user of a browser's session, unless it or its token has ended.

        Args:
            secret: The value of the cookie.
        """
        now = int(time.time() * 1000)
        session = self._records.find_session(secret, now)
        if session is None:
            return None
        if session.token == LOCAL:
            return self._local_principal(), session
        token = self._records.token_named(session.token, now)
        return None if token is None else (self._principal_of(token), session)

    def of(self, authorization: str | None, address: str) -> Principal:
        """Return the user of a request.

        Args:
            authorization: The header.
            address: The address of the client.

        Raises:
            Refused: The credential is missing or not valid, or the address has failed too often.
        """
        self.check_address(address)
        scheme, _, text = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise Refused(
                401,
                "the request has no credential",
                hint="send 'Authorization: Bearer TOKEN'; see: flowengine tokens create --help",
                headers=_CHALLENGE,
            )
        principal = self._principal(text.strip())
        if principal is None:
            self.note_failure(address)
            raise Refused(401, "the token is unknown, expired or revoked", headers=_CHALLENGE)
        return principal

    def check_address(self, address: str) -> None:
        """Check that an address has not failed too often.

        Raises:
            Refused: It has.
        """
        recent = self._recent(address)
        if len(recent) >= FAILURES:
            wait = max(1, int(recent[0] + WINDOW - time.monotonic()) + 1)
            raise Refused(429, "too many invalid credentials", headers={"retry-after": str(wait)})

    def _principal(self, text: str) -> Principal | None:
        if hmac.compare_digest(text.encode(), self._local.encode()):
            return self._local_principal()
        token = self._records.find_token(text, int(time.time() * 1000))
        return None if token is None else self._principal_of(token)

    def _local_principal(self) -> Principal:
        return Principal(self._owner, LOCAL, access_of(self._owner, self._owner, self._settings))

    def _principal_of(self, token: Token) -> Principal:
        access = access_of(token.user, self._owner, self._settings)
        return Principal(token.user, token.name, access, token.scope)

    def _recent(self, address: str) -> list[float]:
        since = time.monotonic() - WINDOW
        return [at for at in self._failed.get(address, ()) if at > since]

    def note_failure(self, address: str) -> None:
        """Note that a credential or a signature from an address was not valid."""
        self._failed[address] = [*self._recent(address), time.monotonic()]
        self._failed.move_to_end(address)
        while len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)


def session_cookie(scheme: str) -> str:
    """Return the name of the cookie of a session. `__Host-` binds it to this host, with TLS."""
    return f"{'__Host-' if scheme == 'https' else ''}flowengine_session"
