"""Waits for a time, a signal, or a condition on state.

See docs/language.md: wait. Patterns 16, 18, 23, 24.

A wait has alternatives. Each *occurs* at most once. A `first` wait ends with the first alternative
that occurs, an `all` wait when all have occurred. Earlier messages are checked when the wait opens,
oldest first, then conditions and times in the past. Ties are resolved in the order of the file.
Alternatives that lose are withdrawn in the same event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, merge
from typing import Any, Literal

from flowengine.kernel.commands import CloseWait, OpenWait
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.notation.times import TooLong, format_time, parse_duration, parse_time
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move, move_wait
from flowengine.kernel.state.phases import Owner
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import budget_of

SEPARATOR = "\n"
"""Separates a signal from a key. No signal name contains it."""


def watch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """Check a wait or an activation again when one of these state keys changes."""
    for key in keys:
        tx.state["watching"].setdefault(key, {})[number] = True


def unwatch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """Remove a watcher from these state keys."""
    watching = tx.state["watching"]
    for key in keys:
        watchers = watching.get(key, {})
        watchers.pop(number, None)
        if not watchers:
            watching.pop(key, None)


def listen(tx: Transition, number: int, signal: str, key: Plain = None, unit: int = 0) -> None:
    """Offer the messages of a signal to a wait, with its unit, or to the activation of a map."""
    tx.state["listening"].setdefault(_channel(signal, key), {})[number] = unit


def unlisten(tx: Transition, number: int, signal: str, key: Plain = None) -> None:
    """Remove a listener from a signal."""
    for channel in (_channel(signal, key), signal):
        listening = tx.state["listening"].get(channel, {})
        if listening.pop(number, None) is not None and not listening:
            del tx.state["listening"][channel]


def listeners(tx: Transition, signal: str, key: str | None) -> Iterator[int]:
    """Yield the listeners that a message can go to, oldest first. Without a key, all of its signal.

    Args:
        signal: The message's signal.
        key: Its key.

    Returns:
        Numbers of waits and activations. The listeners must not change between two of them.
    """
    listening = tx.state["listening"]
    if key is None:
        channels = [name for name in listening if name.partition(SEPARATOR)[0] == signal]
    else:
        channels = [name for name in (signal, _channel(signal, key)) if name in listening]
    return merge(*(listening[name] for name in channels))


def _channel(signal: str, key: Plain) -> str:
    """Return the index entry of listeners: the signal, and their key if they have one."""
    return f"{signal}{SEPARATOR}{key}" if isinstance(key, str) else signal


def wake(tx: Transition) -> None:
    """Queue the watchers of keys that have changed."""
    watching = tx.state["watching"]
    for key in tx.changed if watching else ():
        for number in watching.get(key, ()):
            if number not in tx.awake:
                tx.awake.add(number)
                heappush(tx.watchers, number)
    tx.changed.clear()


def wake_all(tx: Transition) -> None:
    """Queue all watchers."""
    tx.changed.update(tx.state["watching"])
    wake(tx)


def next_watcher(tx: Transition) -> int:
    """Return the oldest watcher of a changed key that has not been checked since then, or 0."""
    if not tx.watchers:
        return 0
    number = heappop(tx.watchers)
    tx.awake.discard(number)
    return number


def open_wait(tx: Transition, unit: Unit) -> None:
    """Open the wait of a step.

    Args:
        unit: The waiting unit.

    Raises:
        StepFailure: A duration, time or count is not valid.
        EvaluationError: An expression has no value.
    """
    act = tx.act_of(unit)
    spec = tx.node(act).wait
    assert spec is not None
    alternatives = [_new_alternative(tx, Names(tx, act, unit), a) for a in spec["alternatives"]]
    kind = _kind(spec["alternatives"])
    wait = new_wait(tx, unit, kind)
    wait["alternatives"] = alternatives
    _take_kept(tx, wait)
    for index in range(len(alternatives)):
        if is_open(tx, wait):
            _check_alternative(tx, wait, index)
    if not is_open(tx, wait):
        return
    for index, alternative in enumerate(wait["alternatives"]):
        _listen(tx, wait, index, alternative)
    wait["record"].update(_described(tx, wait))
    show(tx, wait)


def show(tx: Transition, wait: Wait) -> None:
    """Report a new wait, or a change of one, outside the kernel."""
    unit = tx.state["units"].get(wait["unit"])
    if unit is not None and not wait["shown"]:
        open_ = wait["record"].get("ran") == "maybe"
        tx.note(tx.act_of(unit), "uncertain" if open_ else "waiting", unit=unit)
    move_wait(wait, "open")
    tx.commands.append(OpenWait(dict(wait["record"])))


def new_wait(tx: Transition, unit: Unit, kind: str, phase: Literal["wait", "ask"] = "wait") -> Wait:
    """Add a new wait of a unit and return it. The caller fills in the rest of its record."""
    owner: Owner = "step" if phase == "wait" else "attempt"
    wait = add_wait(tx, owner, unit["id"], kind, tx.address(unit), tx.node(tx.act_of(unit)).id)
    unit["wait"] = wait["id"]
    move(unit, phase)
    return wait


def add_wait(tx: Transition, owner: Owner, unit: int, kind: str, address: str, step: str) -> Wait:
    """Add a new wait to the state and return it."""
    number = tx.new_id()
    wait: Wait = {
        "id": number,
        "owner": owner,
        "unit": unit,
        "kind": kind,
        "since": tx.now,
        "event": tx.state["events"],
        "shown": False,
        "timers": [],
        "alternatives": [],
        "record": {
            "id": number,
            "kind": kind,
            "address": address,
            "step": step,
            "since": tx.now,
        },
    }
    tx.state["waits"][number] = wait
    return wait


def is_open(tx: Transition, wait: Wait) -> bool:
    """Return whether a wait is still open."""
    return wait["id"] in tx.state["waits"]


def _kind(alternatives: list[Any]) -> str:
    if any("signal" in a for a in alternatives):
        return "signal"
    return "state" if any("when" in a for a in alternatives) else "timer"


def _new_alternative(tx: Transition, names: Names, spec: Any) -> dict[str, Plain]:
    """Evaluate one alternative: its due time, signal key and count."""
    begun: dict[str, Plain] = {"messages": []}
    if "after" in spec:
        begun["due"] = tx.now + duration_of(evaluate(names, spec["after"]), "for")
    elif "until" in spec:
        begun["due"] = _time_of(evaluate(names, spec["until"]))
    elif "signal" in spec:
        declared = tx.keys_of(names.frame).get(spec["signal"])
        key = evaluate(names, spec["key"]) if "key" in spec else declared
        begun["key"] = key
        count = evaluate(names, spec["count"]) if "count" in spec else 1
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            message = f"'count' is {count!r}, not 1 or more"
            raise StepFailure("ValidationError", message, {"field": "count"})
        begun["left"] = count
    return begun


def duration_of(value: Plain, what: str) -> int:
    """Return an evaluated duration in milliseconds.

    Args:
        value: Text in the notation of the language.
        what: The key, for the message.

    Returns:
        Milliseconds.

    Raises:
        StepFailure: `value` is not a valid duration.
    """
    try:
        return parse_duration(value)
    except (TypeError, ValueError, AttributeError) as error:
        message = f"{what!r} is {value!r}, not a valid duration such as 1h30m"
        if isinstance(error, TooLong):
            message = f"{what!r}: {error}"
        raise StepFailure("ValidationError", message, {"field": what}) from None


def _time_of(value: Plain) -> int:
    try:
        return parse_time(value)
    except (TypeError, ValueError, AttributeError):
        message = f"'until' is {value!r}, not a valid time with an offset: 2026-11-25T09:14:02Z"
        raise StepFailure("ValidationError", message, {"field": "until"}) from None


def _specs(tx: Transition, wait: Wait) -> Any:
    spec = tx.node(tx.act_of(tx.state["units"][wait["unit"]])).wait
    assert spec is not None
    return spec


def _take_kept(tx: Transition, wait: Wait) -> None:
    """Take earlier messages that fit an alternative, oldest first."""
    specs = _specs(tx, wait)["alternatives"]
    signals = [s["signal"] for s in specs if "signal" in s and not s.get("transient")]
    kept = [
        message for name in dict.fromkeys(signals) for message in tx.state["kept"].get(name, ())
    ]
    # Those of steps have the number of their event, and a position in it.
    for message in sorted(kept, key=lambda sent: (sent["number"], sent.get("part", 0))):
        if not is_open(tx, wait):
            return
        if offer(tx, wait, message, stored=True):
            tx.state["kept"][message["signal"]].remove(message)


def _check_alternative(tx: Transition, wait: Wait, index: int) -> None:
    """Trigger an alternative that already holds: a true condition, or a time in the past."""
    spec = _specs(tx, wait)["alternatives"][index]
    due = wait["alternatives"][index].get("due")
    if due is not None and due <= tx.now:
        occur(tx, wait, index, None)
    elif "when" in spec:
        unit = tx.state["units"][wait["unit"]]
        if holds(Names(tx, tx.act_of(unit), unit), spec["when"]):
            occur(tx, wait, index, None)


def _listen(tx: Transition, wait: Wait, index: int, alternative: dict[str, Plain]) -> None:
    spec = _specs(tx, wait)["alternatives"][index]
    if "result" in alternative:
        return
    if "due" in alternative:
        timer = tx.set_timer_at(alternative["due"], "wait", wait["id"], index)
        wait["timers"].append(timer)
    elif "signal" in spec:
        listen(tx, wait["id"], spec["signal"], alternative["key"], wait["unit"])
    else:
        watch(tx, wait["id"], _watches(tx, wait, spec))


def _watches(tx: Transition, wait: Wait, spec: Any) -> Iterable[str]:
    """Return the state keys that a condition names, or all of them if that is unknown."""
    act = tx.act_of(tx.state["units"][wait["unit"]])
    return tx.watched(act, spec.get("watches", tx.flow_of(tx.frame_of(act)).state))


def watch_again(tx: Transition, wait: Wait) -> None:
    """Watch the state keys of a wait's conditions again after its step was replaced."""
    if wait["alternatives"]:
        for spec, alternative in zip(_specs(tx, wait)["alternatives"], wait["alternatives"],
                                     strict=True):  # fmt: skip
            if "when" in spec and "result" not in alternative:
                watch(tx, wait["id"], _watches(tx, wait, spec))


