"""Logins of users at servers: access tokens of OAuth 2.1, in files of the user who runs the engine.

A login belongs to one user, one server (its URL) and one OAuth client. A user can lend it to an
execution that another user started. Each login has a file, which only the user of the engine can
read:

    STATE/logins/DIGEST.json   the login: see `Login`
    STATE/logins/DIGEST.lock   held while its tokens are requested or refreshed

An authorization server may replace the refresh token on each use. The lock ensures that two
processes do not use the same refresh token.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from flowengine.errors import StoreError
from flowengine.masking import Masker as Masker  # noqa: PLC0414 - for environments
from flowengine.sdk.files.confined_files import take_lock
from flowengine.sdk.texts.sizes import size_text
from flowengine.store_folder import state_folder
from flowengine.util.files import digest_of, make_folder, write_whole

_log = logging.getLogger("flowengine.logins")
_LARGEST = 1024 * 1024
"""Maximum bytes of a file of a login."""
_LONGEST = 10**9
"""Maximum seconds until a token expires."""
_PAUSE = 0.02
"""Seconds between attempts to take a lock."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
"""A token that can be sent: visible characters (RFC 6750, section 2.1)."""


class LoginKey(NamedTuple):
    """The identity of a login."""

    user: str
    """`user:NAME`."""
    url: str
    """The address of the server."""
    client: str = ""
    """The id of the OAuth client that the flow names. Empty: one that is registered dynamically."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> LoginKey:
        """Return the key in a question about a login."""
        return cls(str(found["user"]), str(found["url"]), str(found["client"]))

    @property
    def path(self) -> str:
        """The path of its file."""
        name = digest_of("\0".join(self).encode())
        return os.path.join(logins_folder(), f"{name}.json")


@dataclass
class Login:
    """A login, or the data for requesting one. Times are seconds since 1970."""

    user: str
    url: str
    client: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """`auth` of the server. `client_secret` is the source of the secret, not its value."""
    scopes: list[str] = field(default_factory=list)
    """The scopes to request. Empty: those that the server names."""
    requested: list[str] = field(default_factory=list)
    """The scopes that were requested when the user logged in."""
    challenge: str = ""
    """`WWW-Authenticate` of the response that required the login."""
    registration: dict[str, Any] | None = None
    """The client, as the authorization server registered it."""
    metadata: dict[str, Any] | None = None
    """The published metadata of the authorization server."""
    resource: dict[str, Any] | None = None
    """The published metadata of the server."""
    token: dict[str, Any] | None = None
    """The response of the token endpoint. None: the user has not logged in."""
    expires: float | None = None
    """When the access token expires. None: unknown."""
    created: float = 0.0
    """When the user logged in."""
    lent: list[str] = field(default_factory=list)
    """Executions of other users that may use it: `ID@IDENTITY`, since an id can be used again."""

    @property
    def key(self) -> LoginKey:
        """Its key."""
        return LoginKey(self.user, self.url, self.client)

    def covers(self, scopes: Iterable[str]) -> bool:
        """Return whether the user has logged in, and these scopes were requested then."""
        return self.token is not None and {*scopes} <= {*self.requested}


def logins_folder() -> str:
    """Return the directory of the logins."""
    return os.path.join(state_folder(), "logins")


def read_login(key: LoginKey) -> Login:
    """Return a login, without tokens if there is none.

    Raises:
        StoreError: Its file cannot be read.
    """
    return _read(key.path) or Login(*key)


def write_login(login: Login) -> None:
    """Write the file of a login. Hold its lock.

    Raises:
        StoreError: It cannot be written, or could not be read again.
    """
    data = json.dumps(asdict(login)).encode()
    if len(data) > _LARGEST:
        raise StoreError(
            f"the login to {login.url} is not kept: with what its servers sent, it has "
            f"{size_text(len(data))}, more than {size_text(_LARGEST)}"
        )
    try:
        make_folder(logins_folder(), synced=True)
        write_whole(login.key.path, data)
    except OSError as error:
        raise StoreError(_unusable(login.key.path, error)) from None


@contextmanager
def locked(key: LoginKey) -> Iterator[Login]:
    """Hold the lock of a login, and yield the stored login. Blocks: call it on a thread.

    Raises:
        StoreError: Its files cannot be used.
    """
    lock = _lock(key, wait=True)
    assert lock is not None  # it waited
    try:
        yield read_login(key)
    finally:
        os.close(lock)


@asynccontextmanager
async def held(key: LoginKey) -> AsyncIterator[Login]:
    """Hold the lock of a login, as `locked` does, without blocking the event loop."""
    while (lock := _lock(key, wait=False)) is None:
        from asyncio import sleep  # a start of the program has no use for it

        await sleep(_PAUSE)  # a cancelled wait on a thread would keep the lock
    try:
        yield read_login(key)
    finally:
        os.close(lock)


def _lock(key: LoginKey, *, wait: bool) -> int | None:
    path = f"{key.path.removesuffix('.json')}.lock"
    try:
        make_folder(logins_folder(), synced=True)
        return take_lock(path, wait=wait)
    except OSError as error:
        raise StoreError(_unusable(path, error)) from None


def usable(key: LoginKey, borrower: str) -> Login | None:
    """Return the login that an execution uses: that of its user, or one lent to it.

    Args:
        key: Of the user who started the execution.
        borrower: The execution, `ID@IDENTITY`. Empty: nothing is lent to it.

    Returns:
        The login. None: there is none.
    """
    own = read_login(key)
    if own.token is not None:
        return own
    lent = (login for login in all_logins() if login.key[1:] == key[1:] and login.token is not None)
    return next((login for login in lent if borrower and borrower in login.lent), None)


def all_logins(report: Callable[[str], None] = _log.warning) -> list[Login]:
    """Return all logins of this machine's user, including those that are only prepared.

    Args:
        report: Receives a message about each file that is not a login. It affects no other login.
    """
    logins = []
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(logins_folder())):
            try:
                if name.endswith(".json") and (login := _read(os.path.join(logins_folder(), name))):
                    logins.append(login)
            except StoreError as error:
                report(error.with_hint)
    return logins


def forget_tokens(key: LoginKey) -> bool:
    """Remove the tokens of a login. Blocks: call it on a thread.

    Returns:
        Whether there were any.
    """
    with locked(key) as login:
        had = login.token is not None
        login.token, login.expires, login.lent = None, None, []
        write_login(login)
        return had


def check_tokens(token: Mapping[str, Any]) -> None:
    """Check the tokens that an authorization server has just issued.

    Raises:
        ValueError: One cannot be sent in a header. The message does not contain it.
    """
    for name in ("access_token", "refresh_token"):
        is_given = name == "access_token" or token.get(name)
        if is_given and not _TOKEN.fullmatch(str(token.get(name))):
            raise ValueError(f"the {name} is not a token (RFC 6750)")


def expires_at(token: Mapping[str, Any]) -> float | None:
    """Return when an access token that has just been issued expires. None: unknown."""
    seconds = token.get("expires_in")
    return None if seconds is None else time.time() + min(max(seconds, 0), _LONGEST)


def _read(path: str) -> Login | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(_unusable(path, error)) from None
    try:
        with open(descriptor, "rb") as file:
            login = Login(**json.loads(file.read(_LARGEST)))
        for name, blank in asdict(Login("", "")).items():
            kind = float if name == "expires" else dict if blank is None else type(blank)
            if not isinstance(found := getattr(login, name), kind) and found is not blank:
                raise TypeError(name)
        return login
    except (OSError, ValueError, TypeError, RecursionError):
        raise StoreError(
            f"{path} is not a login",
            hint="remove it, and log in again: flowengine logins --add URL",
        ) from None


def _unusable(path: str, error: OSError) -> str:
    return f"{path}, which keeps logins, cannot be used: {error.strerror or error}"
