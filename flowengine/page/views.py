"""The lists of executions and approvals, and the view in which an approval is decided."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from flowengine.engines.reading import STATUSES
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotAllowed, NotFound, UsageError
from flowengine.kernel.notation.times import parse_time
from flowengine.page.forms import entered, fields_of
from flowengine.page.view import View, checked_query
from flowengine.server import approvals, executions
from flowengine.server.calls import Call
from flowengine.server.models import (
    DecisionBody,
    DelegateBody,
    ExecutionsQuery,
    WaitsQuery,
)
from flowengine.server.problems import status_of
from flowengine.server.rights import Right
from flowengine.yaml_text import inline

_FILTERS = ("flow", "status", "label", "since", "for")
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KINDS = ("approval", "ask", "question", "signal", "timer", "state")
_PARTICIPLES = {"approve": "approved", "reject": "rejected", "answer": "answered"}
_MOST_WAITS = 3
"""Waits of an execution in the list."""


def list_executions(call: Call, given: dict[str, str]) -> View:
    """Show executions, newest first, or the one whose id begins with the text to search for."""
    sought = given.get("id", "").strip()
    found = _sought(call, sought) if sought else None
    if found is not None:
        return View("", {}, redirect=f"/executions/{found}")
    filters = {name: given[name] for name in _FILTERS if given.get(name)}
    page = {"items": [], "next": None} if sought else _listed(call, filters, given.get("after"))
    waits = {
        item["execution"]: _awaited(call, item["execution"])
        for item in page["items"]
        if item["status"] not in ENDED
    }
    context = {"page": page, "filters": filters, "statuses": STATUSES, "waits": waits}
    is_live = not (given.get("after") or sought)
    return View("executions.html", {**context, "sought": sought, "is_live": is_live})


def _listed(call: Call, filters: dict[str, str], after: str | None) -> Any:
    """Return a page of executions: all, or those with an approval for the user, oldest first."""
    if filters.get("for") == "me":
        query = checked_query(
            WaitsQuery, {"assignee": "me", "flow": filters.get("flow"), "after": after or None}
        )
        waits = approvals.list_approvals(call._replace(query=query))
        ids = dict.fromkeys(wait["execution"] for wait in waits["items"])
        items = [call.engine.summary(id) for id in ids]
        return {"items": [one for one in items if _fits(one, filters)], "next": waits["next"]}
    wanted: dict[str, Any] = {"after": after or None}
    wanted |= {name: filters[name] for name in ("flow", "status") if name in filters}
    if "label" in filters:
        wanted["label"] = [filters["label"]]
    if "since" in filters:
        wanted["since"] = _day(filters["since"])
    query = checked_query(ExecutionsQuery, wanted)
    return executions.list_executions(call._replace(query=query))


def _fits(item: Any, filters: dict[str, str]) -> bool:
    """Return whether an execution with an approval for the user fits the other filters."""
    name, _, value = filters.get("label", "").partition("=")
    return (
        filters.get("status", item["status"]) == item["status"]
        and ("label" not in filters or item["labels"].get(name) == value)
        and ("since" not in filters or item["started_at"] >= _day(filters["since"]))
    )


def _day(text: str) -> str:
    """Return the start of a day in UTC. A full time is unchanged."""
    return f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text


def _sought(call: Call, beginning: str) -> str | None:
    """Return the id of the only execution that begins so, if the user may see it."""
    try:
        found = call.engine.summary(beginning)
    except (NotFound, UsageError):
        return None
    return found["execution"] if call.may(Right.SEE, found["flow"]) else None


def list_approvals(call: Call, given: dict[str, str]) -> View:
    """Show the approvals of the user, or of all users, the earliest due first."""
    everyone = given.get("for") == "all"
    query = checked_query(
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
    context["is_live"] = not given.get("after")
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
    query = checked_query(
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
    page = approvals.list_approvals(
        call._replace(query=checked_query(WaitsQuery, {"assignee": "me"}))
    )
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
            "hint": None if error is None else error.hint_for("page"),
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