def _described(tx: Transition, wait: Wait) -> dict[str, Plain]:
    """Return the fields of a wait for display: its signals with their keys, and its due time."""
    specs = _specs(tx, wait)["alternatives"]
    signals = [
        {"signal": spec["signal"], "key": alternative.get("key")}
        for spec, alternative in zip(specs, wait["alternatives"], strict=True)
        if "signal" in spec
    ]
    dues = [a["due"] for a in wait["alternatives"] if "due" in a]
    timer = tx.state["timers"].get(tx.state["units"][wait["unit"]].get("timer", 0))
    if timer is not None:
        dues.append(timer["due"])
    described: dict[str, Plain] = {"due": min(dues)} if dues else {}
    return {**described, "signals": signals} if signals else described


def offer(tx: Transition, wait: Wait, message: Plain, *, stored: bool = False) -> bool:
    """Offer a message to a wait.

    Args:
        message: See `signals.deliver`.
        stored: The message was sent before the wait began. Transient alternatives ignore it.

    Returns:
        Whether the wait took it.
    """
    unit = tx.state["units"][wait["unit"]]
    for index, spec in enumerate(_specs(tx, wait)["alternatives"]):
        alternative = wait["alternatives"][index]
        if spec.get("signal") != message["signal"] or "result" in alternative:
            continue
        if (stored and spec.get("transient")) or not _key_fits(alternative["key"], message["key"]):
            continue
        if "match" in spec:
            shown = {"signal": {**message, "name": message["signal"]}}
            if not holds(Names(tx, tx.act_of(unit), unit, extra=shown), spec["match"]):
                continue
        alternative["messages"].append(message)
        alternative["left"] -= 1
        if not alternative["left"]:
            occur(tx, wait, index, message)
        return True
    return False


