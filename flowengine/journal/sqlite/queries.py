"""Every query of the SQLite store, each with a description. The tables are in `schema.py`.

An execution has a small number in addition to its id. Event n of execution e has the rowid `e << 32
| n`. The journal of one execution is therefore contiguous and ordered in one B-tree without a
further index, so that an append writes one page.
"""

from __future__ import annotations

# -- flows

PUT_FLOW = (
    "INSERT INTO flows (hash, compiled) VALUES (?, ?) ON CONFLICT DO UPDATE"
    " SET compiled = excluded.compiled WHERE compiled IS NOT excluded.compiled"
)
"""Insert a compiled flow. The same hash is the same flow, so only a damaged one is replaced."""

GET_FLOW = "SELECT compiled FROM flows WHERE hash = ?"
"""Select a compiled flow."""

HAS_FLOW = "SELECT 1 FROM flows WHERE hash = ?"
"""Check whether a compiled flow exists, without reading it."""

REMEMBER_SOURCE = "INSERT OR REPLACE INTO sources (key, hash, files, extra) VALUES (?, ?, ?, ?)"
"""Insert the compilation result of a flow file, replacing the previous one."""

FIND_SOURCE = "SELECT hash, files, extra FROM sources WHERE key = ?"
"""Select the compilation result of a flow file."""

DROP_STARTS = "DELETE FROM starts WHERE flow = ?"
"""Delete the signals that start a flow."""

PUT_START = "INSERT INTO starts (signal, flow, hash) VALUES (?, ?, ?)"
"""Insert a signal that starts executions of a flow."""

STARTS = "SELECT flow, hash FROM starts WHERE signal = ? ORDER BY flow"
"""Select the flows that messages of a signal start."""

DEPLOY = """
REPLACE INTO deployments (flow, version, hash, at) VALUES (
  :flow, :version, :hash,
  max(:at, coalesce((SELECT max(at) + 1 FROM deployments WHERE flow = :flow), 0)))"""
"""Insert a deployed flow, later than its other versions also if the clock was set back."""

UNDEPLOY = "DELETE FROM deployments WHERE flow = :flow AND version = coalesce(:version, version)"
"""Delete a deployed version of a flow, or all of them."""

DEPLOYED = """
SELECT flow, version, hash, at FROM deployments
WHERE :flow IS NULL OR flow = :flow ORDER BY flow, at DESC"""
"""Select deployed flows, the current version of each first."""

DROP_SCHEDULES = """
DELETE FROM schedules WHERE flow = ? AND schedule NOT IN (SELECT value FROM json_each(?))"""
"""Delete the schedules of a flow, except some."""

PUT_SCHEDULE = """
INSERT INTO schedules (flow, schedule, hash, time, due) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (flow, schedule) DO UPDATE SET hash = excluded.hash"""
"""Insert a schedule. One that is there keeps its times."""

SCHEDULES = """
SELECT flow, hash, schedule, time, due FROM schedules WHERE due <= ? ORDER BY due, flow, schedule"""
"""Select the schedules that are due at a time."""

ALL_SCHEDULES = "SELECT flow, hash, schedule, time, due FROM schedules ORDER BY flow, schedule"
"""Select all schedules."""

MOVE_SCHEDULE = """
UPDATE schedules SET time = ?, due = ?
WHERE flow = ? AND schedule = ? AND time = ? AND due IS ? AND hash = ?"""
"""Set the next time of a schedule that has not been moved since it was read."""

# -- appends

APPEND_FENCED = """
INSERT INTO events (id, at, sum, payload)
SELECT ?, ?, ?, ? FROM leases WHERE execution = ? AND epoch = ?"""
"""Insert one event if the epoch is current: check and write are one statement, so one
transaction."""

FENCE = "SELECT 1 FROM leases WHERE execution = ? AND epoch = ?"
"""Check whether the epoch is current."""

APPEND = "INSERT INTO events (id, at, sum, payload) VALUES (?, ?, ?, ?)"
"""Insert one event, after `FENCE` in the same transaction."""

CREATE = """
INSERT INTO executions
  (id, flow, version, hash, created_at, labels, started_by, parent, forked_from,
   title, key_inputs, status, changed_at, due, ended_at, outputs, error, failure)
SELECT ?, ?, ?, hash, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM flows WHERE hash = ?
ON CONFLICT (id) DO NOTHING"""
"""Insert a new execution, unless its id is taken or its flow is missing."""

