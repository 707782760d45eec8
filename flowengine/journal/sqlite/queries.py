"""Every query of the SQLite store, with a sentence each. The tables are in `schema.py`.

An execution has a small number in addition to its id. Event n of execution e has the rowid `e << 32
| n`: the journal of one execution lies together, in order, in one B-tree without a further index,
so that an append writes one page.
"""

from __future__ import annotations

# -- flows

PUT_FLOW = "INSERT INTO flows (hash, compiled) VALUES (?, ?) ON CONFLICT DO NOTHING"
"""Keep a compiled flow; the same hash is the same flow."""

GET_FLOW = "SELECT compiled FROM flows WHERE hash = ?"
"""A compiled flow."""

HAS_FLOW = "SELECT 1 FROM flows WHERE hash = ?"
"""Whether a compiled flow is there, without reading it."""

REMEMBER_SOURCE = "INSERT OR REPLACE INTO sources (key, hash, files, extra) VALUES (?, ?, ?, ?)"
"""What a flow file compiled to; replaces what it compiled to before."""

FIND_SOURCE = "SELECT hash, files, extra FROM sources WHERE key = ?"
"""What a flow file compiled to."""

DROP_STARTS = "DELETE FROM starts WHERE flow = ?"
"""A flow no longer starts on messages."""

PUT_START = "INSERT INTO starts (signal, flow, hash) VALUES (?, ?, ?)"
"""Messages of a signal start executions of a flow."""

STARTS = "SELECT flow, hash FROM starts WHERE signal = ? ORDER BY flow"
"""The flows that messages of a signal start."""

# -- appends

APPEND_FENCED = """
INSERT INTO events (id, at, sum, payload)
SELECT ?, ?, ?, ? FROM leases WHERE execution = ? AND epoch = ?"""
"""One event, if the epoch is in force: check and write are one statement, so one transaction."""

FENCE = "SELECT 1 FROM leases WHERE execution = ? AND epoch = ?"
"""Whether the epoch is in force."""

APPEND = "INSERT INTO events (id, at, sum, payload) VALUES (?, ?, ?, ?)"
"""One event, after `FENCE` in the same transaction."""

CREATE = """
INSERT INTO executions
  (id, flow, version, hash, created_at, labels, started_by, parent, forked_from,
   status, changed_at, due, ended_at, outputs, error)
SELECT ?, ?, ?, hash, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM flows WHERE hash = ?
ON CONFLICT (id) DO NOTHING"""
"""A new execution, unless its id is taken or its flow is not there."""

CREATE_LEASE = "INSERT INTO leases (execution, epoch, owner) VALUES (?, ?, ?)"
"""The first lease of a new execution."""

CREATE_LABEL = """
INSERT INTO labels (name, value, created_at, execution) VALUES (?, ?, ?, ?)"""
"""A label, for lists by label."""

SET_HEAD = """
UPDATE executions SET status = ?, changed_at = ?, due = ?, ended_at = ?, outputs = ?, error = ?
WHERE number = ?"""
"""What lists show of an execution."""

SET_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (execution, seq, sum, state) VALUES (?, ?, ?, ?)"
"""The newest snapshot, in the place of the one before."""

CUT_LIST = "DELETE FROM lists WHERE execution = ? AND name = ? AND first >= ?"
"""What is replaced of a list."""

ADD_TO_LIST = "INSERT INTO lists (execution, name, first, sum, items) VALUES (?, ?, ?, ?, ?)"
"""Items of a list that a snapshot leaves out."""

SET_FLOW = "UPDATE executions SET hash = ?, version = ? WHERE number = ?"
"""An execution was moved to another version of its flow."""

KEEP_FORM = "INSERT OR IGNORE INTO forms (execution, hash) VALUES (?, ?)"
"""A flow without which a journal cannot be read."""

OPEN_WAIT = """
INSERT INTO waits (id, execution, wait, flow, kind, batch, since, record)
SELECT ?, number, ?, flow, ?, ?, ?, ? FROM executions WHERE number = ?
ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, record = excluded.record"""
"""A wait that opened, or one that changed."""

OPEN_WAIT_FOR = """
INSERT OR IGNORE INTO assignees (assignee, kind, since, wait)
SELECT ?, kind, since, number FROM waits WHERE id = ? AND how IS NULL AND decision IS NULL"""
"""Who may answer a pending wait; the empty text means anyone."""

