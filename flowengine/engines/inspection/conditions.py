"""Why a step waits for a condition on state, with the messages that can change the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.agent_state import PAUSE
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import unpacked
from flowengine.engines.host import Host
from flowengine.engines.infos import Reason
from flowengine.engines.messages import receivers
from flowengine.kernel.commands import ENDED
from flowengine.kernel.events import Message
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import View

_PART, _PARTS = 500, 4
"""Events that are read at once, and how many times, to find the message that paused an agent."""


def condition(host: Host, execution: Execution, record: Mapping[str, Any], id: str) -> Reason:
    """Return the reason of a wait for a condition on state, or of a paused agent.

    Args:
        host: Provides the store.
        execution: The execution, as stored.
        record: The open wait.
        id: The execution's id, as short as it can be.
    """
    graph, state = execution.linked.graph, execution.state
    view, wait = View(graph, state), state["waits"][record["id"]]
    act = view.act_of(state["units"][wait["unit"]])
    node, declared = view.node(act), view.flow_of(view.frame_of(act)).state
    alternatives: Any = () if node.wait is None else node.wait["alternatives"]
    keys = {key for one in alternatives if "when" in one for key in one.get("watches", declared)}
    signals = [spec["signal"] for key, spec in declared.items() if key in keys and "signal" in spec]
    if PAUSE in signals:
        agent = record["address"].rpartition("/")[0]
        return _paused(host, execution, agent, wait["event"], id)
    reason: Reason = {
        "what": "waiting for a condition on state",
        "wakes": "a step that writes the state",
    }
    if ENDED in signals:
        reason = {"what": "waiting for agents in the background", "wakes": "the end of an agent"}
        signals.remove(ENDED)
    if not signals:
        return reason
    names = " or ".join(f"'{signal}'" for signal in signals)
    to = _step(graph, state, signals[0], record["address"].rpartition("/")[0])
    return {
        **reason,
        "wakes": f"{reason['wakes']}, or a message {names}",
        "signals": signals,
        "command": f"flowengine signal {id} {signals[0]} --data JSON{to}",
    }


def _paused(host: Host, execution: Execution, agent: str, before: int, id: str) -> Reason:
    """Return the reason of a paused agent.

    Args:
        agent: The address of its step.
        before: The number of events until it has stopped.
    """
    reason: Reason = {
        "address": agent,
        "what": "paused: no turn begins until a user continues it",
        "wakes": f"a message '{PAUSE}' with the data false",
        "signals": [PAUSE],
    }
    to = _step(execution.linked.graph, execution.state, PAUSE, agent)
    reason["command"] = f"flowengine signal {id} {PAUSE} --data false{to}"
    message = _pausing(host, execution.id, agent, before)
    if message is not None:
        reason["what"] = f"paused by {message['by']}: no turn begins until a user continues it"
        reason["since"] = format_time(message.get("sent", message["at"]))
    return reason


def _pausing(host: Host, execution: str, agent: str, before: int) -> Message | None:
    """Return the newest message that paused an agent, if it is among the newest events."""
    for _ in range(_PARTS):
        since = max(before - _PART, 0)
        part = host.store.events(execution, since, before - since)
        for event in reversed(unpacked(execution, part)):
            if event["type"] != "message" or event["signal"] != PAUSE or not event["data"]:
                continue
            if event.get("step", agent) == agent:
                return event
        before = since
    return None


def _step(graph: Any, state: Any, signal: str, step: str) -> str:
    """Return the option that names the receiver of a signal, if several steps receive it."""
    from shlex import quote

    several = len(receivers(graph, state, signal)) > 1 and step
    return f" --step {quote(step)}" if several else ""
