"""Waits: for time, for a signal, for a condition on state.

See docs/language.md: wait; patterns 16, 18, 23, 24.

A wait has alternatives. Each *occurs* at most once; `first` ends with the first that does, `all`
when all have. Messages that were sent before are looked at when the wait opens, the oldest first;
then conditions and times already past; among equals the order written. The losers are withdrawn
in the same event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from flowengine.kernel.commands import CloseWait, OpenWait
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.machine import Machine
from flowengine.kernel.notation.times import format_time, parse_duration, parse_time
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move, move_wait
from flowengine.kernel.view import budget_of
from flowengine.kernel.waiting.listeners import listen, listeners, unlisten, unwatch, watch

if TYPE_CHECKING:
    from flowengine.kernel.state.phases import Owner
    from flowengine.kernel.state.records import Unit, Wait


def open_wait(m: Machine, unit: Unit) -> None:
    """Open the wait of a step.

    Args:
        unit: The unit that waits.

    Raises:
        StepFailure: A duration, time or count is none.
        EvaluationError: An expression has no value.
    """
    act = m.act_of(unit)
    spec = m.node(act).wait
    assert spec is not None
    alternatives = [_begin(m, Names(m, act, unit), a) for a in spec["alternatives"]]
    kind = _kind(spec["alternatives"])
    wait = new_wait(m, unit, kind)
    wait["alternatives"] = alternatives
    _take_kept(m, wait)
    for index in range(len(alternatives)):
        if is_open(m, wait):
            _look(m, wait, index)
    if not is_open(m, wait):
        return
    for index, alternative in enumerate(wait["alternatives"]):
        _listen(m, wait, index, alternative)
    wait["record"].update(_described(m, wait))
    show(m, wait)


def show(m: Machine, wait: Wait) -> None:
    """Make a wait known outside, or what has changed of it."""
    unit = m.state["units"].get(wait["unit"])
    if unit is not None and not wait["shown"]:
        open_ = wait["record"].get("ran") == "maybe"
        m.note(m.act_of(unit), "uncertain" if open_ else "waiting", unit=unit)
    move_wait(wait, "open")
    m.commands.append(OpenWait(dict(wait["record"])))


def new_wait(m: Machine, unit: Unit, kind: str, phase: Literal["wait", "ask"] = "wait") -> Wait:
    """Return a new wait of a unit; the caller fills in the rest of its record."""
    owner: Owner = "step" if phase == "wait" else "attempt"
    wait = add_wait(m, owner, unit["id"], kind, m.address(unit), m.node(m.act_of(unit)).id)
    unit["wait"] = wait["id"]
    move(unit, phase)
    return wait


def add_wait(m: Machine, owner: Owner, unit: int, kind: str, address: str, step: str) -> Wait:
    """Put a new wait into the state and return it."""
    number = m.new_id()
    wait: Wait = {
        "id": number,
        "owner": owner,
        "unit": unit,
        "kind": kind,
        "since": m.now,
        "event": m.state["events"],
        "shown": False,
        "timers": [],
        "alternatives": [],
        "record": {
            "id": number,
            "kind": kind,
            "address": address,
            "step": step,
            "since": m.now,
        },
    }
    m.state["waits"][number] = wait
    return wait


def is_open(m: Machine, wait: Wait) -> bool:
    """Return whether a wait is still open."""
    return wait["id"] in m.state["waits"]


def _kind(alternatives: list[Any]) -> str:
    if any("signal" in a for a in alternatives):
        return "signal"
    return "state" if any("when" in a for a in alternatives) else "timer"


def _begin(m: Machine, names: Names, spec: Any) -> dict[str, Plain]:
    """Evaluate one alternative: when it is due, which key it listens to, how many it needs."""
    begun: dict[str, Plain] = {"got": []}
    if "after" in spec:
        begun["due"] = m.now + duration_of(evaluate(names, spec["after"]), "for")
    elif "until" in spec:
        begun["due"] = _time_of(evaluate(names, spec["until"]))
    elif "signal" in spec:
        declared = m.keys_of(names.frame).get(spec["signal"])
        key = evaluate(names, spec["key"]) if "key" in spec else declared
        begun["key"] = key
        count = evaluate(names, spec["count"]) if "count" in spec else 1
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise StepFailure("ValidationError", f"'count' is {count!r}, not 1 or more")
        begun["left"] = count
    return begun


def duration_of(value: Plain, what: str) -> int:
    """Return an evaluated duration in milliseconds.

    Args:
        value: A text in the notation of the language.
        what: The key, for the message.

    Returns:
        Milliseconds.

    Raises:
        StepFailure: `value` is no duration.
    """
    try:
        return parse_duration(value)
    except (TypeError, ValueError, AttributeError):
        raise StepFailure(
            "ValidationError", f"{what!r} is {value!r}, not a valid duration such as 1h30m"
        ) from None


def _time_of(value: Plain) -> int:
    try:
        return parse_time(value)
    except (TypeError, ValueError, AttributeError):
        raise StepFailure(
            "ValidationError",
            f"'until' is {value!r}, not a valid time such as 2026-11-25T09:14:02Z",
        ) from None


def _specs(m: Machine, wait: Wait) -> Any:
    spec = m.node(m.act_of(m.state["units"][wait["unit"]])).wait
    assert spec is not None
    return spec


def _take_kept(m: Machine, wait: Wait) -> None:
    """Take the messages sent before that fit some alternative, oldest first."""
    specs = _specs(m, wait)["alternatives"]
    signals = [s["signal"] for s in specs if "signal" in s and not s.get("transient")]
    kept = [one for name in dict.fromkeys(signals) for one in m.state["kept"].get(name, ())]
    for message in sorted(kept, key=_number_of):
        if not is_open(m, wait):
            return
        if offer(m, wait, message, stored=True):
            m.state["kept"][message["signal"]].remove(message)


def _number_of(message: Plain) -> tuple[int, int]:
    """Order messages by the event that brought them, and in it by when a step sent them."""
    return message["number"], message.get("part", 0)


def _look(m: Machine, wait: Wait, index: int) -> None:
    """Trigger an alternative that holds already: a true condition, a time in the past."""
    spec = _specs(m, wait)["alternatives"][index]
    due = wait["alternatives"][index].get("due")
    if due is not None and due <= m.now:
        occur(m, wait, index, None)
    elif "when" in spec:
        unit = m.state["units"][wait["unit"]]
        if holds(Names(m, m.act_of(unit), unit), spec["when"]):
            occur(m, wait, index, None)


def _listen(m: Machine, wait: Wait, index: int, alternative: dict[str, Plain]) -> None:
    spec = _specs(m, wait)["alternatives"][index]
    if "result" in alternative:
        return
    if "due" in alternative:
        timer = m.set_timer_at(alternative["due"], "wait", wait["id"], index)
        wait["timers"].append(timer)
    elif "signal" in spec:
        listen(m, wait["id"], spec["signal"], alternative["key"], wait["unit"])
    else:
        watch(m, wait["id"], _watches(m, wait, spec))


def _watches(m: Machine, wait: Wait, spec: Any) -> Iterable[str]:
    """Return the state keys that a condition names; if that is not known, all."""
    act = m.act_of(m.state["units"][wait["unit"]])
    return m.watched(act, spec.get("watches", m.flow_of(m.frame_of(act)).state))


def watch_again(m: Machine, wait: Wait) -> None:
    """Have a wait watch what its conditions name now: its step is another than when it opened."""
    if wait["alternatives"]:
        for spec, alternative in zip(_specs(m, wait)["alternatives"], wait["alternatives"],
                                     strict=True):  # fmt: skip
            if "when" in spec and "result" not in alternative:
                watch(m, wait["id"], _watches(m, wait, spec))


def _described(m: Machine, wait: Wait) -> dict[str, Plain]:
    """Return what lists show of a wait: the signals with their keys, when it is due."""
    specs = _specs(m, wait)["alternatives"]
    signals = [
        {"signal": spec["signal"], "key": alternative.get("key")}
        for spec, alternative in zip(specs, wait["alternatives"], strict=True)
        if "signal" in spec
    ]
    dues = [a["due"] for a in wait["alternatives"] if "due" in a]
    timer = m.state["timers"].get(m.state["units"][wait["unit"]].get("timer", 0))
    if timer is not None:
        dues.append(timer["due"])
    described: dict[str, Plain] = {"due": min(dues)} if dues else {}
    return {**described, "signals": signals} if signals else described


def offer(m: Machine, wait: Wait, message: Plain, *, stored: bool = False) -> bool:
    """Offer a message to a wait.

    Args:
        message: See `signals.deliver`.
        stored: The message was sent before the wait began; transient alternatives do not see it.

    Returns:
        Whether the wait took it.
    """
    unit = m.state["units"][wait["unit"]]
    for index, spec in enumerate(_specs(m, wait)["alternatives"]):
        alternative = wait["alternatives"][index]
        if spec.get("signal") != message["signal"] or "result" in alternative:
            continue
        if (stored and spec.get("transient")) or not _key_fits(alternative["key"], message["key"]):
            continue
        if "match" in spec:
            shown = {"signal": {**message, "name": message["signal"]}}
            if not holds(Names(m, m.act_of(unit), unit, extra=shown), spec["match"]):
                continue
        alternative["got"].append(message)
        alternative["left"] -= 1
        if not alternative["left"]:
            occur(m, wait, index, message)
        return True
    return False


def _key_fits(wanted: str | None, sent: str | None) -> bool:
    """Return whether a message's key is the one waited for; sent without one, it was addressed."""
    return sent is None or wanted is None or sent == wanted