def _key_fits(wanted: str | None, sent: str | None) -> bool:
    """Return whether a message fits a key. Messages without a key were sent to this execution."""
    return sent is None or wanted is None or sent == wanted


def is_for(tx: Transition, frame: int, message: Plain) -> bool:
    """Return whether a message has the signal key of a running flow."""
    return _key_fits(tx.keys_of(frame).get(message["signal"]), message["key"])


def receive(tx: Transition, message: Plain) -> bool:
    """Pass a message to the oldest taker: an open wait, or a map that adds an item for it.

    Args:
        message: See `offer`.

    Returns:
        Whether it was taken.
    """
    if "step" in message:
        return False
    for number in listeners(tx, message["signal"], message["key"]):
        wait = tx.state["waits"].get(number)
        if wait is None:
            act = tx.state["acts"][number]
            open_ = act["units"] or act["next"] < len(act["over"])
            if open_ and is_for(tx, tx.frame_of(act), message):
                tx.agenda.append(entries.add_item(number, message["data"]))
                return True
            continue
        try:
            if offer(tx, wait, message):
                return True
        except EvaluationError as failure:
            tx.agenda.append(entries.unit_broken(wait["unit"], failure))
    return False


def occur(tx: Transition, wait: Wait, index: int, message: Plain) -> None:
    """Trigger an alternative, which can end the wait.

    Args:
        index: Index of the alternative.
        message: The message that triggered it, if any.
    """
    specs = _specs(tx, wait)
    spec = specs["alternatives"][index]
    alternative = wait["alternatives"][index]
    result: dict[str, Plain] = {"id": spec["id"], "at": format_time(tx.now)}
    if message is not None:
        data = [g["data"] for g in alternative["messages"]]
        result["signal"] = spec["signal"]
        result["data"] = data if "count" in spec else data[0]
    alternative["result"] = result
    alone = len(specs["alternatives"]) == 1
    if specs["mode"] == "first":
        output = result["data"] if "count" in spec else result
        end_wait(tx, wait, "occurred", output, "ok" if alone else spec["id"])
    elif all("result" in a for a in wait["alternatives"]):
        end_wait(tx, wait, "occurred", [a["result"] for a in wait["alternatives"]], "ok")


