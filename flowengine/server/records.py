"""The server's own data: tokens, sessions, the audit record, and answers to requests with a key.

They are in the user's state directory, where no project can write, and not in the store: a store
that came with a project gives no access.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
from _thread import RLock
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from flowengine.errors import Conflict, Hint, InputError, NotFound, StoreError
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.sizes import size_text
from flowengine.server.rights import Access
from flowengine.store_folder import claim, make_private, remote_store, state_folder
from flowengine.util.files import HELD_SECONDS, make_folder, write_whole

_PREFIX = "fe_"
TOKEN_NAME = r"^[\w.@:-]{1,100}$"
"""Names of tokens. Those of other credentials, such as `(local)`, have parentheses: a session knows
its credential by this name only.
"""
_TOKEN = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{20,}}")
"""How a token begins, so that scanners for leaked credentials can recognize it."""
_BYTES = 32
_USE_EVERY = 60_000
"""Milliseconds between two updates of a token's last use."""
AUDITED_BETWEEN = 1000
"""Entries of the audit record between two looks for too many."""
AUDITED = 100_000
"""Maximum number of entries of the audit record. The oldest are deleted."""
STRANGERS = 30
"""Entries for requests without a valid credential, for each address and minute."""
_ADDRESSES = 1000
"""Addresses whose requests without a valid credential are recorded, for each minute."""
SESSION = 12 * 3_600_000
"""Milliseconds after which a user of the page signs in again."""
KEPT = 24 * 3_600_000
"""Milliseconds for which the answer to a request with an idempotency key is kept."""
UPLOADED = 1024**3
"""Maximum number of bytes that a user uploads in a week."""
_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, user TEXT NOT NULL, hash BLOB NOT NULL,
    role TEXT, flows TEXT NOT NULL, content INTEGER NOT NULL, created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL, expires_at INTEGER, used_at INTEGER, revoked_at INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, user TEXT, token TEXT,
    address TEXT, method TEXT NOT NULL, path TEXT NOT NULL, status INTEGER NOT NULL, why TEXT);
