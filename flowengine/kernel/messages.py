"""Messages: signals to and from this execution, and the triggers that they start."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from flowengine.kernel.commands import ENDED, Send
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import Message
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state import write_message
from flowengine.kernel.graph.compiled import TRIGGER, EvaluationError, Plain
from flowengine.kernel.graph.specs import EmitSpec, TriggerSpec
from flowengine.kernel.limits.background import received
from flowengine.kernel.notation.times import format_time, parse_duration
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.records import Arrival, JoinState, Scope
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting import waits
from flowengine.kernel.waiting.waits import is_for

# Triggers: messages and state writes that start tokens in the flow's own scope.
#
# See docs/language.md: trigger. Patterns 23, 24.
#
# A trigger is open from the start of the execution until the scope of the flow ends. A message
# that no wait and no map has taken goes to the first trigger in the file that takes it, and
# creates a token with an empty past. A trigger with `{all: [...]}` also uses kept messages, and
# fires once it has one of each. A trigger on state fires once for all writes of an event to its
# key.
#
# Triggers do not keep an execution open. `limits.idle` does, for that long after the last token
# has ended.


def receive(tx: Transition, message: Plain, *, stored: bool = False) -> bool:
    """Offer a message to the triggers, in the order of the file.

    Args:
        message: See `signals.deliver`.
        stored: The message is an earlier one. Transient triggers ignore it.

    Returns:
        Whether a trigger took it.
    """
    listening = tx.graph.triggers.get(message["signal"])
    if not listening or "triggered" not in tx.state or "step" in message:
        return False
    if moves.is_over(tx.root()) or moves.is_queued(tx.root()) or not is_for(tx, 0, message):
        return False
    return any(
        _offer(tx, step, spec, message)
        for step, spec in listening
        if not (stored and spec.get("transient"))
    )


def _offer(tx: Transition, step: int, spec: TriggerSpec, message: Plain) -> bool:
    if spec.get("all"):
        return _complete(tx, step, spec, message)
    seen = _shown(message, message["data"])
    if "match" in spec:
        try:
            if not holds(Names(tx, None, extra={"signal": seen}), spec["match"]):
                return False
        except EvaluationError as failure:
            tx.agenda.append(entries.trigger_broken(_token(tx, step), failure))
            return False
    _fire(tx, step, seen)
    return True


def _complete(tx: Transition, step: int, spec: TriggerSpec, message: Plain) -> bool:
    """Fire a trigger on several signals if this message is the last one missing."""
    others = [signal for signal in spec["signals"] if signal != message["signal"]]
    kept = tx.state["kept"]
    oldest: list[Plain] = []
    for signal in others:
        oldest += [
            kept_message for kept_message in kept.get(signal, ()) if is_for(tx, 0, kept_message)
        ][:1]
    if len(oldest) < len(others):
        return False
    data = dict.fromkeys(spec["signals"])
    for kept_message in (*oldest, message):
        data[kept_message["signal"]] = kept_message["data"]
    for kept_message in oldest:
        kept[kept_message["signal"]].remove(kept_message)
    _fire(tx, step, _shown(message, data))
    return True


def _shown(message: Plain, data: Plain) -> dict[str, Plain]:
    """Return a message as the value of the name `signal`."""
    shown = {key: message[key] for key in ("key", "id", "sent_at", "sent_by")}
    return {"name": message["signal"], "data": data, **shown}


def _token(tx: Transition, step: int) -> Arrival:
    """Return a token that a trigger creates at its step."""
    tx.state["triggered"] += 1
    arrival = routing.unsent(tx.root()["id"], step, 0, [tx.state["triggered"]])
    arrival["source"] = TRIGGER
    return arrival


def _fire(tx: Transition, step: int, message: Plain = None) -> None:
    arrival = _token(tx, step)
    if message is not None:
        arrival["message"] = message
    awake(tx, tx.root())
    tx.agenda.append(entries.arrive(arrival))


def take_kept(tx: Transition) -> None:
    """Offer the messages kept while the flow was ending, because it continues."""
    kept = tx.state["kept"]
    for signal in tx.graph.triggers:
        for message in list(kept.get(signal, ())):
            if receive(tx, message, stored=True):
                kept[signal].remove(message)


def on_state(tx: Transition) -> bool:
    """Fire the triggers of state keys that were written since the last check.

    Returns:
        Whether a trigger fired.
    """
    steps = [step for step, key in tx.graph.state_triggers if key in tx.changed]
    if not steps or not tx.state["scopes"] or moves.is_over(tx.root()):
        return False
    for step in steps:
        _fire(tx, step)
    return True


def idle(tx: Transition, scope: Scope) -> bool:
    """Keep a scope open without a token, for later messages.

    Args:
        scope: A scope without tokens.

    Returns:
        Whether it stays open for now.
    """
    span = tx.graph.limits.get("idle")
    if scope["unit"] or span is None or "triggered" not in tx.state:
        return False
    if "idle" not in scope and parse_duration(span):
        scope["idle"] = tx.set_timer(parse_duration(span), "idle", scope["id"])
        # All new tokens come later, so the pasts of ended ones can be merged.
        routing.end_token(tx, scope, [], routing.merged_past(tx, scope))
    return "idle" in scope


def messages_at_joins(tx: Transition, scope: Scope) -> int:
    """Return the number of messages that wait at joins of a scope for tokens from the other edges.

    They keep the scope open only while it has a token that could arrive there.
    """
    if scope["unit"] or "triggered" not in tx.state:
        return 0
    return sum(len(join["arrivals"].get(TRIGGER, ())) for join in scope["joins"].values())


def may_free(tx: Transition) -> bool:
    """Return whether triggers can still complete a join that holds tokens.

    Args:
        tx: The transition, in which no other work remains.
    """
    if "triggered" not in tx.state or not tx.graph.triggers:
        return False  # no token is left that could write watched state
    joins = tx.root()["joins"]
    brought = {TRIGGER}
    left = tx.graph.after_triggers()
    while True:
        more = {step for step in left if _may_be_brought(tx, step, joins, brought)}
        if not more:
            return False
        if any(step in joins for step in more):
            return True
        brought |= more
        left = left - more


def _may_be_brought(
    tx: Transition, step: int, joins: dict[int, JoinState], brought: Collection[int]
) -> bool:
    """Return whether a step can begin with its held tokens and those its sources may send."""
    node = tx.graph.node(step)
    if node.join is None or node.join["kind"] != "all":
        return any(source in brought for source in node.sources)
    held = joins[step]["arrivals"] if step in joins else {}
    return all(source in brought or source in held for source in node.sources)


def awake(tx: Transition, scope: Scope) -> None:
    """End the idle period of a scope, because it has a token again or has ended."""
    if "idle" in scope:
        tx.clear_timer(scope.pop("idle"))


# Signals: messages to this execution, and from its steps to it or to other executions.
#
# See docs/language.md: emit.
#
# A message goes to one receiver: the oldest open wait or map that takes it, else the first trigger
# in the file, else the oldest running flow with a state key for it. Otherwise it is kept, if a step
# of the flow takes earlier messages.


def deliver(tx: Transition, message: Plain) -> None:
    """Deliver a message to a receiver, or keep it for a later one.

    Args:
        message: `{signal, key, data, id, sent_at, sent_by, number}`.
    """
    if waits.receive(tx, message) or receive(tx, message) or _write(tx, message):
        return
    if tx.graph.stores(message["signal"]):
        tx.state["kept"].setdefault(message["signal"], []).append(message)


def _write(tx: Transition, message: Plain) -> bool:
    """Write a message to the state of the oldest running flow that has a key for it."""
    keys = tx.graph.received.get(message["signal"])
    if not keys or not tx.state["scopes"]:
        return False

    for scope in (tx.root(), *tx.subflows()):
        frame = scope.get("frame", 0)
        key = keys.get(tx.state["frames"][frame]["flow"] if frame else 0)
        is_meant = message.get("step") in (None, scope["path"].rstrip("/"))
        if key is None or not is_meant or moves.is_over(scope) or not is_for(tx, frame, message):
            continue
        with suppress(StepFailure):  # what does not fit is refused when it is sent
            write_message(tx, frame, key, message["data"])
        return True
    return False


def arrived(tx: Transition, event: Message) -> None:
    """Deliver a message from outside the execution.

    Args:
        event: The event, as stored.
    """
    data = event["data"]
    if event["signal"] == ENDED and (data := received(tx, event)) is None:
        return
    message = {
        "signal": event["signal"],
        "key": event["key"],
        "data": data,
        "id": event["id"],
        "sent_at": format_time(event.get("sent", event["at"])),
        "sent_by": event["by"],
        "number": tx.state["events"],
    }
    if "step" in event:
        message["step"] = event["step"]
    begun = tx.state.get("triggered")
    deliver(tx, message)
    if tx.state.get("triggered") != begun:
        tx.root()["hits"] = {}  # a trigger waits for messages, like a wait


def emit(tx: Transition, names: Names, specs: list[EmitSpec], sender: str) -> None:
    """Send the signals that a step emits. They are delivered before other effects of the step.

    Args:
        names: The names that keys and data can read.
        specs: The signals, in the order of the file. If one cannot be sent, none is sent.
        sender: Unique identifier of this end of a step, which is part of the message ids.

    Raises:
        StepFailure: Data does not fit the schema of its signal, or steps send each other endless
            messages (a map that adds items to itself).
        EvaluationError: A key or data has no value.
    """
    execution = tx.state["execution"]["id"]
    limit = tx.graph.limits["steps"]
    require(
        tx.emitted + len(specs) <= limit,
        "LimitExceeded",
        f"more than {limit} messages sent without a wait in between (limits.steps)",
        {"limit": "steps"},
    )
    messages: list[Plain] = []
    for index, spec in enumerate(specs):
        signal = spec["signal"]
        data = evaluate(names, spec["data"]) if "data" in spec else None
        schema = tx.flow_of(names.frame).signals.get(signal, {}).get("data", {})
        fault = tx.graph.validate(schema, data)
        require(fault is None, "ValidationError", f"signal {signal!r}: {fault}", {"signal": signal})
        declared = tx.keys_of(names.frame).get(signal)
        key = str(evaluate(names, spec["key"])) if "key" in spec else declared
        to = _receiver(tx, names, spec)
        require(
            to != "all" or key is not None,
            "ValidationError",
            f"signal {signal!r} has no key, so it cannot be sent to all",
            {"signal": signal},
        )
        messages.append(
            {
                "to": to,
                "signal": signal,
                "key": key,
                "data": data,
                "id": f"{execution}/{sender}/{index}",
                "sent_at": format_time(tx.now),
                "sent_by": f"execution:{execution}",
                "number": tx.state["events"],
            }
        )
    for message in messages:
        tx.emitted += 1
        to = message.pop("to")
        if to == "execution":
            deliver(tx, {**message, "part": tx.emitted})
        else:
            sent = (message[name] for name in ("signal", "key", "data", "id"))
            tx.commands.append(Send(to, *sent))


def _receiver(tx: Transition, names: Names, spec: EmitSpec) -> str:
    """Return the receiver of a signal. A subflow's parent is the execution that it is part of."""
    to = str(evaluate(names, spec["to"])) if "to" in spec else "execution"
    execution = tx.state["execution"]
    if to == "parent":
        if names.frame:
            return "execution"
        to = execution.get("parent") or to
    return "execution" if to == execution.get("id") else to