def end_wait(tx: Transition, wait: Wait, how: str, output: Plain, outcome: str) -> None:
    """End a wait and let its step continue with `outcome`.

    Args:
        how: See `commands.CloseWait`.
        output: The output of the step.
        outcome: The outcome of the step.
    """
    start_hits_anew(tx, wait, tx.state["units"][wait["unit"]])
    close_wait(tx, wait, how, output)
    tx.agenda.append(entries.ended(wait["unit"], output, outcome))


def start_hits_anew(tx: Transition, wait: Wait, unit: Unit) -> None:
    """Reset the activation counts of surrounding scopes, if the wait outlasted one event."""
    if wait["event"] == tx.state["events"]:
        return
    for act in tx.acts_around(tx.act_of(unit)):
        tx.scope_of(act)["hits"] = {}


def close_wait(tx: Transition, wait: Wait, how: str, result: Plain = None) -> None:
    """Remove a wait from the state, with its timers, listeners and watchers."""
    del tx.state["waits"][wait["id"]]
    for timer in wait["timers"]:
        tx.clear_timer(timer)
    for alternative in wait["record"].get("signals", ()):
        unlisten(tx, wait["id"], alternative["signal"], alternative["key"])
    unit = tx.state["units"].get(wait["unit"])
    if wait["alternatives"] and unit is not None:
        for spec in _specs(tx, wait)["alternatives"]:
            if "when" in spec:
                unwatch(tx, wait["id"], _watches(tx, wait, spec))
    if wait["owner"] in LET_GO:
        LET_GO[wait["owner"]](tx, wait)
    if wait["shown"]:
        tx.commands.append(CloseWait(wait["id"], how, result))


def check_state(tx: Transition, wait: Wait) -> bool:
    """Trigger the first alternative of a wait whose condition on state holds now.

    Returns:
        Whether there is work now.
    """
    for index, spec in enumerate(_specs(tx, wait)["alternatives"]):
        alternative = wait["alternatives"][index]
        if "when" not in spec or "result" in alternative:
            continue
        try:
            _check_alternative(tx, wait, index)
        except EvaluationError as failure:
            tx.agenda.append(entries.unit_broken(wait["unit"], failure))
            return True
        if not is_open(tx, wait):
            return True
    return False


# Owners of waits


def _unit(tx: Transition, wait: Wait) -> None:
    del tx.state["units"][wait["unit"]]["wait"]


def _budget(tx: Transition, wait: Wait) -> None:
    budget = budget_of(tx.state, wait["budget"])
    if budget is not None:
        del budget["wait"]


def _cut(tx: Transition, wait: Wait) -> None:
    del tx.state["cuts"][wait["cut"]]["wait"]


LET_GO: dict[Owner, Callable[[Transition, Wait], None]] = {
    "step": _unit,
    "budget": _budget,
    "attempt": _unit,
    "cut": _cut,
}
"""Removes a closed wait from its owner. For `permission`, see `close_question`."""
