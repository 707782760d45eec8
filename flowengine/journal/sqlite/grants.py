"""Grants for all executions of a flow: created by a decision, used by later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.journal.records import FlowGrant
from flowengine.journal.refusals import no_grant, revoked_already

if TYPE_CHECKING:
    import sqlite3

    from flowengine.journal.records import Vote

_COLUMNS = "id, flow, tool, version, given_by, at, body, uses, until, used, revoked_by"
_GIVE = f"INSERT OR REPLACE INTO grants ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, NULL)"
_USE = """UPDATE grants SET used = used + 1
    WHERE id = ? AND revoked_by IS NULL
        AND (uses IS NULL OR used < uses) AND (until IS NULL OR until > ?)"""
_ONE = f"SELECT {_COLUMNS} FROM grants WHERE id = ?"
_ALL = f"""SELECT {_COLUMNS} FROM grants
    WHERE (?1 IS NULL OR flow = ?1) AND (?2 IS NULL OR tool = ?2) ORDER BY at, id"""
_OF_TOOL = f"SELECT {_COLUMNS} FROM grants WHERE flow = ? AND tool = ? ORDER BY at, id"
_REVOKE = "UPDATE grants SET revoked_by = ? WHERE id = ? AND revoked_by IS NULL"


def give(connection: sqlite3.Connection, wait: str, flow: str, vote: Vote) -> None:
    """Keep the grant of a vote, if it contains one."""
    given = vote.gives
    if given is not None and vote.approves:
        row = (given.tool, given.version, vote.by, vote.at, given.body, given.uses, given.until)
        connection.execute(_GIVE, (wait, flow, *row))


def use(connection: sqlite3.Connection, id: str, at: int) -> bool:
    """Count a use of a grant, and return whether it was usable."""
    return connection.execute(_USE, (id, at)).rowcount == 1


def list_grants(
    connection: sqlite3.Connection, flow: str | None, tool: str | None
) -> list[FlowGrant]:
    """Return grants, oldest first."""
    both = flow is not None and tool is not None
    return [_read(row) for row in connection.execute(_OF_TOOL if both else _ALL, (flow, tool))]


def revoke(connection: sqlite3.Connection, id: str, by: str) -> FlowGrant:
    """Revoke a grant.

    Raises:
        NotFound: The grant does not exist.
        Conflict: It was revoked before.
    """
    first = connection.execute(_REVOKE, (by, id)).rowcount == 1
    row = connection.execute(_ONE, (id,)).fetchone()
    if row is None:
        raise no_grant(id)
    grant = _read(row)
    if not first:
        raise revoked_already(grant)
    return grant


def _read(row: tuple[Any, ...]) -> FlowGrant:
    return FlowGrant(*row)
