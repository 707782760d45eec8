"""The tables of the SQLite store.

A file has the number of their format as its `user_version`. A file of another format is refused.
"""

from __future__ import annotations

from flowengine.journal.step_table import TABLE as STEPS
from flowengine.store_folder import APPLICATION_ID

FORMAT = 1
TABLES = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    # Compiled flows by hash, and the files that compiled to them.
    "CREATE TABLE flows (hash TEXT NOT NULL UNIQUE, compiled BLOB NOT NULL)",
    """CREATE TABLE sources (
        key TEXT NOT NULL UNIQUE, hash TEXT NOT NULL, files BLOB NOT NULL, extra BLOB NOT NULL)""",
    # Executions. Their numbers are never reused: a late writer must not meet a new execution.
    """CREATE TABLE executions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
        flow TEXT NOT NULL, version TEXT, hash TEXT NOT NULL, created_at INTEGER NOT NULL,
        labels BLOB NOT NULL, started_by TEXT NOT NULL, parent TEXT, forked_from TEXT,
        status TEXT NOT NULL, changed_at INTEGER NOT NULL, due INTEGER, ended_at INTEGER,
        outputs BLOB, error BLOB, title TEXT NOT NULL, key_inputs BLOB, failure TEXT)""",
    "CREATE INDEX executions_by_age ON executions (created_at)",
    "CREATE INDEX executions_by_flow ON executions (flow, created_at)",
    "CREATE INDEX executions_by_status ON executions (status, created_at)",
    "CREATE INDEX executions_by_flow_and_status ON executions (flow, status, created_at)",
    "CREATE INDEX executions_by_due ON executions (due) WHERE due IS NOT NULL",
    "CREATE INDEX executions_by_fork ON executions (forked_from) WHERE forked_from IS NOT NULL",
    """CREATE TABLE labels (
        name TEXT, value TEXT, created_at INTEGER, execution INTEGER,
        PRIMARY KEY (name, value, created_at, execution)) WITHOUT ROWID""",
    "CREATE INDEX labels_by_execution ON labels (execution)",
    # Journals: id is the execution's number << 32 | the event's number.
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, sum INTEGER NOT NULL,
        payload BLOB NOT NULL)""",
    # All snapshots, from which the past of an execution is shown.
    """CREATE TABLE snapshots (
        execution INTEGER NOT NULL, seq INTEGER NOT NULL, sum INTEGER NOT NULL,
        state BLOB NOT NULL, UNIQUE (execution, seq))""",
    STEPS,
    # Lease holders.
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY, pid INTEGER NOT NULL, started INTEGER NOT NULL, host TEXT NOT NULL,
        boot TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID""",
    # Leases. `deaths` counts the holders in a row that died without releasing it.
    """CREATE TABLE leases (
        execution INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, owner TEXT,
        deaths INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX leases_by_owner ON leases (owner) WHERE owner IS NOT NULL",
    # Waits. A wait is pending until it is closed or settled by a decision.
    """CREATE TABLE waits (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution INTEGER NOT NULL,
        wait INTEGER NOT NULL, flow TEXT NOT NULL, kind TEXT NOT NULL, batch TEXT,
        since INTEGER NOT NULL, turn INTEGER NOT NULL, record BLOB NOT NULL,
        decision BLOB, how TEXT, closed_at INTEGER, result BLOB)""",
    "CREATE INDEX waits_by_execution ON waits (execution, since)",
    """CREATE INDEX waits_pending ON waits (kind, since)
        WHERE how IS NULL AND decision IS NULL""",
    """CREATE INDEX waits_pending_by_flow ON waits (flow, kind, since)
        WHERE how IS NULL AND decision IS NULL""",
    # `turn` orders them by when they are due. See `turn_of`.
    """CREATE INDEX waits_pending_in_turn ON waits (kind, turn)
        WHERE how IS NULL AND decision IS NULL""",
    """CREATE INDEX waits_pending_by_flow_in_turn ON waits (flow, kind, turn)
        WHERE how IS NULL AND decision IS NULL""",
    """CREATE INDEX waits_pending_by_batch ON waits (batch, kind, since)
        WHERE how IS NULL AND decision IS NULL""",
    """CREATE INDEX waits_closed ON waits (kind, since)
        WHERE NOT (how IS NULL AND decision IS NULL)""",
    # Assignees of the pending waits. The empty text means any user.
    """CREATE TABLE assignees (
        assignee TEXT, kind TEXT, since INTEGER, wait INTEGER, turn INTEGER NOT NULL,
        PRIMARY KEY (assignee, kind, since, wait)) WITHOUT ROWID""",
    "CREATE INDEX assignees_in_turn ON assignees (assignee, kind, turn, wait)",
    "CREATE INDEX assignees_by_wait ON assignees (wait)",
    """CREATE TABLE votes (
        number INTEGER PRIMARY KEY, wait INTEGER NOT NULL, voter TEXT NOT NULL, at INTEGER NOT NULL,
        approves INTEGER NOT NULL, event BLOB NOT NULL, UNIQUE (wait, voter))""",
    # Messages stay after they are taken, so that a second one with the same id is detected.
    """CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT, execution INTEGER NOT NULL,
        address TEXT NOT NULL, message_id TEXT NOT NULL, at INTEGER NOT NULL, event BLOB NOT NULL,
        taken INTEGER, UNIQUE (address, message_id))""",
    "CREATE INDEX messages_by_execution ON messages (execution, taken)",
    "CREATE INDEX messages_untaken ON messages (number) WHERE taken IS NULL",
    """CREATE TABLE keys (
        signal TEXT, key TEXT, execution INTEGER, wait INTEGER,
        PRIMARY KEY (signal, key, execution, wait)) WITHOUT ROWID""",
    "CREATE INDEX keys_by_execution ON keys (execution, wait)",
    # References of executions to files.
    """CREATE TABLE artifacts (
        sha256 TEXT, execution INTEGER, PRIMARY KEY (sha256, execution)) WITHOUT ROWID""",
    "CREATE INDEX artifacts_by_execution ON artifacts (execution)",
    # Flows that were deployed. The latest version of a flow is the current one.
    """CREATE TABLE deployments (
        flow TEXT, version TEXT, hash TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (flow, version)) WITHOUT ROWID""",
    # Signals that start executions of deployed flows.
    """CREATE TABLE starts (
        signal TEXT, flow TEXT, hash TEXT NOT NULL, PRIMARY KEY (signal, flow)) WITHOUT ROWID""",
    "CREATE INDEX starts_by_flow ON starts (flow)",
    # Schedules that start executions of deployed flows. Times are moved by compare-and-set. A
    # paused schedule is never due.
    """CREATE TABLE schedules (
        flow TEXT, schedule TEXT, hash TEXT NOT NULL, time INTEGER NOT NULL, due INTEGER,
        PRIMARY KEY (flow, schedule)) WITHOUT ROWID""",
    "CREATE INDEX schedules_by_due ON schedules (due)",
    # Messages between executions, until they are in an inbox. Undeliverable ones stay.
    """CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, sender TEXT NOT NULL, target TEXT NOT NULL,
        at INTEGER NOT NULL, event BLOB NOT NULL, why TEXT)""",
    "CREATE INDEX outbox_open ON outbox (number) WHERE why IS NULL",
    # Locks that executions share: holders and waiting claims, by number. Claims on budgets have
    # amounts.
    """CREATE TABLE claims (
        number INTEGER PRIMARY KEY AUTOINCREMENT, lock TEXT NOT NULL, execution INTEGER NOT NULL,
        unit INTEGER NOT NULL, permits INTEGER NOT NULL, at INTEGER NOT NULL,
        held INTEGER NOT NULL, granted BLOB NOT NULL, amounts BLOB,
        UNIQUE (lock, execution, unit))""",
    "CREATE INDEX claims_in_order ON claims (lock, held, number)",
    "CREATE INDEX claims_by_execution ON claims (execution)",
    "CREATE INDEX outbox_undelivered ON outbox (sender) WHERE why IS NOT NULL",
    # Flows that executions ran before they were moved to another version.
    """CREATE TABLE forms (
        execution INTEGER, hash TEXT, PRIMARY KEY (execution, hash)) WITHOUT ROWID""",
    # Items of append-only lists, which snapshots leave out.
    """CREATE TABLE lists (
        execution INTEGER NOT NULL, name TEXT NOT NULL, first INTEGER NOT NULL,
        sum INTEGER NOT NULL, items BLOB NOT NULL, UNIQUE (execution, name, first))""",
    # Grants for all executions of a flow, by the wait whose decision created them.
    """CREATE TABLE grants (
        id TEXT PRIMARY KEY, flow TEXT NOT NULL, tool TEXT NOT NULL, version TEXT NOT NULL,
        given_by TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL, uses INTEGER,
        until INTEGER, used INTEGER NOT NULL, revoked_by TEXT) WITHOUT ROWID""",
    "CREATE INDEX grants_by_tool ON grants (flow, tool)",
    # How many executions of a flow have a status.
    """CREATE TABLE counts (
        flow TEXT, status TEXT, count INTEGER NOT NULL,
        PRIMARY KEY (flow, status)) WITHOUT ROWID""",
    # Executions whose texts in the index have changed, or must be removed. See `search.py`.
    "CREATE TABLE unindexed (execution INTEGER PRIMARY KEY)",
    """CREATE TRIGGER execution_created AFTER INSERT ON executions BEGIN
        INSERT INTO counts VALUES (new.flow, new.status, 1)
            ON CONFLICT DO UPDATE SET count = count + 1; END""",
    """CREATE TRIGGER execution_changed AFTER UPDATE OF status ON executions
        WHEN new.status <> old.status BEGIN
        UPDATE counts SET count = count - 1 WHERE flow = old.flow AND status = old.status;
        INSERT INTO counts VALUES (new.flow, new.status, 1)
            ON CONFLICT DO UPDATE SET count = count + 1; END""",
    """CREATE TRIGGER execution_failed AFTER UPDATE OF failure ON executions
        WHEN new.failure IS NOT old.failure BEGIN
        INSERT INTO unindexed VALUES (new.number) ON CONFLICT DO NOTHING; END""",
    """CREATE TRIGGER execution_removed AFTER DELETE ON executions BEGIN
        UPDATE counts SET count = count - 1 WHERE flow = old.flow AND status = old.status;
        INSERT INTO unindexed VALUES (old.number) ON CONFLICT DO NOTHING; END""",
    # Budgets that executions share: what ended calls have used, and the newest limits.
    """CREATE TABLE budgets (
        name TEXT PRIMARY KEY, used BLOB NOT NULL, limits BLOB NOT NULL) WITHOUT ROWID""",
)

NUMBERING = (
    "CREATE TABLE IF NOT EXISTS numbered (number INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
    """CREATE TRIGGER IF NOT EXISTS number_event AFTER INSERT ON events
        BEGIN INSERT INTO numbered (event) VALUES (new.id); END""",
)
"""Numbers all events in the order of their commits. It costs a second insert for each event, so a
store has it from the first reader of all events on."""
