"""Locks and grants that executions share, in the tables of the SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from flowengine.errors import Conflict
from flowengine.journal.accounts import answer, charged, is_unlimited, limits_in, most_of, total
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import Append, FlowGrant, LockOperation, UsedBudget, Vote
from flowengine.journal.refusals import no_grant, not_free, revoked_already
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.rows import read_execution

# Locks that executions share, in the tables of the SQLite store.
#
# A lock is granted in the order of its claims, up to its permits. The transaction that frees it
# also grants it, in any process. The new holder finds the grant in its inbox.
#
# An execution that ends while its attempts are still being stopped holds its locks until its lease
# is released, so that the next holder does not work beside them.


def rejected(connection: sqlite3.Connection, append: Append) -> Conflict | None:
    """Return a conflict if an append claims a lock that is not free, and does not wait for it.

    Args:
        connection: In a write transaction.
        append: Not written yet.
    """
    for claim in append.claims:
        own = (claim.lock, claim.unit, append.execution)
        if claim.then != "reject" or connection.execute(queries.OWN_CLAIM, own).fetchone():
            continue
        others = connection.execute(queries.OTHER_CLAIMS, (claim.lock, append.execution)).fetchall()
        wanted = [item.then for item in append.claims if item.lock == claim.lock].count("reject")
        if len(others) + wanted > claim.permits:
            row = connection.execute(queries.EXECUTION, (others[0][2],)).fetchone()
            return not_free(claim.lock, others[0][2], read_execution(row[1:]))
    return None


def write_claims(connection: sqlite3.Connection, number: int, append: Append) -> None:
    """Write the claims of an append, and grant the locks that became free.

    Args:
        connection: In a write transaction.
        number: Number of the execution.
        append: The append.
    """
    at = append.at
    for claim in append.claims:
        if claim.then == "give":
            _end_claim(connection, claim.lock, number, claim.unit, claim.amounts)
        elif claim.amounts is not None:
            _claim_budget(connection, number, claim, at)
        else:
            row = (claim.lock, number, claim.unit, claim.permits, at, claim.granted, None)
            is_new = connection.execute(queries.CLAIM, row).rowcount == 1
            if claim.then == "cancel" and is_new:
                # Executions that have ended already are about to release theirs.
                claims = connection.execute(queries.OTHER_CLAIMS, (claim.lock, append.execution))
                others = [each[:2] for each in claims if each[3] is None]
                for other, of in others[: max(len(others) - claim.permits + 1, 0)]:
                    told = (of, f"claim {other}", "cancel", at, claim.cancel)
                    connection.execute(queries.TELL, told)
        _grant(connection, claim.lock, at)


def end_claims_of_ended(connection: sqlite3.Connection, number: int) -> None:
    """Release the locks of an execution if it has ended.

    While its lease has a holder, attempts may still be at work, and it keeps the granted ones.

    Args:
        connection: In a write transaction.
        number: Number of the execution.
    """
    row = connection.execute(queries.ENDED_WITH_CLAIMS, (number,)).fetchone()
    if row is not None:
        at, is_driven = row
        end_claims(connection, number, at, keep_held=bool(is_driven))


def end_claims(
    connection: sqlite3.Connection,
    number: int,
    at: int,
    *,
    keep_held: bool = False,
    used: Mapping[str, int] | None = None,
) -> None:
    """Release the locks of an execution, and what it has reserved of budgets.

    Args:
        connection: In a write transaction.
        number: Number of the execution.
        at: When it ended (ms).
        keep_held: Release only the claims that were not granted.
        used: The amounts used of budgets. None: unknown, so all that is reserved counts.
    """
    locks: dict[str, None] = {}
    for lock, unit, is_held in connection.execute(queries.CLAIMED_BY, (number,)).fetchall():
        locks[lock] = None
        if not (keep_held and is_held):
            _end_claim(connection, lock, number, unit, used)
    for lock in locks:
        _grant(connection, lock, at)


def _end_claim(
    connection: sqlite3.Connection,
    lock: str,
    number: int,
    unit: int,
    used: Mapping[str, int] | None,
) -> None:
    """Delete a claim, if it exists. One on a budget is settled.

    Args:
        connection: In a write transaction.
        lock: Name of the lock or budget.
        number: Number of the execution.
        unit: The unit that has the claim.
        used: The amounts used of a budget. None: unknown, so its reservation counts.
    """
    row = connection.execute(queries.OF_CLAIM, (lock, number, unit)).fetchone()
    connection.execute(queries.GIVE_BACK, (lock, number, unit))
    if row is not None and row[0] and row[1] is not None:
        before, limits = connection.execute(queries.BUDGET, (lock,)).fetchone()
        after = charged(unpack(before), unpack(row[1]), used)
        connection.execute(queries.KEEP_BUDGET, (lock, pack(after), limits))


def _claim_budget(
    connection: sqlite3.Connection, number: int, claim: LockOperation, at: int
) -> None:
    """Claim a part of a budget. A claim without limits is granted at once."""
    needs = claim.amounts or {}
    used, limits = connection.execute(queries.BUDGET, (claim.lock,)).fetchone() or (_NONE, _NONE)
    newest = pack({**unpack(limits), **limits_in(needs)})
    if newest != limits or used is _NONE:
        connection.execute(queries.KEEP_BUDGET, (claim.lock, used, newest))
    row = (claim.lock, number, claim.unit, claim.permits, at, claim.granted, pack(needs))
    is_new = connection.execute(queries.CLAIM, row)
    if is_new.rowcount == 1 and is_unlimited(needs):
        connection.execute(queries.ANSWER_CLAIM, (pack(most_of(needs)), is_new.lastrowid))


_NONE = pack({})


def _reserved(connection: sqlite3.Connection, name: str) -> list[Mapping[str, int]]:
    return [unpack(amounts) for (amounts,) in connection.execute(queries.ON_BUDGET, (name,))]


def _answer_claims(connection: sqlite3.Connection, name: str, used: bytes, at: int) -> None:
    """Answer the waiting claims on a budget in order, up to one that has to wait."""
    for claim, execution, event, needs in connection.execute(
        queries.WAITING_CLAIMS, (name,)
    ).fetchall():
        found = answer(unpack(needs), unpack(used), _reserved(connection, name))
        if found is None:
            return
        if found.lacks is None:
            connection.execute(queries.ANSWER_CLAIM, (pack(dict(found.amounts)), claim))
        else:
            connection.execute(queries.REFUSE_CLAIM, (claim,))
        told = found.event(event)
        connection.execute(queries.TELL, (execution, f"claim {claim}", "granted", at, told))


def list_budgets(connection: sqlite3.Connection) -> list[UsedBudget]:
    """Return the budgets that executions share, by name."""
    return [
        UsedBudget(name, unpack(used), total(_reserved(connection, name)), unpack(limits))
        for name, used, limits in connection.execute(queries.BUDGETS).fetchall()
    ]


def _grant(connection: sqlite3.Connection, lock: str, at: int) -> None:
    """Grant a lock to the first waiting claims, up to its permits. Answer claims on a budget."""
    budget = connection.execute(queries.BUDGET, (lock,)).fetchone()
    if budget is not None:
        _answer_claims(connection, lock, budget[0], at)
        return
    (held,) = connection.execute(queries.HELD, (lock,)).fetchone()
    while (row := connection.execute(queries.NEXT_CLAIM, (lock,)).fetchone()) is not None:
        claim, execution, permits, event = row
        if held >= permits:
            return
        connection.execute(queries.GRANT, (claim,))
        connection.execute(queries.TELL, (execution, f"claim {claim}", "granted", at, event))
        held += 1


# Grants for all executions of a flow: created by a decision, used by later ones.

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
