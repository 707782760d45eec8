"""Signals: messages to this execution, and from its steps to it or to other executions.

See docs/language.md: emit.

A message goes to one receiver: the oldest open wait or map that takes it, else the first trigger in
the file. Otherwise it is kept, if a step of the flow takes earlier messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.commands import Send
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.messages import triggers
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting import waits

if TYPE_CHECKING:
    from flowengine.kernel.events import Message
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import EmitSpec


def deliver(tx: Transition, message: Plain) -> None:
    """Deliver a message to a receiver, or keep it for a later one.

    Args:
        message: `{signal, key, data, id, sent_at, sent_by, number}`.
    """
    if waits.receive(tx, message) or triggers.receive(tx, message):
        return
    if tx.graph.stores(message["signal"]):
        tx.state["kept"].setdefault(message["signal"], []).append(message)


def arrived(tx: Transition, event: Message) -> None:
    """Deliver a message from outside the execution.

    Args:
        event: The event, as stored.
    """
    message = {
        "signal": event["signal"],
        "key": event["key"],
        "data": event["data"],
        "id": event["id"],
        "sent_at": format_time(event.get("sent", event["at"])),
        "sent_by": event["by"],
        "number": tx.state["events"],
    }
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
    execution = tx.state["execution"].get("id")
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