OPENED_BEFORE = "SELECT number, how, record FROM waits WHERE id = ?"
"""A wait that changes, or one that was closed and opens again: its execution went back."""

FORGET_WAIT = (
    "DELETE FROM votes WHERE wait = :number",
    "DELETE FROM waits WHERE number = :number",
    "DELETE FROM messages WHERE address = :address",
)
"""What was asked and decided there no longer counts; the journal still has it."""

CLOSE_WAIT_FOR = "DELETE FROM assignees WHERE wait = (SELECT number FROM waits WHERE id = ?)"
"""Nobody needs to answer the wait any more, or others do."""

EXPIRES_TOO_LATE = "SELECT 1 FROM waits WHERE id = ? AND decision IS NOT NULL AND how IS NULL"
"""Whether a decision was recorded for a wait that is about to expire."""

CLOSE_WAIT = "UPDATE waits SET how = ?, closed_at = ?, result = ? WHERE id = ?"
"""The journal says that a wait ended."""

ADD_KEY = "INSERT OR IGNORE INTO keys (signal, key, execution, wait) VALUES (?, ?, ?, ?)"
"""A key under which an execution is found; `wait` is -1 for one that holds to its end."""

DROP_WAIT_KEYS = "DELETE FROM keys WHERE execution = ? AND wait = ?"
"""The keys of a wait that ended."""

DROP_KEYS = "DELETE FROM keys WHERE execution = ?"
"""The keys of an execution that ended."""

TAKE = """
UPDATE messages SET taken = ?, event = CASE WHEN address GLOB 'wait *' THEN x'' ELSE event END
WHERE number = ? AND execution = ? RETURNING address, message_id, event"""
"""A message is in the journal now, at this place; of a decision, the vote has what it says."""

SHORTEN_MESSAGE = "UPDATE messages SET event = ? WHERE number = ?"
"""Its long texts are in the journal."""

VOTE_OF = """
SELECT votes.number, votes.event FROM votes JOIN waits ON waits.number = votes.wait
WHERE waits.id = ? AND votes.voter = ?"""
"""The answer that somebody gave to a wait."""

SHORTEN_VOTE = "UPDATE votes SET event = ? WHERE number = ?"
"""As `SHORTEN_MESSAGE`."""

PUT_OUT = "INSERT INTO outbox (sender, target, at, event) VALUES (?, ?, ?, ?)"
"""A message to other executions is on its way."""

# -- locks that executions share

CLAIM = """
INSERT OR IGNORE INTO claims (lock, execution, unit, permits, at, held, granted)
VALUES (?, ?, ?, ?, ?, 0, ?)"""
"""A claim, unless it is there already."""

GIVE_BACK = "DELETE FROM claims WHERE lock = ? AND execution = ? AND unit = ?"
"""A claim is over."""

CLAIMED_BY = "SELECT lock FROM claims WHERE execution = ?"
"""The locks that an execution has claimed, some perhaps more than once."""

GIVE_ALL_BACK = "DELETE FROM claims WHERE execution = ?"
"""All claims of an execution are over."""

HELD = "SELECT count(*) FROM claims WHERE lock = ? AND held = 1"
"""How many hold a lock."""

NEXT_CLAIM = """
SELECT number, execution, permits, granted FROM claims
WHERE lock = ? AND held = 0 ORDER BY number LIMIT 1"""
"""Who waits for a lock first."""

GRANT = "UPDATE claims SET held = 1 WHERE number = ?"
"""A claim is granted."""

TELL = """
INSERT INTO messages (execution, address, message_id, at, event) SELECT new.*
FROM (SELECT ? AS execution, ? AS address, ? AS message_id, ? AS at, ? AS event) AS new
WHERE NOT EXISTS (
  SELECT 1 FROM messages WHERE address = new.address AND message_id = new.message_id)"""
"""A message to an execution, unless it has been stored already: then no number is used up."""

OWN_CLAIM = """
SELECT 1 FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? AND unit = ? AND executions.id = ?"""
"""Whether a claim is there already."""

OTHER_CLAIMS = """
SELECT claims.number, execution, executions.id
FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? AND executions.id <> ? ORDER BY claims.number"""
"""The claims that others than one execution have on a lock, in order."""