CREATE_LEASE = "INSERT INTO leases (execution, epoch, owner) VALUES (?, ?, ?)"
"""Insert the first lease of a new execution."""

CREATE_LABEL = """
INSERT INTO labels (name, value, created_at, execution) VALUES (?, ?, ?, ?)"""
"""Insert a label, for lists by label."""

SET_HEAD = """
UPDATE executions SET status = ?, changed_at = ?, due = ?, ended_at = ?, outputs = ?, error = ?,
  failure = ?
WHERE number = ?"""
"""Update an execution's entry in lists."""

SET_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (execution, seq, sum, state) VALUES (?, ?, ?, ?)"
"""Insert the newest snapshot."""

FORGET_SNAPSHOTS = "DELETE FROM snapshots WHERE execution = ?"
"""Delete the snapshots from which the lists of an execution have parted."""

CUT_LIST = "DELETE FROM lists WHERE execution = ? AND name = ? AND first >= ?"
"""Delete the replaced part of a list."""

ADD_TO_LIST = "INSERT INTO lists (execution, name, first, sum, items) VALUES (?, ?, ?, ?, ?)"
"""Insert items of a list that a snapshot leaves out."""

SET_FLOW = "UPDATE executions SET hash = ?, version = ? WHERE number = ?"
"""Move an execution to another version of its flow."""

KEEP_FORM = "INSERT OR IGNORE INTO forms (execution, hash) VALUES (?, ?)"
"""Insert a flow that is required to read a journal."""

OPEN_WAIT = """
INSERT INTO waits (id, execution, wait, flow, kind, batch, since, turn, record)
SELECT ?, number, ?, flow, ?, ?, ?, ?, ? FROM executions WHERE number = ?
ON CONFLICT (id) DO UPDATE
SET batch = excluded.batch, turn = excluded.turn, record = excluded.record"""
"""Insert a wait that opened, or update one that changed."""

OPEN_WAIT_FOR = """
INSERT OR IGNORE INTO assignees (assignee, kind, since, wait, turn)
SELECT ?, kind, since, number, turn FROM waits WHERE id = ? AND how IS NULL AND decision IS NULL"""
"""Insert an assignee of a pending wait. The empty text means any user."""

OPENED_BEFORE = "SELECT number, how, record FROM waits WHERE id = ?"
"""Select a wait that changes, or a closed one that opens again after a retry."""

FORGET_WAIT = (
    "DELETE FROM votes WHERE wait = :number",
    "DELETE FROM waits WHERE number = :number",
    "DELETE FROM messages WHERE address = :address",
)
"""Delete questions and decisions that a retry made obsolete. The journal still contains them."""

CLOSE_WAIT_FOR = "DELETE FROM assignees WHERE wait = (SELECT number FROM waits WHERE id = ?)"
"""Delete the assignees of a wait that needs no answer any more, or has other assignees."""

EXPIRES_TOO_LATE = "SELECT 1 FROM waits WHERE id = ? AND decision IS NOT NULL AND how IS NULL"
"""Check whether a decision was recorded for a wait that is about to expire."""

CLOSE_WAIT = "UPDATE waits SET how = ?, closed_at = ?, result = ? WHERE id = ?"
"""Record the journaled end of a wait."""

ADD_KEY = "INSERT OR IGNORE INTO keys (signal, key, execution, wait) VALUES (?, ?, ?, ?)"
"""Insert a key under which an execution is found. `wait` is -1 for one that is valid to its end."""

DROP_WAIT_KEYS = "DELETE FROM keys WHERE execution = ? AND wait = ?"
"""Delete the keys of a wait that ended."""

DROP_KEYS = "DELETE FROM keys WHERE execution = ?"
"""Delete the keys of an execution that ended."""

TAKE = """
UPDATE messages SET taken = ?, event = CASE WHEN address GLOB 'wait *' THEN x'' ELSE event END
WHERE number = ? AND execution = ? RETURNING address, message_id, event"""
"""Record the journal position of a message. The content of a decision remains in its vote."""

SHORTEN_MESSAGE = "UPDATE messages SET event = ? WHERE number = ?"
"""Update a message whose long texts are in the journal."""

VOTE_OF = """
SELECT votes.number, votes.event FROM votes JOIN waits ON waits.number = votes.wait
WHERE waits.id = ? AND votes.voter = ?"""
"""Select a user's answer to a wait."""