CREATE TABLE IF NOT EXISTS answers (
    user TEXT, key TEXT, request BLOB NOT NULL, at INTEGER NOT NULL, boot TEXT NOT NULL,
    seed TEXT NOT NULL, status INTEGER, body BLOB, PRIMARY KEY (user, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS browsers (
    hash BLOB PRIMARY KEY, token TEXT NOT NULL, form_token TEXT NOT NULL, signed_in TEXT,
    expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    user TEXT, sha256 TEXT, name TEXT NOT NULL, size INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (user, sha256)) WITHOUT ROWID;
"""


class AccessToken(NamedTuple):
    """A token, without its secret."""

    name: str
    user: str
    role: str | None
    """None: all rights of the user."""
    flows: list[str]
    content: bool
    created_at: int
    created_by: str
    expires_at: int | None
    used_at: int | None
    revoked_at: int | None

    @property
    def scope(self) -> Access | None:
        """The rights that it is limited to."""
        return None if self.role is None else Access(self.role, tuple(self.flows), self.content)

    def status(self, now: int) -> str:
        """Return `open`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "open"


class SignedIn(NamedTuple):
    """The user of a session that began at an OpenID provider."""

    user: str
    """As the provider names the user."""
    groups: Sequence[str]
    issuer: str


class SignedInSession(NamedTuple):
    """A browser that is signed in."""

    token: str
    """Name of the token with which the user signed in."""
    form_token: str
    """Each form of the page sends it, which a page of another origin cannot know."""
    named: SignedIn | None = None
    """Whom a provider has named."""


class StoredUpload(NamedTuple):
    """A file that a user has uploaded."""

    name: str
    size: int
    sha256: str


class KeyedRequest(NamedTuple):
    """A request with an idempotency key."""

    seed: str
    """Random, the same each time: ids are derived from it."""
    status: int | None
    """Of the answer. None: it has not been answered yet."""
    body: bytes | None


def server_folder(location: str) -> str:
    """Return the directory of a server's own data, and create it, accessible for this user only.

    Args:
        location: The store's database, or its address in Temporal.

    Raises:
        StoreError: It cannot be created, or other users could write to it.
    """
    address = remote_store(location)
    try:
        if address is None:
            private = claim(os.path.dirname(os.path.abspath(location)), by_name=True)
            folder = os.path.join(private, "server")
        else:
            name = hashlib.sha256(address.encode()).hexdigest()[:32]
            folder = os.path.join(state_folder(), "servers", name)
        make_private(folder)
    except OSError as error:
        raise StoreError(
            f"the server's data cannot be kept in {state_folder()}: {error.strerror or error}",
            hint="set XDG_STATE_HOME to a directory that only you can write to",
        ) from None
    return folder


class ServerRecords:
    """The data of one server, shared by its threads and by `flowengine tokens`.

    Args:
        folder: See `server_folder`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._boot = secrets.token_hex(8)
        self._lock = RLock()
        self._minute = 0
        self._strangers = Counter[str]()
        """Requests of this minute without a valid credential, by address."""
        make_folder(folder, synced=True)
        path = os.path.join(folder, "server.db")
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            self._connection = sqlite3.connect(
                path, timeout=10, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be used: {error}") from None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # Tokens

    def local_token(self) -> tuple[str, str]:
        """Return the token of the user who runs the server, and the path of its file.

        The file is created if missing, and replaced if it contains no token.
        """
        path = os.path.join(self.folder, "token")
        made = f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}\n"
        write_whole(path, made.encode(), replace=False)
        with open(path, encoding="utf-8", errors="replace") as file:
            token = file.read().strip()
        if _TOKEN.fullmatch(token) is None:
            write_whole(path, made.encode())
            token = made.strip()
        return token, path

    def create_token(
        self, name: str, user: str, scope: Access | None, by: str, now: int, expires: int | None
    ) -> str:
        """Create a token and return it. Only its hash is kept.

        Args:
            name: Its name, unique.
            user: The user it stands for.
            scope: The rights it is limited to.
            by: The user who creates it.
            now: The time (ms).
            expires: When it expires (ms).

        Raises:
            InputError: The name is not valid.
            Conflict: There is a token with this name.
        """
        if re.fullmatch(TOKEN_NAME, name) is None:
            raise InputError(
                f"{name!r} cannot be the name of a token",
                field="name",
                hint="up to 100 letters, digits and .@:_-",
            )
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(_BYTES)
        role, flows, content = (None, ["*"], False) if scope is None else scope
        row = (id, name, user, _digest(secret), role, json.dumps(list(flows)), content)
        try:
            self._write(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
                (*row, now, by, expires),
            )
        except sqlite3.IntegrityError:
            raise Conflict(
                f"there is already a token named '{name}'",
                hint="choose another name: a revoked token keeps its name in the audit record",
            ) from None
        return f"{_PREFIX}{id}_{secret}"

    def find_token(self, text: str, now: int) -> AccessToken | None:
        """Return the token that a caller presents if it is valid, and note its use."""
        id, _, secret = text.removeprefix(_PREFIX).partition("_")
        rows = self._read("SELECT hash, * FROM tokens WHERE id = ?", (id,))
        known = rows[0][0] if rows else bytes(32)
        if not hmac.compare_digest(known, _digest(secret)) or not rows:
            return None
        token = _token(rows[0][1:])
        if token.status(now) != "open":
            return None
        if token.used_at is None or token.used_at < now - _USE_EVERY:
            self._write("UPDATE tokens SET used_at = ? WHERE id = ?", (now, id))
        return token

    def tokens(self) -> list[AccessToken]:
        """Return all tokens, oldest first, also those that are no longer valid."""
        return [_token(row) for row in self._read("SELECT * FROM tokens ORDER BY created_at, name")]

    def token_named(self, name: str, now: int) -> AccessToken | None:
        """Return a token by its name, if it is valid."""
        rows = self._read("SELECT * FROM tokens WHERE name = ?", (name,))
        token = _token(rows[0]) if rows else None
        return token if token is not None and token.status(now) == "open" else None

    def revoke_token(self, name: str, now: int) -> AccessToken:
        """Revoke a token. It is refused from the next request on.

        Raises:
            NotFound: No token has this name.
        """
        self._write(
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE name = ?", (now, name)
        )
        for token in self.tokens():
            if token.name == name:
                return token
        raise NotFound(
            f"there is no token named '{name}'",
            hint=Hint("list them: flowengine tokens list", http="list them: GET /v1/tokens"),
        )

    # Sessions

    def begin_session(self, token: str, now: int, user: SignedIn | None = None) -> str:
        """Begin a session and return its secret, for the cookie. Only its hash is kept.

        Args:
            token: Name of the credential.
            now: The time, in milliseconds since 1970.
            user: Whom a provider has named.
        """
        self._write("DELETE FROM browsers WHERE expires_at <= ?", (now,))
        secret = secrets.token_urlsafe(_BYTES)
        row = (_digest(secret), token, secrets.token_urlsafe(_BYTES), user and json.dumps(user))
        self._write("INSERT INTO browsers VALUES (?, ?, ?, ?, ?)", (*row, now + SESSION))
        return secret

    def find_session(self, secret: str, now: int) -> SignedInSession | None:
        """Return the session of a cookie, unless it has ended."""
        rows = self._read(
            "SELECT token, form_token, signed_in FROM browsers WHERE hash = ? AND expires_at > ?",
            (_digest(secret), now),
        )
        if not rows:
            return None
        token, form_token, named = rows[0]
        return SignedInSession(token, form_token, named and SignedIn(*json.loads(named)))

    def end_session(self, secret: str) -> None:
        """End a session: the user has signed out."""
        self._write("DELETE FROM browsers WHERE hash = ?", (_digest(secret),))

    # Audit

    def audit(
        self,
        at: int,
        method: str,
        path: str,
        status: int,
        *,
        user: str | None = None,
        token: str | None = None,
        address: str | None = None,
        why: str | None = None,
    ) -> int:
        """Add an entry to the audit record, and return its number, 0 if there is none.

        Requests without a valid credential are recorded up to a number for each address and minute,
        so that a flood of them cannot fill the record.
        """
        if user is None and not self._records_stranger(address or "", at // 60_000):
            return 0
        number = self._write(
            "INSERT INTO audit (at, user, token, address, method, path, status, why)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (at, user, token, address, method, path[:500], status, why and why[:500]),
        )
        is_checked = number % AUDITED_BETWEEN == 0
        if is_checked and self._read("SELECT count(*) FROM audit")[0][0] > AUDITED:
            # First entries of users who have more than half of all are dropped.
            self._write(
                "DELETE FROM audit WHERE number IN (SELECT number FROM (SELECT number,"
                " row_number() OVER (PARTITION BY user ORDER BY number DESC) AS place FROM audit)"
                " WHERE place > ?)",
                (AUDITED // 2,),
            )
            self._write(
                "DELETE FROM audit WHERE number <="
                " (SELECT number FROM audit ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (AUDITED,),
            )
        return number

    def end_act(self, number: int, status: int, why: str | None) -> None:
        """Note in an entry of the audit record how the change ended."""
        values = (status, why and why[:500], number)
        self._write("UPDATE audit SET status = ?, why = ? WHERE number = ?", values)

    def _records_stranger(self, address: str, minute: int) -> bool:
        with self._lock:
            if self._minute != minute:
                self._minute = minute
                self._strangers.clear()
            self._strangers[address] += 1
            known = len(self._strangers) <= _ADDRESSES
            return known and self._strangers[address] <= STRANGERS

    def audited(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        """Return entries of the audit record, newest first.

        Args:
            before: Only entries with a lower number.
            limit: How many.
        """
        rows = self._read(
            "SELECT number, at, user, token, address, method, path, status, why FROM audit"
            " WHERE number < ? ORDER BY number DESC LIMIT ?",
            (2**62 if before is None else before, limit),
        )
        keys = ("number", "at", "user", "token", "address", "method", "path", "status", "why")
        return [dict(zip(keys, row, strict=True)) for row in rows]

    # Idempotency

    def begin_answer(self, user: str, key: str, request: bytes, now: int) -> KeyedRequest:
        """Note that a request with an idempotency key is being answered, or return its answer.

        A request that a killed server left unanswered begins again, with the same seed.

        Args:
            user: The user of the request.
            key: The idempotency key.
            request: Digest of the request.
            now: The time (ms).

        Raises:
            Conflict: The key was used for another request, or that request is being answered.
        """
        with self._lock:
            self._write("DELETE FROM answers WHERE at < ?", (now - KEPT,))
            seed = secrets.token_hex(16)
            self._write(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)",
                (user, key, request, now, self._boot, seed),
            )
            [(digest, boot, owner, status, body)] = self._read(
                "SELECT request, boot, seed, status, body FROM answers WHERE user = ? AND key = ?",
                (user, key),
            )
            if digest != request:
                raise Conflict(
                    f"the idempotency key {key!r} was used for another request",
                    hint="use a new key for each new request",
                )
            if status is None and owner != seed:
                if boot == self._boot:
                    raise Conflict(
                        f"the request with the idempotency key {key!r} is being answered",
                        hint="send it again in a moment",
                    )
                self._write(
                    "UPDATE answers SET boot = ? WHERE user = ? AND key = ?",
                    (self._boot, user, key),
                )
            return KeyedRequest(owner, status, body)

    def end_answer(self, user: str, key: str, status: int, body: bytes) -> None:
        """Keep the answer to a request with an idempotency key."""
        self._write(
            "UPDATE answers SET status = ?, body = ? WHERE user = ? AND key = ?",
            (status, body, user, key),
        )

    def drop_answer(self, user: str, key: str) -> None:
        """Forget a request that failed in the server, so that it can be sent again."""
        self._write(
            "DELETE FROM answers WHERE user = ? AND key = ? AND status IS NULL", (user, key)
        )

    # Uploads

    def check_uploads(self, user: str, size: int, now: int) -> None:
        """Check that a user may upload another file.

        Raises:
            Conflict: The user has uploaded too much in the last week.
        """
        self._write("DELETE FROM uploads WHERE at < ?", (now - HELD_SECONDS * 1000,))
        [(held,)] = self._read("SELECT coalesce(sum(size), 0) FROM uploads WHERE user = ?", (user,))
        if held + size > UPLOADED:
            raise Conflict(
                f"{user} has uploaded {size_text(held)} in the last week, and at most "
                f"{size_text(UPLOADED)} are held",
                hint="an upload is held for a week",
            )

    def end_upload(self, user: str, file: StoredUpload, now: int) -> None:
        """Record a file that a user has uploaded."""
        self._write(
            "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?)",
            (user, file.sha256, file.name, file.size, now),
        )

    def upload(self, user: str, sha256: str) -> StoredUpload:
        """Return a file that a user has uploaded.

        Raises:
            NotFound: The user has not uploaded it in the last week.
        """
        rows = self._read(
            "SELECT name, size FROM uploads WHERE user = ? AND sha256 = ?", (user, sha256)
        )
        if not rows:
            raise NotFound(
                f"{user} has uploaded no file {sha256!r} in the last week",
                hint="upload it: POST /v1/artifacts?name=NAME",
            )
        name, size = rows[0]
        return StoredUpload(name, size, sha256)

    # Internals

    def _write(self, statement: str, values: tuple[Any, ...]) -> int:
        with self._lock, closing(self._connection.execute(statement, values)) as cursor:
            return cursor.lastrowid or 0

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, closing(self._connection.execute(statement, values)) as cursor:
            return cursor.fetchall()


def _token(row: tuple[Any, ...]) -> AccessToken:
    _, name, user, _, role, flows, content, created, by, expires, used, revoked = row
    return AccessToken(
        name, user, role, json.loads(flows), bool(content), created, by, expires, used, revoked
    )


def token_view(token: AccessToken, now: int) -> Mapping[str, Any]:
    """Return a token as `flowengine tokens list --json` and the API return it."""
    times = {
        name: format_time(at)
        for name in ("created_at", "expires_at", "used_at", "revoked_at")
        if (at := getattr(token, name)) is not None
    }
    return {
        "name": token.name,
        "user": token.user,
        "status": token.status(now),
        **({} if token.role is None else {"role": token.role, "content": token.content}),
        "flows": token.flows,
        "created_by": token.created_by,
        **times,
    }


def _digest(secret: str) -> bytes:
    """Return the hash of a secret. It has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).digest()