def is_for(m: Machine, frame: int, message: Plain) -> bool:
    """Return whether a message has the key that a flow at work is found by."""
    return _key_fits(m.keys_of(frame).get(message["signal"]), message["key"])


def receive(m: Machine, message: Plain) -> bool:
    """Give a message to the oldest that takes it: an open wait, or a map that it adds an item to.

    Args:
        message: See `offer`.

    Returns:
        Whether somebody took it.
    """
    for number in listeners(m, message["signal"], message["key"]):
        wait = m.state["waits"].get(number)
        if wait is None:
            act = m.state["acts"][number]
            open_ = act["units"] or act["next"] < len(act["over"])
            if open_ and is_for(m, m.frame_of(act), message):
                m.agenda.append(entries.add_item(number, message["data"]))
                return True
            continue
        try:
            if offer(m, wait, message):
                return True
        except EvaluationError as failure:
            m.agenda.append(entries.unit_broken(wait["unit"], failure))
    return False


def occur(m: Machine, wait: Wait, index: int, message: Plain) -> None:
    """Trigger an alternative; the wait may end with it.

    Args:
        index: Which alternative.
        message: The message that made it occur, if one did.
    """
    specs = _specs(m, wait)
    spec = specs["alternatives"][index]
    alternative = wait["alternatives"][index]
    result: dict[str, Plain] = {"id": spec["id"], "at": format_time(m.now)}
    if message is not None:
        got = [g["data"] for g in alternative["got"]]
        result["signal"] = spec["signal"]
        result["data"] = got if "count" in spec else got[0]
    alternative["result"] = result
    alone = len(specs["alternatives"]) == 1
    if specs["mode"] == "first":
        output = result["data"] if "count" in spec else result
        end_wait(m, wait, "occurred", output, "ok" if alone else spec["id"])
    elif all("result" in a for a in wait["alternatives"]):
        end_wait(m, wait, "occurred", [a["result"] for a in wait["alternatives"]], "ok")


