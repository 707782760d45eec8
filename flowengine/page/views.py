"""The data of each view of the page, from the functions that answer the API."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from flowengine.drawing.data import statuses_of
from flowengine.drawing.picture import draw
from flowengine.drawing.svg import svg
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotAllowed
from flowengine.kernel.notation.times import parse_time
from flowengine.page.decision_forms import entered, fields_of
from flowengine.page.folds import Folds
from flowengine.server import approvals, executions
from flowengine.server.calls import Call
from flowengine.server.models import (
    DecisionBody,
    DelegateBody,
    ExecutionsQuery,
    Query,
    ShowQuery,
    WaitsQuery,
)
from flowengine.server.problems import status_of
from flowengine.server.rights import Right
from flowengine.yaml_text import inline

LIMIT = 50
"""Entries of a list in one view."""
_FITS = (1100, 640)
"""Size in pixels of the largest graph that is open when the page is."""
_MOST_FAILURES = 20
"""Failed steps above the list of all steps."""
_KINDS = ("approval", "ask", "question", "signal", "timer", "state")
_PARTICIPLES = {"approve": "approved", "reject": "rejected", "answer": "answered"}
_MOST_WAITS = 3
"""Waits of an execution in the list."""
STATUSES = (
    *("recorded", "running", "interrupted", "waiting"),
    *("stalled", "succeeded", "failed", "cancelled"),
)


class View(NamedTuple):
    """A template with its data, or the path of another view."""

    template: str
    context: dict[str, Any]
    status: int = 200
    redirect: str | None = None


def list_executions(call: Call, given: dict[str, str]) -> View:
    """Show executions, newest first."""
    filters = {name: given[name] for name in ("flow", "status") if given.get(name)}
    query = _query(ExecutionsQuery, {**filters, "after": given.get("after") or None})
    page = executions.list_executions(call._replace(query=query))
    waits = {
        item["execution"]: _awaited(call, item["execution"])
        for item in page["items"]
        if item["status"] not in ENDED
    }
    context = {"page": page, "filters": filters, "statuses": STATUSES, "waits": waits}
    return View("executions.html", context)


def show_execution(call: Call, given: dict[str, str]) -> View:
    """Show one execution: its waits, failures, graph and steps, or the steps of one fold."""
    info = executions.show_execution(call._replace(query=ShowQuery.model_validate({})))
    flow = call.engine.flow_of(info["execution"])
    steps = info["steps"]
    picture = draw(flow.compiled, statuses_of(steps))
    drawing = svg(picture, "graph_")
    has_ended = info["status"] in ENDED
    reasons = [] if has_ended else executions.why(call)["items"]
    waits = {wait["id"]: wait for wait in info["waits"]}
    failures = [step for step in steps if step["status"] == "failed"]
    start = given.get("from", "")
    level = Folds(steps).level(
        given.get("at", ""), int(start) if re.fullmatch("[0-9]{1,9}", start) else 0
    )
    return View(
        "execution.html",
        {
            "info": info,
            "has_ended": has_ended,
            "waits": list(waits.values()),
            "reasons": [one for one in reasons if one.get("wait") not in waits],
            "failures": failures[:_MOST_FAILURES],
            "graph": Markup(drawing.text),  # `svg` escapes every text and every id
            "graph_fits": drawing.width <= _FITS[0] and drawing.height <= _FITS[1],
            "level": level,
            "may_decide": call.may(Right.DECIDE, info["flow"]),
            "sees_content": call.may(Right.CONTENT, info["flow"]),
        },
    )


def list_approvals(call: Call, given: dict[str, str]) -> View:
    """Show the approvals of the user, or of all users, the earliest due first."""
    everyone = given.get("for") == "all"
    query = _query(
        WaitsQuery,
        {
            "after": given.get("after") or None,
            "assignee": None if everyone else "me",
            "status": "closed" if given.get("status") == "closed" else "pending",
        },
    )
    page = approvals.list_approvals(call._replace(query=query))
    items = sorted(page["items"], key=_due_and_since)
    context = {"items": items, "next": page["next"], "everyone": everyone, "status": query.status}
    return View("approvals.html", context)


def _due_and_since(wait: Mapping[str, Any]) -> tuple[float, int]:
    """Return the times of an approval as numbers: as text, whole seconds follow their fractions."""
    due = parse_time(wait["due"]) if "due" in wait else math.inf
    return due, parse_time(wait["since"])


def show_approval(call: Call, given: dict[str, str]) -> View:
    """Show the question, and the form with which it is decided. Opening it decides nothing."""
    return _approval(call, given, None)


def decide(call: Call, given: dict[str, str]) -> View:
    """Decide, and show the decision. A refused form keeps its values."""
    wait: Any = call.engine.wait(call.path["approval"])
    if not call.sees_all_of(wait):
        raise NotAllowed(f"{call.principal.user} may not see this approval")
    try:
        body = DecisionBody.model_validate(entered(wait, given))
        approvals.decide(call._replace(body=body))
    except FlowEngineError as error:
        return _approval(call, given, error)
    return View("", {}, redirect=f"/approvals/{wait['id']}")


def _awaited(call: Call, execution: str) -> list[str]:
    """Return what an execution waits for, in a few words each, the oldest wait first."""
    query = _query(
        WaitsQuery, {"execution": execution, "kind": [*_KINDS], "limit": _MOST_WAITS + 1}
    )
    page = approvals.list_approvals(call._replace(query=query))
    texts = [_in_words(wait) for wait in page["items"]]
    return texts if len(texts) <= _MOST_WAITS else [*texts[:_MOST_WAITS], "and more"]


def _in_words(wait: Any) -> str:
    """Return what a wait is for, in a few words."""
    if wait.get("title"):
        return str(wait["title"])
    names = " or ".join(one["signal"] for one in wait.get("signals", ()))
    return f"{wait['kind']} {names or wait['step']}"


def claim(call: Call, given: dict[str, str]) -> View:
    """Claim an approval, and show its form."""
    return _handed_over(call, given, approvals.claim)


def release(call: Call, given: dict[str, str]) -> View:
    """Release a claimed approval."""
    return _handed_over(call, given, approvals.release)


def delegate(call: Call, given: dict[str, str]) -> View:
    """Delegate an approval to another user."""
    return _handed_over(call, given, _delegate)


def open_approvals(call: Call) -> str:
    """Return how many approvals wait for the user: `3`, or `50+`. Empty: none."""
    page = approvals.list_approvals(call._replace(query=_query(WaitsQuery, {"assignee": "me"})))
    number = len(page["items"])
    return f"{number}+" if page["next"] else str(number or "")


def closed_as(wait: Mapping[str, Any]) -> str:
    """Return how an approval was closed: `approved by user:ben`, `expired`, `withdrawn`."""
    decision, how = wait.get("decision"), str(wait.get("how", "closed"))
    if decision is None or how != "decided":
        return how
    choice = decision.get("choice")
    labels = {one["id"]: one.get("label") for one in wait.get("choices") or ()}
    return f"{_PARTICIPLES.get(choice) or labels.get(choice) or choice} by {decision['by']}"


def _delegate(call: Call) -> Any:
    given = {"to": call.body.get("to", "").strip(), "comment": call.body.get("comment") or None}
    try:
        body = DelegateBody.model_validate(given)
    except ValidationError:
        raise InputError("name the user to whom it is delegated", field="to") from None
    return approvals.delegate(call._replace(body=body))


def _handed_over(call: Call, given: dict[str, str], act: Callable[[Call], Any]) -> View:
    try:
        act(call._replace(body=given))
    except FlowEngineError as error:
        return _approval(call, given, error)
    return View("", {}, redirect=f"/approvals/{call.path['approval']}")


def _query(model: type[Query], given: dict[str, Any]) -> Any:
    """Return the parameters of a list, checked.

    Raises:
        InputError: One is not valid.
    """
    try:
        return model.model_validate({"limit": LIMIT, **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{first['loc'][0]}: {first['msg']}") from None


def _approval(call: Call, given: dict[str, str], error: FlowEngineError | None) -> View:
    wait = approvals.show_approval(call)
    may = wait["status"] == "pending" and call.may(Right.DECIDE, wait["flow"])
    addressed = call.engine.may_answer(wait, call.principal.user)
    fields = [
        field._replace(value=given[field.name]) if field.name in given else field
        for field in fields_of(wait)
    ]
    return View(
        "approval.html",
        {
            "wait": wait,
            "fields": fields,
            "subject": _rows(wait.get("subject")),
            "may_decide": may and addressed,
            "is_held": not wait.get("claim") or wait.get("claimed_by") == call.principal.user,
            "why_not": None if may and addressed else _why_not(call, wait, addressed=addressed),
            "error": error,
            "comment": given.get("comment", ""),
        },
        200 if error is None else status_of(error),
    )


def _why_not(call: Call, wait: Any, *, addressed: bool) -> str:
    if wait["status"] != "pending":
        return "This approval is closed."
    if not call.may(Right.DECIDE, wait["flow"]):
        return f"You lack the right to decide on approvals of the flow {wait['flow']}."
    if not addressed:
        names = ", ".join(wait.get("assignees", ())) or "others"
        return f"This approval is addressed to {names}."
    return ""


def _rows(subject: Any) -> list[tuple[str, str]]:
    """Return the content of an approval, a row for each field."""
    if subject is None:
        return []
    if isinstance(subject, dict):
        return [(str(name), inline(value)) for name, value in subject.items()]
    return [("", inline(subject))]
