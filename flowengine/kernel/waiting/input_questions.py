"""Input that a call requests while it runs, such as the values of a form (elicitation in MCP).

The attempt ends without a result, and the question belongs to its unit. After each answer the call
is made again, with the same input and all answers so far. An answer is no approval of the call, and
an approval of the call is no answer.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel.events import Asked
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.limits.locks import unpark
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.approvals import answer, fill_in, notify
from flowengine.kernel.waiting.call_questions import (
    answer_about,
    close_question,
    keep_answer,
    new_question,
    show_origin,
    take_back_answer,
)
from flowengine.kernel.waiting.waits import start_hits_anew

_OPEN = "input"
"""Used in place of the digest that other questions have. A unit has one such question at a time."""
_GIVEN = "inputs"
"""Likewise, of the answers so far."""
CHOICES = [
    {"id": id, "label": id.capitalize(), "counts_as": counts_as, "comment": "none"}
    for id, counts_as in (("accept", "approve"), ("decline", "reject"), ("cancel", "other"))
]
_TITLE = 120
"""Maximum characters of the message in a title."""


def ask(tx: Transition, unit: Unit, event: Asked) -> Wait:
    """Open a question for input.

    Args:
        unit: The calling unit, with its attempt prepared.
        event: The request, with `input`.
    """
    asked: Any = event["input"]
    unit["shown"] = True  # the call is made again with the same input
    node = tx.node(tx.act_of(unit))
    wait = new_question(tx, (unit["id"], _OPEN), tx.address(unit), node.id)
    kept: Any = given(tx, unit) or {"approved": True, "answers": {}}
    about = (unit["id"], _GIVEN)
    keep_answer(tx, about, {**kept, "key": asked["key"], "before": asked.get("before")})
    wait["record"]["tool"], wait["record"]["request"] = event["tool"], asked["request"]
    show_origin(tx, unit, wait)
    request = asked["request"]
    first, *more = str(request["message"]).strip().split("\n")
    first = first if len(first) <= _TITLE and not more else f"{first[:_TITLE]}…"
    fields = {
        "title": f"{request['by']} asks in a call of {event['tool']}: “{first}”",
        "subject": event["subject"],
        "form": asked.get("form"),
        "choices": CHOICES,
    }
    fill_in(tx, wait, fields, node.id)
    notify(tx, wait, "opened")
    return wait


def is_for_input(wait: Wait) -> bool:
    """Return whether a question asks for input of a call."""
    return bool(wait["asks"][1] == _OPEN)


def given(tx: Transition, unit: Unit) -> Plain:
    """Return the answers to the questions of a call so far.

    Returns:
        `answers`: key of the question → `{action, content}`. `before`: the data that the call has
        kept with its last question. None: nothing was asked.
    """
    return answer_about(tx, (unit["id"], _GIVEN))


def forget(tx: Transition, unit: Unit) -> None:
    """Remove the answers, because another call is made or the same one again."""
    if given(tx, unit) is not None:
        take_back_answer(tx, (unit["id"], _GIVEN))


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Close a question, and make the call again with the answer."""
    [number] = wait["units"]
    unit = tx.state["units"][number]
    output = answer(tx.state["execution"]["id"], wait["record"], decision, tx.now)
    start_hits_anew(tx, wait, unit)
    unit["asks"].remove(wait["id"])
    kept: Any = given(tx, unit)
    reply = {"action": output["choice"] or "cancel", "by": output["by"], "at": output["at"]}
    if output["approved"] and output["form"] is not None:
        reply["content"] = output["form"]
    answers = {**kept["answers"], kept["key"]: reply}
    keep_answer(tx, (unit["id"], _GIVEN), {**kept, "answers": answers})
    close_question(tx, wait, how, output)
    move(unit, "ready")
    unpark(tx, unit)
    tx.agenda.append(entries.attempt(unit["id"]))