SHORTEN_VOTE = "UPDATE votes SET event = ? WHERE number = ?"
"""As `SHORTEN_MESSAGE`."""

PUT_OUT = "INSERT INTO outbox (sender, target, at, event) VALUES (?, ?, ?, ?)"
"""Insert a message to other executions."""

# -- locks shared between executions

CLAIM = """
INSERT OR IGNORE INTO claims (lock, execution, unit, permits, at, held, granted, amounts)
VALUES (?, ?, ?, ?, ?, 0, ?, ?)"""
"""Insert a claim, unless it exists."""

GIVE_BACK = "DELETE FROM claims WHERE lock = ? AND execution = ? AND unit = ?"
"""Delete a claim."""

CLAIMED_BY = "SELECT lock, unit, held FROM claims WHERE execution = ?"
"""Select the claims of an execution."""

ENDED_WITH_CLAIMS = """
SELECT ended_at,
  EXISTS (SELECT 1 FROM leases WHERE execution = executions.number AND owner IS NOT NULL)
FROM executions WHERE number = ? AND ended_at IS NOT NULL
  AND EXISTS (SELECT 1 FROM claims WHERE execution = executions.number)"""
"""Select when an execution with claims ended, if it has, and whether its lease has a holder."""

ENDED_BY = """
SELECT number FROM leases JOIN executions ON number = execution
WHERE owner = ? AND ended_at IS NOT NULL"""
"""Select the executions of an owner that have ended."""

HELD = "SELECT count(*) FROM claims WHERE lock = ? AND held = 1"
"""Count the holders of a lock."""

NEXT_CLAIM = """
SELECT number, execution, permits, granted FROM claims
WHERE lock = ? AND held = 0 ORDER BY number LIMIT 1"""
"""Select the first waiting claim of a lock."""

ON_BUDGET = "SELECT amounts FROM claims WHERE lock = ? AND held = 1 AND amounts IS NOT NULL"
"""Select the amounts of the granted claims on a budget."""

OF_CLAIM = "SELECT held, amounts FROM claims WHERE lock = ? AND execution = ? AND unit = ?"
"""Select whether a claim is granted, and its amounts."""

WAITING_CLAIMS = """
SELECT number, execution, granted, amounts FROM claims
WHERE lock = ? AND held = 0 ORDER BY number"""
"""Select the waiting claims on a budget, in order."""

ANSWER_CLAIM = "UPDATE claims SET held = 1, amounts = ? WHERE number = ?"
"""Grant a claim on a budget."""

REFUSE_CLAIM = "DELETE FROM claims WHERE number = ?"
"""Delete a claim that was refused."""

BUDGET = "SELECT used, limits FROM budgets WHERE name = ?"
"""Select the used amounts of a budget, and its limits."""

KEEP_BUDGET = "INSERT OR REPLACE INTO budgets (name, used, limits) VALUES (?, ?, ?)"
"""Write a budget."""

BUDGETS = "SELECT name, used, limits FROM budgets ORDER BY name"
"""Select all budgets."""

NAMES_OF_BUDGETS = "SELECT name FROM budgets ORDER BY name"
"""Select the names of all budgets."""

PRUNE_BUDGET = """
DELETE FROM budgets
WHERE name = ? AND NOT EXISTS (SELECT 1 FROM claims WHERE lock = budgets.name)"""
"""Delete a budget that nothing claims."""

GRANT = "UPDATE claims SET held = 1 WHERE number = ?"
"""Grant a claim."""

TELL = """
INSERT INTO messages (execution, address, message_id, at, event) SELECT new.*
FROM (SELECT ? AS execution, ? AS address, ? AS message_id, ? AS at, ? AS event) AS new
WHERE NOT EXISTS (
  SELECT 1 FROM messages WHERE address = new.address AND message_id = new.message_id)"""
"""Insert a message to an execution, unless it was stored already. In that case no number is
used."""

OWN_CLAIM = """
SELECT 1 FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? AND unit = ? AND executions.id = ?"""
"""Check whether a claim exists."""

OTHER_CLAIMS = """
SELECT claims.number, execution, executions.id, ended_at
FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? AND executions.id <> ? ORDER BY claims.number"""
"""Select the claims of other executions on a lock, in order."""

CLAIMS = """
SELECT executions.id, unit, at, held
FROM claims JOIN executions ON executions.number = execution
WHERE lock = ? ORDER BY claims.number"""
"""Select all claims on a lock, in order."""