def end_wait(m: Machine, wait: Wait, how: str, output: Plain, outcome: str) -> None:
    """End a wait and let its step go on with `outcome`.

    Args:
        how: See `commands.CloseWait`.
        output: What the step gives.
        outcome: How it ended.
    """
    start_hits_anew(m, wait, m.state["units"][wait["unit"]])
    close_wait(m, wait, how, output)
    m.agenda.append(entries.ended(wait["unit"], output, outcome))


def start_hits_anew(m: Machine, wait: Wait, unit: Unit) -> None:
    """Count activations anew in the scopes around who waited, if it was really waited for."""
    if wait["event"] == m.state["events"]:
        return
    for act in m.acts_around(m.act_of(unit)):
        m.scope_of(act)["hits"] = {}


def close_wait(m: Machine, wait: Wait, how: str, result: Plain = None) -> None:
    """Take a wait out of the state, with its timers and all that listens for it."""
    del m.state["waits"][wait["id"]]
    for timer in wait["timers"]:
        m.clear_timer(timer)
    for alternative in wait["record"].get("signals", ()):
        unlisten(m, wait["id"], alternative["signal"], alternative["key"])
    unit = m.state["units"].get(wait["unit"])
    if wait["alternatives"] and unit is not None:
        for spec in _specs(m, wait)["alternatives"]:
            if "when" in spec:
                unwatch(m, wait["id"], _watches(m, wait, spec))
    if wait["owner"] in LET_GO:
        LET_GO[wait["owner"]](m, wait)
    if wait["shown"]:
        m.commands.append(CloseWait(wait["id"], how, result))


def look_at_state(m: Machine, wait: Wait) -> bool:
    """Trigger the first alternative of a wait whose condition on state holds now.

    Returns:
        Whether there is something to do now.
    """
    for index, spec in enumerate(_specs(m, wait)["alternatives"]):
        alternative = wait["alternatives"][index]
        if "when" not in spec or "result" in alternative:
            continue
        try:
            _look(m, wait, index)
        except EvaluationError as failure:
            m.agenda.append(entries.unit_broken(wait["unit"], failure))
            return True
        if not is_open(m, wait):
            return True
    return False


# Whose a wait is


def _unit(m: Machine, wait: Wait) -> None:
    del m.state["units"][wait["unit"]]["wait"]


def _budget(m: Machine, wait: Wait) -> None:
    budget = budget_of(m.state, wait["budget"])
    if budget is not None:
        del budget["wait"]


def _cut(m: Machine, wait: Wait) -> None:
    del m.state["cuts"][wait["cut"]]["wait"]


LET_GO: dict[Owner, Callable[[Machine, Wait], None]] = {
    "step": _unit,
    "budget": _budget,
    "attempt": _unit,
    "cut": _cut,
}
"""How the owner of a wait that is closed is told; of a question `shared_questions` does it."""