CLAIMS = """
SELECT executions.id, unit, at, held
FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? ORDER BY claims.number"""
"""All claims on a lock, in order."""

# -- leases

NUMBER = "SELECT number FROM executions WHERE id = ?"
"""The number of an execution."""

HOLDER = """
SELECT leases.epoch, owners.id, pid, started, host, boot, until
FROM leases LEFT JOIN owners ON owners.id = leases.owner WHERE leases.execution = ?"""
"""The lease of an execution and who holds it, if it is held."""

RENEW = """
INSERT INTO owners (id, pid, started, host, boot, until) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET until = excluded.until"""
"""An owner lives."""

ACQUIRE = """
UPDATE leases SET owner = ?, epoch = epoch + 1 WHERE execution = ? RETURNING epoch"""
"""A new holder, and so a new epoch."""

RELEASE = """
UPDATE leases SET owner = NULL, epoch = epoch + 1 WHERE execution = ? AND epoch = ?"""
"""Nobody holds it; a straggler of the last holder cannot write either."""

RELEASE_ALL = "UPDATE leases SET owner = NULL, epoch = epoch + 1 WHERE owner = ?"
"""All leases of an owner."""

FORGET_OWNER = "DELETE FROM owners WHERE id = ?"
"""An owner that has retired."""

FORGET_OWNERS = """
DELETE FROM owners WHERE id NOT IN (SELECT owner FROM leases WHERE owner IS NOT NULL)
AND boot <> ?"""
"""Owners of earlier boots that hold nothing."""

# -- inbox

SEND = """
INSERT INTO messages (execution, address, message_id, at, event) VALUES (?, ?, ?, ?, ?)"""
"""A message to an execution."""

SENT = """
SELECT messages.number, executions.id, messages.event, messages.execution
FROM messages JOIN executions ON executions.number = messages.execution
WHERE address = ? AND message_id = ?"""
"""The message that was sent to this address with this id."""

FIND_KEY = """
SELECT executions.number, executions.id
FROM keys JOIN executions ON executions.number = keys.execution
WHERE signal = ? AND key = ? ORDER BY keys.execution LIMIT 1"""
"""The oldest open execution with this key."""

INBOX = """
SELECT number, at, event FROM messages WHERE execution = ? AND taken IS NULL ORDER BY number"""
"""What one execution has not journaled yet."""

OUTBOX = """
SELECT number, sender, target, at, event, why FROM outbox INDEXED BY outbox_open
WHERE why IS NULL ORDER BY number"""
"""What is on its way."""

DELIVERED = "DELETE FROM outbox WHERE number = ?"
"""A message has arrived."""

REFUSED = "UPDATE outbox SET why = ? WHERE number = ?"
"""A message that nobody can take."""

UNDELIVERED = """
SELECT number, sender, target, at, event, why FROM outbox INDEXED BY outbox_undelivered
WHERE sender = ? AND why IS NOT NULL ORDER BY number"""
"""What nobody could take of what one execution has sent."""

ARRIVED = """
SELECT messages.number, executions.id, messages.at, messages.event
FROM messages JOIN executions ON executions.number = messages.execution
WHERE messages.number > ? AND taken IS NULL ORDER BY messages.number"""
"""What any execution has not journaled yet, from a number on."""

CHANGES = "PRAGMA data_version"
"""A number that changes when another connection commits."""

# -- decisions

WAIT_COLUMNS = """
waits.id, executions.id, waits.flow, waits.wait, waits.record,
CASE typeof(waits.decision) WHEN 'integer'
  THEN (SELECT event FROM votes WHERE votes.number = waits.decision) ELSE waits.decision END,
waits.how,
waits.closed_at, waits.result, waits.execution, waits.number, waits.since"""

WAIT = f"""
SELECT {WAIT_COLUMNS} FROM waits JOIN executions ON executions.number = waits.execution
WHERE waits.id = ?"""
"""A wait."""

VOTES = "SELECT voter, approves, event FROM votes WHERE wait = ? ORDER BY number"
"""The answers to a wait, oldest first."""

VOTE = "INSERT INTO votes (wait, voter, at, approves, event) VALUES (?, ?, ?, ?, ?)"
"""An answer; it is kept as long as the execution."""