# -- leases

NUMBER = "SELECT number FROM executions WHERE id = ?"
"""Select the number of an execution."""

HOLDER = """
SELECT leases.epoch, owners.id, pid, started, host, boot, until, deaths
FROM leases LEFT JOIN owners ON owners.id = leases.owner WHERE leases.execution = ?"""
"""Select the lease of an execution and its holder, if it is held."""

RENEW = """
INSERT INTO owners (id, pid, started, host, boot, until) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET until = excluded.until"""
"""Insert an owner, or extend its leases."""

ACQUIRE = """
UPDATE leases SET owner = :owner, epoch = epoch + 1,
  deaths = deaths + (owner IS NOT NULL AND owner <> :owner)
WHERE execution = :execution RETURNING epoch"""
"""Set a new holder, with a new epoch. Another holder has died."""

RELEASE = """
UPDATE leases SET owner = NULL, epoch = epoch + 1, deaths = 0 WHERE execution = ? AND epoch = ?"""
"""Release a lease, with a new epoch so that a delayed write of the last holder fails."""

RELEASE_HEARD = f"""{RELEASE} AND NOT EXISTS (
    SELECT 1 FROM messages WHERE messages.execution = leases.execution AND taken IS NULL)"""
"""The same, if all messages are journaled."""

CALM = "UPDATE leases SET deaths = 0 WHERE execution = ? AND epoch = ?"
"""Forget earlier holders that died."""

RELEASE_ALL = "UPDATE leases SET owner = NULL, epoch = epoch + 1, deaths = 0 WHERE owner = ?"
"""Release all leases of an owner."""

FORGET_OWNER = "DELETE FROM owners WHERE id = ?"
"""Delete an owner that has retired."""

FORGET_OWNERS = """
DELETE FROM owners WHERE id NOT IN (SELECT owner FROM leases WHERE owner IS NOT NULL)
AND boot <> ?"""
"""Delete owners of earlier boots without leases."""

# -- inbox

SEND = """
INSERT INTO messages (execution, address, message_id, at, event) VALUES (?, ?, ?, ?, ?)"""
"""Insert a message to an execution."""

SENT = """
SELECT messages.number, executions.id, messages.event, messages.execution
FROM messages JOIN executions ON executions.number = messages.execution
WHERE address = ? AND message_id = ?"""
"""Select the message that was sent to this address with this id."""

FIND_KEY = """
SELECT executions.number, executions.id
FROM keys JOIN executions ON executions.number = keys.execution
WHERE signal = ? AND key = ? ORDER BY keys.execution LIMIT 1"""
"""Select the oldest open execution with this key."""

INBOX = """
SELECT number, at, event FROM messages WHERE execution = ? AND taken IS NULL ORDER BY number"""
"""Select the messages to one execution that are not journaled yet."""

OUTBOX = """
SELECT number, sender, target, at, event, why FROM outbox INDEXED BY outbox_open
WHERE why IS NULL ORDER BY number"""
"""Select the messages to be delivered."""

DELIVERED = "DELETE FROM outbox WHERE number = ?"
"""Delete a delivered message."""

REFUSED = "UPDATE outbox SET why = ? WHERE number = ?"
"""Mark a message as undeliverable."""

UNDELIVERED = """
SELECT number, sender, target, at, event, why FROM outbox INDEXED BY outbox_undelivered
WHERE sender = ? AND why IS NOT NULL ORDER BY number"""
"""Select the undeliverable messages of one execution."""

ARRIVED = """
SELECT messages.number, executions.id, messages.at, messages.event
FROM messages INDEXED BY messages_untaken
CROSS JOIN executions ON executions.number = messages.execution
WHERE messages.number > ? AND taken IS NULL ORDER BY messages.number"""
"""Select the messages to all executions that are not journaled yet, starting at a number."""

OWNERS = "SELECT id, pid, started, host, boot, until FROM owners"
"""Select all lease holders."""

_CAN_CONTINUE = """
SELECT executions.id, executions.flow, min(since), why,
  deaths + (leases.owner IS NOT NULL), leases.owner
FROM ({found}) AS found
CROSS JOIN executions ON executions.number = found.number
CROSS JOIN leases ON leases.execution = found.number
WHERE executions.status NOT IN ('succeeded', 'failed', 'cancelled') OR why = 'left'
GROUP BY found.number ORDER BY min(since), found.number"""

