"""Why an execution makes no progress: what each of its live branches waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from flowengine.engines.actors import excluded, is_assignee
from flowengine.engines.attempts.runtime_resources import ResourceMissing
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.parts import has_expired
from flowengine.engines.executions.views import timers_of
from flowengine.engines.host import Host
from flowengine.engines.infos import Reason
from flowengine.engines.inspection import budgets
from flowengine.engines.inspection.conditions import condition
from flowengine.engines.inspection.unattended import QUIET, TRIES, circle
from flowengine.engines.interventions.retrying import again
from flowengine.errors import NotFound
from flowengine.journal.records import ENDED, ExecutionRecord, InboxMessage, Owner
from flowengine.journal.shapes import unpack_error, unpack_message
from flowengine.kernel.graph.compiled import TRIGGER
from flowengine.kernel.graph.linked import Graph, Node
from flowengine.kernel.notation.accounts import is_account, read_account
from flowengine.kernel.notation.addresses import NOTIFIES, OF_END, separate_id, wait_id
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import State, Unit
from flowengine.kernel.view import DECIDABLE, View, is_shared, is_tried_again
from flowengine.settings import Settings
from flowengine.store_folder import remote_store

_RESUMED = "a process that resumes it"
_AVAILABLE = f"{_RESUMED} once the environment is available again"


def reasons(host: Host, execution: Execution, *, waits: bool = True) -> list[Reason]:
    """Return the reason for each live branch of an execution why it makes no progress.

    Args:
        host: Provides the store.
        execution: The execution, as stored.
        waits: Include the open waits, which its result already lists.

    Returns:
        One reason for each branch: the end of the execution, an attempt, a wait, a pause, a lock
            that is held elsewhere, or tokens held at a join.
    """
    state = execution.state
    id = host.store.short_execution(execution.id)
    if state["status"] in ENDED:
        return [_ended(host, execution), *_notifications(host, execution)]
    holder = host.holder(execution.id)
    found = []
    sent = [(message, unpack_message(message)) for message in host.store.inbox(execution.id)]
    if holder is None:
        found += [_recorded(*message, id) for message in sent if message[1]["type"] not in QUIET]
    decided = {event["wait"] for _, event in sent if event["type"] == "decided"}
    view = View(execution.linked.graph, state)
    for unit in state["units"].values():
        if unit["phase"] == "run":
            found.append(_at_work(view.address(unit), unit["attempt"], execution, holder, id))
        elif unit["phase"] == "pause":
            found.append(_pause(view.address(unit), state, unit, holder, id))
        elif unit["phase"] == "budget":
            found.append(budgets.waiting(host, execution.id, view, unit))
        elif unit["phase"] == "lock" and is_shared(unit["lock"]):
            reason = _shared(host, execution.id, unit["id"], unit["lock"])
            found.append({"address": view.address(unit), **reason})
        elif unit["phase"] == "lock":
            found.append(_queued(view, unit))
    found += budgets.ending(view)
    if 0 in state.get("claims", {}):
        found.append({"address": "", **_shared(host, execution.id, 0, state["bound"][0])})
    for record in execution.waits.values() if waits else ():
        if record["id"] not in decided:
            found.append(_wait(host, execution, record, id))
    found += _notifications(host, execution)
    found += _held(view, id)
    found += _quarantined(host, execution.id, holder, id)
    return _by_workers(host, found or _idle(view, id) or _left(state, holder, id))


def _by_workers(host: Host, found: list[Reason]) -> list[Reason]:
    """Name a worker where a store has some that resume executions, which needs no command.

    They open no environment again that was not available.
    """
    for reason in found if remote_store(host.store.location) is not None else ():
        wakes = reason["wakes"]
        if wakes.startswith(_RESUMED) and wakes != _AVAILABLE:
            reason["wakes"] = wakes.replace(_RESUMED, "a worker", 1)
            reason.pop("command", None)
    return found


def _ended(host: Host, execution: Execution) -> Reason:
    state = execution.state
    error = state["error"]
    reason: Reason = {"address": "", "what": state["status"]}
    if state["status"] == "succeeded":
        return {**reason, "wakes": "nothing: it is finished"}
    message = "" if error is None else error["message"]
    if state["status"] == "cancelled":
        what = f"cancelled: {message}" if message else "cancelled"
        return {"address": "", "what": what, "wakes": "nothing: it is finished"}
    if error is not None:
        reason["address"] = error.get("step", "")
        reason["what"] += f" with {error['type']}: {message}"
    reason["wakes"] = "an operator who tries it again"
    record = host.store.execution(execution.id)
    how = again(host, record)
    if "not_undone" in how:
        reason["wakes"] = "an operator who tries again to undo it, in a new execution"
    elif "undone_by" in how:
        forks = ", ".join(dict.fromkeys(map(host.store.short_execution, how["undone_by"].values())))
        reason["wakes"] = f"nothing: the rest was undone in {forks}"
        if record.id in how["undone_by"].values():
            reason["wakes"] = "nothing: it has undone the rest"
    return {**reason, **how}


def _recorded(message: InboxMessage, event: Mapping[str, Any], id: str) -> Reason:
    what = {
        "started": "recorded, but not started yet",
        "decided": f"a decision by {event.get('by')} was recorded, but not processed yet",
        "message": f"a message '{event.get('signal')}' was recorded, but not processed yet",
        "cancel": f"{event.get('by')} asked to cancel it (not processed yet)",
        "granted": f"{_lock(event.get('lock', ''))} is free for it now (not resumed yet)",
    }
    handed = f"{event.get('by')} reassigned an approval (recorded, but not processed yet)"
    return {
        "address": "",
        "what": what.get(event["type"], handed),
        "since": format_time(message.at),
        "wakes": _RESUMED,
        "command": f"flowengine resume {id}",
    }


def _at_work(
    address: str, attempt: int, execution: Execution, holder: Owner | None, id: str
) -> Reason:
    what = f"attempt {attempt} was running when its process ended"
    if execution.put_off:
        what = f"attempt {attempt} has not begun: its process was stopped before"
    elif holder is not None:
        where = f"process {holder.pid} on" if holder.pid else "a worker of"
        where += f" {holder.host}"
        what = f"attempt {attempt} is running in {where}"
        return {"address": address, "what": what, "wakes": "the end of the attempt"}
    return {
        "address": address,
        "what": what,
        "wakes": _RESUMED,
        "command": f"flowengine resume {id}",
    }


def _quarantined(host: Host, execution: str, holder: Owner | None, id: str) -> list[Reason]:
    """Return the reason of an execution that no worker takes any more."""
    deaths = 0 if holder is not None else host.deaths(execution)
    if deaths < TRIES:
        return []
    return [
        {
            "address": "",
            "what": f"quarantined: the last {deaths} processes that ran it died",
            "wakes": "an operator who resumes it",
            "command": f"flowengine resume {id}",
        }
    ]


def _pause(address: str, state: State, unit: Unit, holder: Owner | None, id: str) -> Reason:
    """Return the reason of a pause, before another attempt or the next round of a loop."""
    timer = state["timers"][unit["timer"]]
    at = format_time(timer["due"])
    then = f"to try again after attempt {unit['attempt']}"
    if timer["arg"]:
        then = f"to begin round {unit['round'] + 1}"
    reason: Reason = {
        "address": address,
        "what": f"waiting until {at} {then}",
        "wakes": f"the time {at}",
        "due": at,
    }
    if holder is None:
        reason["command"] = f"flowengine resume {id}"
    return reason


def _queued(view: View, unit: Unit) -> Reason:
    state = view.state
    holders = state["locks"][unit["lock"]]["holders"]
    names = " and ".join(view.address(state["units"][number]) for number in holders)
    key = unit["lock"].partition(":")[2]
    hold = "holds" if len(holders) == 1 else "hold"
    return {
        "address": view.address(unit),
        "what": f"waiting for the lock '{key}', which {names} {hold}",
        "wakes": f"the end of {names}",
    }


def _lock(name: str) -> str:
    """Return the name of a shared lock, as shown to users."""
    if is_account(name):
        return f"the budget '{read_account(name).key}'"
    kind, _, key = name.partition(":")
    if kind.startswith("concurrency"):
        return f"its place among the executions of '{kind.removeprefix('concurrency ')}'"
    return f"the lock '{key}'"


def _shared(host: Host, id: str, unit: int, lock: str) -> Reason:
    """Return the reason of a unit that waits for a shared lock, with its holders and its queue."""
    store = host.store
    claims = store.claims(lock)
    place = next((n for n, c in enumerate(claims) if (c.execution, c.unit) == (id, unit)), 0)
    holders = list(dict.fromkeys(c.execution for c in claims if c.held))
    before = list(dict.fromkeys(c.execution for c in claims[:place] if not c.held))
    has = " and ".join(map(store.short_execution, holders)) or "nobody"
    kind, _, key = lock.partition(":")
    what = f"waiting for the lock '{key}', which execution {has} holds"
    if kind.startswith("concurrency"):
        flow = kind.removeprefix("concurrency ")
        what = f"waiting for earlier executions of '{flow}' to finish: "
        what += f"{has} {'is' if len(holders) == 1 else 'are'} open"
    if before:
        verb = "is" if len(before) == 1 else "are"
        what += f"; {' and '.join(map(store.short_execution, before))} {verb} ahead of it"
    others = circle(host, id, unit, lock) if unit else []
    if others:
        names = " and ".join(map(store.short_execution, others))
        names += " waits" if len(others) == 1 else " wait"
        what += f". This is a deadlock: {names}, in the end, for what this one holds"
        command = f"flowengine cancel {store.short_execution(id)}"
        wakes = "the end of one of them"
        return {"what": what, "wakes": wakes, "command": command, "lock": key}
    reason: Reason = {"what": what, "wakes": f"the end of {has}", "lock": key}
    idle = [holder for holder in holders if host.holder(holder) is None]
    if idle:
        rests = store.execution(idle[0]).status in ("waiting", "stalled")
        word = "why" if rests else "resume"
        reason["command"] = f"flowengine {word} {store.short_execution(idle[0])}"
    return reason


def _wait(host: Host, execution: Execution, record: Mapping[str, Any], id: str) -> Reason:
    """Return the reason of an open wait, and the command that ends it."""
    full = wait_id(execution.id, record["id"])
    short = host.store.short_wait(full)
    reason: Reason = {
        "address": record["address"],
        "wait": full,
        "since": format_time(record["since"]),
    }
    if "due" in record:
        reason["due"] = format_time(record["due"])
    if timers := timers_of(execution.state, record["id"]):
        reason["timers"] = timers
    if record["kind"] == "state":
        reason.update(condition(host, execution, record, id))
        return reason
    reason.update(_DESCRIBE[record["kind"]](record, short, id))
    if record["kind"] == "signal" and record.get("signals"):
        reason["signals"] = [signal["signal"] for signal in record["signals"]]
        first = record["signals"][0]
        reason["command"] = _sending(execution.linked.graph, id, first.get("key"), first["signal"])
    if record["kind"] in DECIDABLE and (nobody := undecidable(record, host.settings)):
        reason["nobody"] = "; ".join(nobody.values())
        reason["wakes"] = "a change of the groups in the settings"
        reason["wakes"] += ", or its expiry" if "due" in record else ""
        del reason["command"]
        reason.pop("commands", None)
    if record["kind"] in DECIDABLE and has_expired(record, host.clock.now()):
        reason["wakes"] = f"{_RESUMED}: it is overdue, and too late for a decision"
        reason["command"] = f"flowengine resume {id}"
    return reason


def _notifications(host: Host, execution: Execution) -> Iterator[Reason]:
    """Yield the newest notifications about open approvals and the end that have not been sent."""
    for address, sender, record in last_sent(host, execution):
        tool = sender.removeprefix(NOTIFIES).removeprefix(OF_END)
        times: Reason = {}
        if record is None:
            what = f"the notification by '{tool}' was recorded, but not sent yet"
            wakes, command = "a process that sends it", "flowengine resume --due"
        elif record.status == "succeeded":
            continue
        elif record.status in ENDED:
            failed = "failed"
            if record.error is not None:
                error = unpack_error(record.error, "the error of a notification")
                failed = f"{error['type']}: {error['message']}"
            what = f"the notification by '{tool}' was not sent: {failed}"
            wakes = "an operator who sends it again"
            command = f"flowengine retry {host.store.short_execution(record.id)}"
            times = {"since": format_time(record.ended_at or record.changed_at)}
        else:
            [failed, *_] = host.stored(record.id, 0).state["vars"].get("error", [""])
            what = f"the notification by '{tool}' is not sent yet"
            what += f": {failed}" if failed else ""
            wakes = "its next attempt"
            command = f"flowengine why {host.store.short_execution(record.id)}"
            times = {"since": format_time(record.created_at)}
            if record.due is not None:
                times["due"] = format_time(record.due)
        yield {"address": address, "what": what, **times, "wakes": wakes, "command": command}


def _approval(record: Mapping[str, Any], wait: str, _id: str) -> Reason:
    who = record.get("claimed_by") or ", ".join(record.get("assignees") or ()) or "anyone"
    need, votes = record.get("need") or 1, len(record.get("votes") or ())
    count = f" ({votes} of {need} votes)" if need > 1 else ""
    approve = next((c for c in record["choices"] if c.get("counts_as") == "approve"), None)
    from shlex import quote

    required = (record.get("form") or {}).get("required", ())
    fields = "".join(f" --form {quote(name)}=VALUE" for name in required)
    command = f"flowengine approve {wait}{fields}"
    if approve is None:
        command = f"flowengine decide {wait} {record['choices'][0]['id']}"
    if record.get("claim") and "claimed_by" not in record:
        command = f"flowengine approvals assign {wait} --to me"
        who += ", once it is claimed"
    because = f" (asked by {record['rule']})" if "rule" in record else ""
    return {
        "what": f"waiting for a decision by {who}{count}: {record.get('title', '')}{because}",
        "wakes": "a decision" + (" or its expiry" if "due" in record else ""),
        "command": command,
    }


_MEANINGS = {
    "fail": "raises an error",
    "result": "supplies the result of the step",
    "retry": "runs the step again",
}


def _question(record: Mapping[str, Any], wait: str, id: str) -> Reason:
    if is_tried_again(record):
        if needs_program(record):
            return {"what": str(record["title"]), "wakes": "the program that started it"}
        return {
            "what": str(record["title"]),
            "wakes": _AVAILABLE,
            "command": f"flowengine resume {id}",
        }
    choices = sorted(choice["id"] for choice in record["choices"])
    commands = {choice: f"flowengine decide {wait} {choice}" for choice in choices}
    if "result" in commands:
        commands["result"] += " --value JSON"
    meanings = ", ".join(f"'{choice}' {_MEANINGS[choice]}" for choice in choices)
    return {
        "what": str(record["title"]),
        "wakes": f"an operator's decision: {meanings}",
        "command": commands["fail"],
        "commands": commands,
    }


def _signal(record: Mapping[str, Any], _wait: str, _id: str) -> Reason:
    signals = record.get("signals") or []
    names = " or ".join(f"'{signal['signal']}'" for signal in signals)
    key = signals[0].get("key") if signals else None
    return {
        "what": f"waiting for a message {names}" + (f" with key '{key}'" if key else ""),
        "wakes": "that message" + (", or the timeout" if "due" in record else ""),
    }


def _session(_record: Mapping[str, Any], _wait: str, _id: str) -> Reason:
    return {"what": "waiting for the next message of its session", "wakes": "a run of the session"}


def _timer(record: Mapping[str, Any], _wait: str, id: str) -> Reason:
    at = format_time(record["due"])
    return {
        "what": f"waiting until {at}",
        "wakes": f"{_RESUMED} after {at}",
        "command": f"flowengine resume {id}",
    }


def _worker(record: Mapping[str, Any], _wait: str, _id: str) -> Reason:
    worker = f"a worker that offers {' and '.join(record['needs'])}"
    return {
        "what": f"waiting for {worker}",
        "wakes": worker,
        "command": " --offers ".join(["flowengine worker", *record["needs"]]),
    }


_DESCRIBE: dict[str, Callable[[Mapping[str, Any], str, str], Reason]] = {
    "approval": _approval,
    "ask": _approval,
    "question": _question,
    "session": _session,
    "signal": _signal,
    "timer": _timer,
    "worker": _worker,
}


def _held(view: View, id: str) -> list[Reason]:
    """Return the reasons of joins that wait for more tokens, with the origins of these tokens."""
    graph = view.graph
    found: list[Reason] = []
    for scope in view.state["scopes"].values():
        for index, join in scope["joins"].items():
            node = graph.node(index)
            came = [source for source, arrivals in join["arrivals"].items() if arrivals]
            came += [arrival["source"] for arrival in join.get("counted", ())]
            if not came:
                continue
            missing = [source for source in node.sources if source not in came]
            names = ", ".join(f"'{graph.node(s).id}'" for s in missing if s >= 0) or "others"
            reason: Reason = {
                "address": scope["path"] + node.id,
                "what": f"its join is waiting for {names}",
                "wakes": f"the end of {names}",
            }
            if TRIGGER in missing:
                reason.update(_message(view, node, id))
                reason["what"] = f"its join is {reason['what']}"
            found.append(reason)
    return found


def _sending(graph: Graph, id: str, key: str | None, signal: str) -> str:
    """Return the command that sends a signal. The key is untrusted text."""
    from shlex import quote

    to = id if key is None else f"--key {quote(key)}"
    declared = graph.flow.get("signals", {}).get(signal, {})
    return f"flowengine signal {to} {signal}{' --data JSON' if 'data' in declared else ''}"


def _idle(view: View, id: str) -> list[Reason]:
    """Return the reasons of an execution without tokens: its triggers, and when it ends."""
    graph, state = view.graph, view.state
    due = [timer["due"] for timer in state["timers"].values() if timer["why"] == "idle"]
    if not due:
        return []
    found: list[Reason] = []
    for step in graph.flow.get("triggered", ()):
        node = graph.node(step)
        if node.trigger is not None and "signals" in node.trigger:
            found.append({"address": node.id, **_message(view, node, id)})
    at = format_time(due[0])
    ending: Reason = {
        "address": "",
        "what": f"nothing left to do: it ends at {at} unless a message arrives",
        "wakes": f"{_RESUMED} after {at}",
        "due": at,
        "command": f"flowengine resume {id}",
    }
    return [*found, ending]


def _left(state: State, holder: Owner | None, id: str) -> list[Reason]:
    """Return the reason of an execution that its process has left between two steps."""
    if holder is not None or state["status"] != "running":
        return []
    return [
        {
            "address": "",
            "what": "its process ended, and it was not resumed",
            "wakes": _RESUMED,
            "command": f"flowengine resume {id}",
        }
    ]


def _message(view: View, node: Node, id: str) -> Reason:
    """Return the reason of a trigger that waits for messages or a state key."""
    assert node.trigger is not None
    if "state" in node.trigger:
        what = f"waiting for a write to state '{node.trigger['state']}'"
        return {"what": what, "wakes": "a step that writes it"}
    signals = node.trigger["signals"]
    names = (" and " if node.trigger.get("all") else " or ").join(
        f"'{signal}'" for signal in signals
    )
    key = view.state["keys"].get(signals[0])
    return {
        "what": f"waiting for a message {names}" + (f" with key '{key}'" if key else ""),
        "wakes": "that message",
        "signals": [*signals],
        "command": _sending(view.graph, id, key, signals[0]),
    }


def last_sent(
    host: Host, execution: Execution
) -> Iterator[tuple[str, str, ExecutionRecord | None]]:
    """Yield each flow that notifies about an open approval or the end, with its newest execution.

    Args:
        host: Provides the store.
        execution: The execution that asks, or has ended.

    Yields:
        Address of the approval (empty: the end), id of the flow, and the execution, or None if it
            is not started yet.
    """
    store, state, own = host.store, execution.state, execution.context.identity
    ids = [
        (wait["record"]["address"], sender, separate_id(own, wait["id"], wait["notified"], sender))
        for wait in state["waits"].values()
        for sender in wait.get("notify", ())
    ]
    ids += [
        ("", notice["flow"], separate_id(own, state["events"], notice["flow"]))
        for notice in execution.linked.compiled.get("end_notices", ())
        if state["status"] in notice["on"]
    ]
    for address, sender, id in ids:
        try:
            yield address, sender, store.execution(id)
        except NotFound:
            yield address, sender, None


def undecidable(wait: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    """Return why no user may decide on a wait: each assignee with a sentence.

    The sentences contain no paths of this host, because clients of a server read them.

    Returns:
        Assignee → reason. Empty if a user may decide.
    """
    rights = {}
    for name in wait.get("assignees") or ():
        group = name.removeprefix("group:")
        members = {name} if group == name else settings.groups.get(group, frozenset())
        if any(is_assignee(wait, user, settings) for user in members):
            return {}
        rights[name] = _why_none(wait, name, members, settings)
    return rights


def needs_program(wait: Mapping[str, Any]) -> bool:
    """Return whether only the program that started an execution can continue a step that waits.

    Args:
        wait: The record of the wait.
    """
    return wait.get("ran") == "no" and bool(wait["error"]["type"] == ResourceMissing.type)


def _why_none(wait: Mapping[str, Any], name: str, members: Set[str], settings: Settings) -> str:
    """Return why none of the users of an assignee may decide."""
    if not members:
        return f"{name} has no members"
    barred = sum(excluded(wait, [user], settings) is not None for user in members)
    who = name if name in members else f"every member of {name}"
    why = ["is excluded"] if barred else []
    if barred < len(members):
        why.append("has delegated it")
    return f"{who} {' or '.join(why)}"