SETTLE = "UPDATE waits SET decision = ? WHERE number = ? AND decision IS NULL AND how IS NULL"
"""The number of the answer that decides; there is one at most."""

# -- executions

EXECUTION_COLUMNS = """
executions.id, executions.flow, executions.version, executions.hash, executions.created_at,
executions.labels, executions.started_by, executions.parent, executions.forked_from,
executions.status, executions.changed_at, executions.due, executions.ended_at"""

EXECUTION = f"SELECT number, {EXECUTION_COLUMNS}, outputs, error FROM executions WHERE id = ?"
"""One execution, with its number."""

SNAPSHOT = "SELECT seq, sum, state FROM snapshots WHERE execution = ?"
"""The newest snapshot."""

LISTS = "SELECT name, first, sum, items FROM lists WHERE execution = ? ORDER BY name, first"
"""The lists that it leaves out."""

EVENTS = """
SELECT id & 0xffffffff, at, sum, payload FROM events WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"""
"""Events of one execution, in order."""

BEGINNING_SO = "SELECT id FROM {table} WHERE id >= ? AND id < ? ORDER BY id LIMIT 6"
"""The first ids in a range."""

NEXT_TO = """
SELECT max(id) FROM {table} WHERE id < ? UNION ALL SELECT min(id) FROM {table} WHERE id > ?"""
"""The ids before and after one, in order."""

# -- artifacts

REFER = "INSERT OR IGNORE INTO artifacts (sha256, execution) VALUES (?, ?)"
"""An execution refers to an artifact."""

REFERS = """SELECT 1 FROM artifacts JOIN executions ON executions.number = artifacts.execution
    WHERE artifacts.sha256 = ? AND executions.id = ?"""
"""Whether an execution refers to an artifact."""

REFER_TOO = """INSERT OR IGNORE INTO artifacts (sha256, execution)
    SELECT sha256, :number FROM artifacts WHERE sha256 = :sha256 AND
    (:of IS NULL OR execution = (SELECT number FROM executions WHERE id = :of)) LIMIT 1"""
"""An execution refers to an artifact that another one, or any, refers to."""

REFER_TO_ALL = """INSERT OR IGNORE INTO artifacts (sha256, execution)
    SELECT sha256, ? FROM artifacts
    WHERE execution = (SELECT number FROM executions WHERE id = ?)"""
"""An execution refers to all artifacts of another one."""

IS_REFERRED = "SELECT 1 FROM artifacts WHERE sha256 = ? LIMIT 1"
"""Whether any execution refers to an artifact."""

# -- care

PRUNABLE = """
SELECT number, id FROM executions
WHERE status = ? AND ended_at <= ? AND number > ? ORDER BY number LIMIT ?"""
"""Executions that ended with a status at some time or earlier, from a number on."""

PRUNE = (
    """DELETE FROM outbox WHERE why IS NOT NULL
    AND sender = (SELECT id FROM executions WHERE number = :number)""",
    "DELETE FROM events WHERE id >= :number << 32 AND id < (:number + 1) << 32",
    "DELETE FROM snapshots WHERE execution = :number",
    "DELETE FROM lists WHERE execution = :number",
    "DELETE FROM votes WHERE wait IN (SELECT number FROM waits WHERE execution = :number)",
    "DELETE FROM assignees WHERE wait IN (SELECT number FROM waits WHERE execution = :number)",
    "DELETE FROM waits WHERE execution = :number",
    "DELETE FROM messages WHERE execution = :number",
    "DELETE FROM keys WHERE execution = :number",
    "DELETE FROM labels WHERE execution = :number",
    "DELETE FROM artifacts WHERE execution = :number",
    "DELETE FROM forms WHERE execution = :number",
    "DELETE FROM leases WHERE execution = :number",
    "DELETE FROM executions WHERE number = :number",
)
"""All of one execution."""

PRUNE_FLOWS = """
DELETE FROM flows WHERE hash NOT IN (SELECT hash FROM executions)
AND hash NOT IN (SELECT hash FROM sources) AND hash NOT IN (SELECT hash FROM starts)
AND hash NOT IN (SELECT hash FROM forms)"""
"""Flows that no execution runs or has run, no file compiles to and no message starts."""