DUE = _CAN_CONTINUE.format(
    found="""
  SELECT number, due AS since, 'timer' AS why FROM executions INDEXED BY executions_by_due
  WHERE due <= :at
  UNION ALL
  SELECT execution, at, 'message' FROM messages INDEXED BY messages_untaken WHERE taken IS NULL
  UNION ALL
  SELECT number, changed_at, 'left' FROM executions INDEXED BY executions_by_status
  WHERE status = 'running'
  UNION ALL
  SELECT number, ended_at, 'left' FROM leases INDEXED BY leases_by_owner
  JOIN executions ON number = execution
  WHERE owner IS NOT NULL AND ended_at IS NOT NULL AND number IN (SELECT execution FROM claims)"""
)
"""Select the executions that can continue, with the holders of their leases.

One that has ended, but not released its locks, was left by a process that died meanwhile."""

IS_DUE = _CAN_CONTINUE.format(
    found="""
  SELECT number, due AS since, 'timer' AS why FROM executions WHERE id = :id AND due <= :at
  UNION ALL
  SELECT execution, at, 'message' FROM messages INDEXED BY messages_by_execution
  WHERE execution = (SELECT number FROM executions WHERE id = :id) AND taken IS NULL
  UNION ALL
  SELECT number, changed_at, 'left' FROM executions WHERE id = :id AND (status = 'running'
    OR ended_at IS NOT NULL AND number IN (SELECT execution FROM claims))"""
)
"""Select one execution if it can continue, as `DUE`."""

COUNTS = """
SELECT status, sum(count) FROM counts
WHERE :flows IS NULL OR flow IN (SELECT value FROM json_each(:flows)) GROUP BY status"""
"""Select how many executions have each status, of all flows or some."""
NEXT_DUE = """
SELECT min(due) FROM (
  SELECT min(due) AS due FROM executions INDEXED BY executions_by_due WHERE due > :after
  UNION ALL
  SELECT min(due) FROM schedules INDEXED BY schedules_by_due WHERE due > :after)"""
"""Select the time of the earliest timer or schedule after a time."""

CHANGES = "PRAGMA data_version"
"""Read a number that changes when another connection commits."""

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
"""Select a wait."""

VOTES = "SELECT voter, approves, event FROM votes WHERE wait = ? ORDER BY number"
"""Select the answers to a wait, oldest first."""

VOTE = "INSERT INTO votes (wait, voter, at, approves, event) VALUES (?, ?, ?, ?, ?)"
"""Insert an answer, which is kept as long as the execution."""

SETTLE = "UPDATE waits SET decision = ? WHERE number = ? AND decision IS NULL AND how IS NULL"
"""Set the number of the deciding answer. There is at most one."""

# -- executions

EXECUTION_COLUMNS = """
executions.id, executions.flow, executions.version, executions.hash, executions.created_at,
executions.labels, executions.started_by, executions.parent, executions.forked_from,
executions.title, executions.key_inputs, executions.status, executions.changed_at, executions.due,
executions.ended_at, executions.failure"""

EXECUTION = f"SELECT number, {EXECUTION_COLUMNS}, outputs, error FROM executions WHERE id = ?"
"""Select one execution, with its number."""

SNAPSHOT = """
SELECT seq, sum, state FROM snapshots WHERE execution = ? AND seq < ? ORDER BY seq DESC LIMIT 1"""
"""Select the newest snapshot that has fewer events than a number."""

LISTS = "SELECT name, first, sum, items FROM lists WHERE execution = ? ORDER BY name, first"
"""Select the lists that it leaves out."""

EVENTS = """
SELECT id & 0xffffffff, at, sum, payload FROM events WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"""
"""Select events of one execution, in order."""

IS_NUMBERED = "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = 'number_event'"
"""Check whether new events are numbered."""

LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM numbered"
"""Select the number of the last event."""

NUMBERED = """
SELECT numbered.number, executions.id, numbered.event & 0xffffffff
FROM numbered JOIN executions ON executions.number = numbered.event >> 32
WHERE numbered.number > ? ORDER BY numbered.number LIMIT ?"""
"""Select numbered events of existing executions, in order."""

OBSOLETE_NUMBERS = """
DELETE FROM numbered WHERE number > :after AND number <= :until AND number < :last
AND NOT EXISTS (SELECT 1 FROM events WHERE id = numbered.event)"""
"""Delete numbers of events that do not exist any more. The last one stays, so that it is not given
again."""

