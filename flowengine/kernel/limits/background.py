"""Executions that steps start in the background (docs/agents.md: In the background).

    call ─► registered, its part of the budgets reserved ─► started ─► `agent.ended` ─► settled
                                             └─ the flow that started it ends ─► cancelled

An execution in the background belongs to the running flow that started it. Its end is sent to that
flow, and it is cancelled when that flow has ended in any way. Both messages are stored in the
commit of the end that causes them, so no crash loses them.

It is registered before its attempt begins, by the id that follows from the address. Executions
that a crash or a cancellation leaves in between are therefore known, too.
"""

from __future__ import annotations

from flowengine.kernel.commands import CANCEL, ENDED, Send
from flowengine.kernel.events import ErrorData, Message
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits.budgets import count_inner
from flowengine.kernel.notation.addresses import separate_id
from flowengine.kernel.state.records import Child, Unit
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.view import budgets_around, left_around, total


def begin(tx: Transition, unit: Unit, node: Node) -> None:
    """Register the execution that an attempt is about to start.

    Args:
        tx: The transition.
        unit: The unit of the attempt.
        node: Its step.

    Raises:
        StepFailure: `LimitExceeded`: too many run, were started, or are nested.
    """
    assert node.background is not None
    most, number = node.background, tx.frame_of(tx.act_of(unit))
    id, children = _id(tx, unit), tx.state.get("children", {})
    if id in children:
        return  # its attempt was cut off
    own = [child for child in children.values() if child["frame"] == number]
    running = sum("ended" not in child for child in own)
    _bound(running, most["at_once"], "run in the background already", "max")
    _bound(len(own), most["total"], "were started in the background already", "count")
    room = tx.state["execution"].get("room", tx.graph.limits["depth"])
    require(
        room >= 1,
        "LimitExceeded",
        "too many executions in the background are inside each other (limits.depth)",
        {"limit": "depth"},
    )
    scope = next((one for one in tx.subflows() if one.get("frame", 0) == number), tx.root())
    child: Child = {"frame": number, "step": scope["path"].rstrip("/"), "room": room - 1}
    rests = left_around(tx, unit)
    if rests is not None:
        places = most["at_once"] - running + 1
        child["part"] = {
            meter: max(0, rest.amount if meter == "wall_time" else rest.amount // places)
            for meter, rest in rests.items()
        }
        count_inner(tx, number, {}, child["part"])
        budgets = budgets_around(tx, number)
        if shared := [of for _, budget in budgets for of in budget.get("shared", ())]:
            child["shared"] = shared
    tx.state.setdefault("children", {})[id] = child


def child_of(tx: Transition, unit: Unit) -> dict[str, Plain] | None:
    """Return the record of the execution that an attempt starts, as plain data."""
    child = tx.state.get("children", {}).get(_id(tx, unit))
    return None if child is None else {**child}


def _bound(number: int, most: int, what: str, name: str) -> None:
    message = f"{number} {what} (background.{name})"
    require(number < most, "LimitExceeded", message, {"limit": name})


def _id(tx: Transition, unit: Unit) -> str:
    return separate_id(tx.state["execution"]["identity"], tx.address(unit))


def withdraw(tx: Transition, unit: Unit, failure: object = None) -> None:
    """Cancel the execution of an attempt that has failed or was stopped, if it may exist.

    Args:
        tx: The transition.
        unit: The unit of the attempt.
        failure: The failure, unless it was stopped.
    """
    id = _id(tx, unit)
    child = tx.state.get("children", {}).get(id)
    if child is not None and isinstance(failure, dict) and failure["type"] == "ValidationError":
        child["ended"] = True  # its inputs were refused, so it does not exist
        part = child.get("part", {})
        count_inner(tx, child["frame"], part, dict.fromkeys(part, 0))
    _let_go(tx, id)


def release(tx: Transition, number: int) -> None:
    """Cancel the executions started by a flow, because the flow has ended.

    Args:
        tx: The transition.
        number: The frame of the flow. 0: the main flow.
    """
    for id, child in [*tx.state.get("children", {}).items()]:
        if child["frame"] == number:
            _let_go(tx, id)


def _let_go(tx: Transition, id: str) -> None:
    """Forget an execution, and cancel it if it runs. The amounts that it may use stay counted."""
    child = tx.state.get("children", {}).pop(id, None)
    if child is None:
        return
    if not tx.state["children"]:
        del tx.state["children"]
    if "ended" not in child:
        reason = "what started it has ended"
        tx.commands.append(Send(id, CANCEL, None, reason, f"{tx.state['execution']['id']}/{id}"))


def received(tx: Transition, event: Message) -> dict[str, Plain] | None:
    """Take the end of an execution in the background, once, and from itself only.

    Args:
        tx: The transition.
        event: The message.

    Returns:
        What the flow receives, or None if the message is not taken.
    """
    id = event["by"].removeprefix("execution:")
    child = tx.state.get("children", {}).get(id)
    if child is None or "ended" in child or event["by"] == id:  # not from an execution
        return None
    child["ended"] = True
    data = dict(event["data"])
    used = data.pop("used", None)
    if "part" in child and used is not None:
        count_inner(tx, child["frame"], child["part"], used)
    return data


def notify_parent(
    tx: Transition, status: str, outcome: str, error: ErrorData | None, outputs: Plain
) -> None:
    """Send the end of this execution to the one that has started it in the background.

    Args:
        tx: The transition.
        status: `succeeded`, `failed` or `cancelled`.
        outcome: The outcome of the flow.
        error: Its error.
        outputs: Its outputs.
    """
    about = tx.state["execution"]
    name = tx.graph.flows[0].result
    output = outputs if name is None or outputs is None else outputs[name]
    reason = error["message"] if error is not None else (outputs or {}).get("reason", "")
    data: dict[str, Plain] = {
        "id": about["id"],
        "tool": about["background"]["tool"],
        "outcome": outcome if status == "succeeded" else status,
        "output": output,
        "reason": reason,
    }
    if "budget" in tx.state:
        data["used"] = total(tx.state["budget"])
    step = about["background"]["step"]
    sent = f"{about['id']}/{tx.state['events']}"
    tx.commands.append(Send(str(about["parent"]), ENDED, None, data, sent, step or None))
