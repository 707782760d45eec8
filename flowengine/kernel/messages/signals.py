"""Signals: messages to this execution, and from its steps to it or to others.

See docs/language.md: emit.

A message goes to one receiver: the oldest that takes it of the open waits and the maps that it adds
an item to, else the first trigger in the file. Else it is kept, if something in the flow takes
messages that came before it began.
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
    """Give a message to who takes it, or keep it for who will.

    Args:
        message: `{signal, key, data, id, sent_at, sent_by, number}`.
    """
    if waits.receive(tx, message) or triggers.receive(tx, message):
        return
    if tx.graph.stores(message["signal"]):
        tx.state["kept"].setdefault(message["signal"], []).append(message)


def arrived(tx: Transition, event: Message) -> None:
    """Deliver a message that came from outside.

    Args:
        event: As it was stored.
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
        tx.root()["hits"] = {}  # it was waited for, as by a wait


def emit(tx: Transition, names: Names, specs: list[EmitSpec], sender: str) -> None:
    """Send what a step emits; it is delivered before anything else follows from the step.

    Args:
        names: What keys and data see.
        specs: The signals, in the order of the file; none is sent if one of them cannot be.
        sender: Tells this end of a step from every other one: part of the messages' ids.

    Raises:
        StepFailure: Data does not fit the schema of its signal; or steps send one another ever more
            messages without end (a map that adds items to itself).
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
    """Return to whom a signal goes; subflows are part of the execution of who runs them."""
    to = str(evaluate(names, spec["to"])) if "to" in spec else "execution"
    execution = tx.state["execution"]
    if to == "parent":
        if names.frame:
            return "execution"
        to = execution.get("parent") or to
    return "execution" if to == execution.get("id") else to