BEGINNING_SO = "SELECT id, flow FROM {table} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
"""Select the first ids in a range, each with its flow."""

NEXT_TO = """
SELECT max(id) FROM {table} WHERE id < ? UNION ALL SELECT min(id) FROM {table} WHERE id > ?"""
"""Select the ids before and after an id, in order."""

# -- artifacts

REFER = "INSERT OR IGNORE INTO artifacts (sha256, execution) VALUES (?, ?)"
"""Insert a reference of an execution to an artifact."""

HOLD = "INSERT OR IGNORE INTO artifacts (sha256, execution) VALUES (?, -?)"
"""Hold a file that no execution refers to yet. The time (s) takes the place of the execution."""

END_HOLDS = "DELETE FROM artifacts WHERE execution < 0 AND execution > -?"
"""Stop holding the files held before a time (s)."""

REFERS = """SELECT 1 FROM artifacts JOIN executions ON executions.number = artifacts.execution
    WHERE artifacts.sha256 = ? AND executions.id = ?"""
"""Check whether an execution refers to an artifact."""

REFER_TOO = """INSERT OR IGNORE INTO artifacts (sha256, execution)
    SELECT sha256, :number FROM artifacts WHERE sha256 = :sha256 AND
    (:of IS NULL OR execution = (SELECT number FROM executions WHERE id = :of)) LIMIT 1"""
"""Insert a reference to an artifact that another execution, or any, refers to."""

ARTIFACTS_OF = "SELECT sha256 FROM artifacts WHERE execution = ?"

REFER_TO_ALL = """INSERT OR IGNORE INTO artifacts (sha256, execution)
    SELECT sha256, ? FROM artifacts
    WHERE execution = (SELECT number FROM executions WHERE id = ?)"""
"""Insert references of an execution to all artifacts of another one."""

IS_REFERRED = "SELECT 1 FROM artifacts WHERE sha256 = ? LIMIT 1"
"""Check whether any execution refers to an artifact."""

# -- moving

MARK = """
SELECT (SELECT count(*) FROM events WHERE id >= :number << 32 AND id < (:number + 1) << 32),
  (SELECT count(*) FROM messages WHERE execution = :number),
  (SELECT count(*) FROM waits WHERE execution = :number),
  (SELECT count(*) FROM claims WHERE execution <> :number AND held = 0
   AND lock IN (SELECT lock FROM claims WHERE execution = :number))"""
"""Count what changes whenever anything happens to an execution, or others wait for its locks."""

CLAIMS_OF = """
SELECT lock, unit, permits, held, granted, amounts FROM claims
WHERE execution = ? ORDER BY number"""
"""Select the claims of an execution, in order."""

NO_GRANTS = """
UPDATE messages SET taken = 0 WHERE execution = :number AND address IN
  (SELECT 'claim ' || number FROM claims WHERE execution = :number AND amounts IS NULL)"""
"""Mark the grants of locks as taken."""

KEYS = "SELECT signal, key, wait FROM keys WHERE execution = ?"
"""Select the keys of an execution."""

FORMS = "SELECT hash FROM forms WHERE execution = ?"
"""Select the flows that its journal needs in addition to its own."""

CHANGED_AT = "SELECT changed_at FROM executions WHERE number = ?"
"""Select when an execution changed last."""

FILES = "SELECT sha256 FROM artifacts WHERE execution = ?"
"""Select the files that it refers to."""

WAITS_OF = "SELECT id FROM waits WHERE execution = ? ORDER BY number"
"""Select its waits, oldest first."""

ALL_OF_VOTES = "SELECT voter, at, approves, event FROM votes WHERE wait = ? ORDER BY number"
"""Select the answers to a wait with their times."""

MESSAGES_OF = """
SELECT number, address, message_id, at, event, taken FROM messages WHERE execution = ?
ORDER BY number"""
"""Select its messages, taken or not."""

PUT_MESSAGE = """
INSERT INTO messages (execution, address, message_id, at, event, taken) VALUES (?, ?, ?, ?, ?, ?)"""
"""Insert a message that another store has received."""

PUT_UNDELIVERED = "INSERT INTO outbox (sender, target, at, event, why) VALUES (?, ?, ?, ?, ?)"
"""Insert a message that another store could not deliver."""

DECIDED_BY = "UPDATE waits SET decision = ? WHERE number = ?"
"""Set the number of the deciding answer of a wait, open or closed."""

HELD_BY = """
SELECT executions.number FROM executions JOIN leases ON leases.execution = executions.number
WHERE executions.id = :id AND (leases.owner = :owner OR leases.owner LIKE :owner || ' %')"""
"""Select an execution that is held for another store."""

ALL_HELD_BY = """
SELECT executions.id FROM executions JOIN leases ON leases.execution = executions.number
WHERE leases.owner = ? ORDER BY executions.number"""
"""Select the executions that an owner holds."""

# -- search

MAKE_TEXTS = """
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(
  words, tokenize = ascii, detail = none, columnsize = 0)"""
"""Create the index of words. Words are looked up alone, so it needs no positions."""

IS_INDEXED = """
SELECT NOT EXISTS (SELECT 1 FROM unindexed)
  AND coalesce((SELECT max(number) FROM executions), 0) <= ?"""
"""Check whether the index is up to date, if it has all executions up to a number."""

HAS_TEXTS = "SELECT 1 FROM sqlite_schema WHERE name = 'texts'"
"""Check whether there is an index."""

LAST_INDEXED = "SELECT rowid FROM texts ORDER BY rowid DESC LIMIT 1"
"""Select the newest execution in the index."""

UNINDEXED = f"""
SELECT unindexed.execution, {EXECUTION_COLUMNS}
FROM unindexed LEFT JOIN executions ON executions.number = unindexed.execution
WHERE unindexed.execution <= ? ORDER BY unindexed.execution LIMIT ?"""
"""Select executions that have changed in lists or were deleted."""

NOT_YET_INDEXED = f"""
SELECT number, {EXECUTION_COLUMNS} FROM executions WHERE number > ? ORDER BY number LIMIT ?"""
"""Select executions after those in the index."""

PUT_TEXT = "REPLACE INTO texts (rowid, words) VALUES (?, ?)"
"""Insert the words of an execution into the index, replacing earlier ones."""

REMOVE_TEXT = "DELETE FROM texts WHERE rowid = ?"
"""Delete the words of an execution from the index."""

INDEXED = "DELETE FROM unindexed WHERE execution <= ?"
"""Note that changed executions were indexed, up to a number."""

MAKE_FOUND = "CREATE TEMP TABLE IF NOT EXISTS found (number INTEGER PRIMARY KEY)"
"""Create the table of the executions that a search finds, which only this connection has."""

CLEAR_FOUND = "DELETE FROM temp.found"
"""Delete the results of an earlier search."""

FIND_TEXTS = "INSERT INTO temp.found SELECT rowid FROM texts WHERE texts MATCH ?"
"""Insert the executions that have all words."""

FIND_IDS = """
INSERT OR IGNORE INTO temp.found SELECT number FROM executions WHERE id >= ? AND id < ?"""
"""Insert the executions whose id has a prefix."""

COUNT_FOUND = "SELECT count(*) FROM temp.found"
"""Count the executions that were found."""

# -- maintenance

PRUNABLE = """
SELECT number FROM executions
WHERE status = ? AND ended_at <= ? AND number > ? AND number NOT IN (SELECT execution FROM claims)
ORDER BY number LIMIT ?"""
"""Select executions that ended with a status by a given time, starting at a number.

Those that still hold locks are left out."""

PRUNABLE_ONE = """
SELECT number FROM executions
WHERE id = ? AND ended_at IS NOT NULL AND number NOT IN (SELECT execution FROM claims)"""

PRUNE = (
    """DELETE FROM outbox WHERE why IS NOT NULL
    AND sender = (SELECT id FROM executions WHERE number = :number)""",
    "DELETE FROM events WHERE id >= :number << 32 AND id < (:number + 1) << 32",
    "DELETE FROM snapshots WHERE execution = :number",
    "DELETE FROM steps WHERE id >= :number << 32 AND id < (:number + 1) << 32",
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
"""Delete all data of one execution."""

PRUNE_FLOWS = """
DELETE FROM flows WHERE hash NOT IN (SELECT hash FROM executions)
AND hash NOT IN (SELECT hash FROM sources) AND hash NOT IN (SELECT hash FROM deployments)
AND hash NOT IN (SELECT hash FROM forms)"""
"""Delete flows that no execution runs or has run, no file compiles to and that are not deployed."""
