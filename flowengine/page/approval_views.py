"""The inbox, and the view in which an approval is decided."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import ValidationError

from flowengine.errors import FlowEngineError, InputError, NotAllowed, NotFound
from flowengine.kernel.notation.times import parse_time
from flowengine.page.choices import decided_rows, effects, in_lines, rows_of, why_not
from flowengine.page.fields import MORE, shown_form
from flowengine.page.forms import GIVES_RESULT, entered, fields_of, files_with
from flowengine.page.looks import now
from flowengine.page.previews import FilePreview, previews
from flowengine.page.view import LIMIT, PageView, waits_in, with_error
from flowengine.sdk.files.file_names import files_in
from flowengine.server import approvals
from flowengine.server.calls import ApiCall, flow_of_wait
from flowengine.server.models import DecisionBody, DelegateBody
from flowengine.server.rights import Right

_ID = re.compile(r"[\w.-]+", re.ASCII)
_NUMBER = re.compile(r"\[\d+\]")
_MOST_OTHERS = 20
"""Other approvals of an execution in the view of one."""
_DAY = 86_400_000
_MOST_COUNTED = 200
"""Open approvals that are counted by flow."""


def list_approvals(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the approvals of the user, or of all users, the earliest due first."""
    filters = filters_of(given)
    page = waits_of(call, filters, given.get("after") or None, LIMIT)
    following = None if page["next"] is None else {**filters, "after": page["next"]}
    return PageView(
        "approvals.html",
        {
            "items": page["items"],
            "next": following,
            "filters": filters,
            "counts": _counts(call, filters, None if given.get("after") else page),
            "claimable": {wait["id"] for wait in page["items"] if _is_claimable(call, wait)},
            "is_live": not given.get("after"),
        },
    )


def waits_of(call: ApiCall, filters: Mapping[str, str], after: str | None, limit: int) -> Any:
    """Return a page of the approvals that fit the filters of the inbox, the earliest due first."""
    return waits_in(
        call,
        after=after,
        limit=limit,
        flow=filters.get("flow"),
        assignee=None if filters.get("for") == "all" else "me",
        status=filters.get("status", "pending"),
        in_turn=True,
        decided_by=filters.get("by"),
    )


def _counts(call: ApiCall, filters: Mapping[str, str], first: Any) -> dict[str, Any] | None:
    """Return how many open approvals each flow has, the most first. None: it lists closed ones.

    `more` is `+` if only the first ones were counted.

    Args:
        call: The request.
        filters: Those of the list.
        first: Its first page, if it was read.
    """
    if "status" in filters:
        return None
    others = {name: value for name, value in filters.items() if name != "flow"}
    read = first if first and others == filters else {"items": [], "next": None}
    items, following = [*read["items"]], read["next"]
    if following or read is not first:
        page = waits_of(call, others, following, _MOST_COUNTED - len(items))
        items, following = items + page["items"], page["next"]
    counts = Counter(wait["flow"] for wait in items)
    if "flow" in filters:
        counts[filters["flow"]] += 0  # the chosen one is shown
    return {"numbers": counts.most_common(), "more": "+" if following else ""}


def in_groups(waits: Iterable[Any]) -> list[tuple[str, list[list[Any]]]]:
    """Return the waits of a list, in its order, below headings by when they are due.

    A day is 24 hours, since the server does not know the reader's zone. Each part of a group is
    one wait, or the questions about several items of a map that one answer fits.
    """

    def group(wait: Any) -> str:
        if wait["status"] == "closed":
            return ""
        left = parse_time(wait["due"]) - now() if wait.get("due") else _DAY
        return "Overdue" if left < 0 else "Within a day" if left < _DAY else "Later"

    return [(name, _alike(items)) for name, items in groupby(waits, group)]


def _alike(waits: Iterable[Any]) -> list[list[Any]]:
    parts: dict[Any, list[Any]] = {}
    for wait in waits:
        is_open = wait["kind"] == "question" and wait["status"] == "pending"
        parts.setdefault(_question(wait) if is_open else wait["id"], []).append(wait)
    return [*parts.values()]


def _question(wait: Any) -> tuple[str, ...]:
    """Return the common parts of the questions about the items of a map."""
    text = str(wait.get("title", "")).replace(wait["address"], "")
    return wait["execution"], _NUMBER.sub("[]", wait["address"]), text


def title_of_all(waits: list[Any]) -> str:
    """Return the title of questions about several items of a map."""
    *_, text = _question(waits[0])
    text = text.replace(" was ", " were ").replace(" it ", " they ")
    return f"{len(waits)} items of {waits[0]['step']}{text}"


def filters_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of the inbox: `for`, `status`, `by` and `flow`, without defaults."""
    pattern = {"for": "all"} if given.get("for") == "all" else {}
    if given.get("status") == "closed":
        pattern["status"] = "closed"
        if given.get("by") == "me":
            pattern["by"] = "me"
    if flow := given.get("flow", "").strip():
        pattern["flow"] = flow
    return pattern


def _is_claimable(call: ApiCall, wait: Any) -> bool:
    """Return whether an approval has to be claimed, and the user may do so."""
    if not wait.get("claim") or wait.get("claimed_by") or wait["status"] != "pending":
        return False
    may = call.may(Right.DECIDE, wait["flow"])
    return may and call.engine.approvals.may_answer(wait, call.principal.user)


def show_approval(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the question, and the form with which it is decided. Opening it decides nothing."""
    before = wait_of(call, given.get("decided", ""))
    return _approval(call, {}, filters_of(given), None, given.get("file", ""), before=before)


def decide(
    call: ApiCall, given: dict[str, str], refused: FlowEngineError | None = None
) -> PageView:
    """Decide, and show the decision. A refused form keeps its values."""
    wait: Any = call.engine.approvals.show(call.path["approval"])
    filters = _filters_sent(given)
    if not call.sees_all_of(wait):
        raise NotAllowed(f"{call.principal.user} is not allowed to see this approval")
    if refused is not None or MORE in given:
        return _approval(call, given, filters, refused)
    try:
        body = DecisionBody.model_validate(entered(wait, given))
        approvals.decide(call._replace(body=body))
    except FlowEngineError as error:
        return _approval(call, given, filters, error)
    if given.get("then") == "conversation":
        return PageView("", {}, redirect=f"/executions/{quote(wait['execution'])}/conversation")
    following = given.get("next", "") if _ID.fullmatch(given.get("next", "")) else wait["id"]
    more = {} if following == wait["id"] else {"decided": wait["id"]}
    return PageView("", {}, redirect=_address(following, {**filters, **more}))


def log_in(call: ApiCall, given: dict[str, str]) -> PageView:
    """Lead the user to the page of an authorization server, for an approval of a login.

    The site adds its address.
    """
    wait: Any = call.engine.approvals.show(call.path["approval"])
    reason = why_not(call, wait)
    if reason or not call.sees_all_of(wait):
        raise NotAllowed(reason or f"{call.principal.user} may not see this approval")
    if not call.engine.approvals.needs_login(wait):
        raise NotFound(f"{wait['id']} waits for no login")
    return PageView("log_in.html", {"wait": wait, "engine": call.engine})


def logged_in(call: ApiCall) -> None:
    """Approve a login that has taken place."""
    body = DecisionBody.model_validate({"choice": "approve"})
    approvals.decide(call._replace(body=body))


def wait_of(call: ApiCall, id: str) -> Any:
    """Return an approval as the user may see it, or None."""
    try:
        flow = flow_of_wait(call.engine, call.principal, id) if _ID.fullmatch(id) else None
    except NotFound:
        flow = None
    return flow and approvals.show_approval(call._replace(path={"approval": flow.id}))


def _filters_sent(given: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of the list from which the user came, as a form sends them."""
    return filters_of(dict(parse_qsl(given.get("list", ""))))


def _address(wait: str, filters: Mapping[str, str]) -> str:
    return f"/approvals/{wait}" + (f"?{urlencode(filters)}" if filters else "")


def claim(call: ApiCall, given: dict[str, str]) -> PageView:
    """Claim an approval, and show its form."""
    return _handed_over(call, given, approvals.claim)


def release(call: ApiCall, given: dict[str, str]) -> PageView:
    """Release a claimed approval."""
    return _handed_over(call, given, approvals.release)


def delegate(call: ApiCall, given: dict[str, str]) -> PageView:
    """Delegate an approval to another user."""
    return _handed_over(call, given, _delegate)


def open_approvals(call: ApiCall) -> str:
    """Return how many approvals wait for the user: `3`, or `50+`. Empty: none."""
    page = waits_in(call, assignee="me")
    number = len(page["items"])
    return f"{number}+" if page["next"] else str(number or "")


def _delegate(call: ApiCall) -> Any:
    to = call.body.get("to", "").strip()
    if to and ":" not in to:
        to = f"user:{to}"  # as the page shows users
    given = {"to": to, "comment": call.body.get("comment") or None}
    try:
        body = DelegateBody.model_validate(given)
    except ValidationError:
        raise InputError("name the user to whom it is delegated", field="to") from None
    return approvals.delegate(call._replace(body=body))


def _handed_over(call: ApiCall, given: dict[str, str], act: Callable[[ApiCall], Any]) -> PageView:
    filters = _filters_sent(given)
    try:
        act(call._replace(body=given))
    except FlowEngineError as error:
        return _approval(call, {}, filters, error, to=given.get("to", ""))
    return PageView("", {}, redirect=_address(call.path["approval"], filters))


def _approval(
    call: ApiCall,
    given: dict[str, str],
    filters: dict[str, str],
    error: FlowEngineError | None,
    file: str = "",
    to: str = "",
    before: Any = None,
) -> PageView:
    """Show an approval.

    Args:
        call: The request.
        given: The fields of its form, as submitted.
        filters: Those of the list from which the user came.
        error: Why the form was refused.
        file: The digest of the file to read.
        to: The user to whom it could not be delegated.
        before: The approval that the user has decided right before.
    """
    wait = approvals.show_approval(call)
    reason = why_not(call, wait)
    page = waits_of(call, filters, None, LIMIT)
    ids = [item["id"] for item in page["items"]]
    place = ids.index(wait["id"]) + 1 if wait["id"] in ids else 0
    fields = fields_of(wait, given)
    others = _others(call, wait)
    is_held = not wait.get("claim") or wait.get("claimed_by") == call.principal.user
    in_form = [field for field in fields if field.name.startswith("edit.")]
    shown = {(field.key, field.original) for field in in_form if is_held and not reason}
    return with_error(
        "approval.html",
        {
            "wait": wait,
            "items": page["items"],
            "following": page["next"],
            "counts": _counts(call, filters, page),
            "next_id": ids[place] if place < len(ids) else "",
            **shown_form(fields, error, given),
            "results": GIVES_RESULT,
            "chosen": given.get("choice", ""),
            "files_with": files_with(wait, given),
            "subject": [row for row in rows_of(wait.get("subject")) if row not in shown],
            "decided": decided_rows(wait),
            "found": rows_of((wait.get("found") or {}).get("target")),
            "needs_login": call.engine.approvals.needs_login(wait),
            "may_decide": not reason,
            "sees_content": call.may(Right.CONTENT, wait["flow"]),
            "is_held": is_held,
            "why_not": reason,
            "others": others,
            "made_call": _made_call(call, wait),
            "alike": next((part for part in _alike([wait, *others]) if wait in part), [wait]),
            "files": _files(call, wait, file),
            "effects": effects(call.engine.executions.flow_of(wait["execution"]).compiled, wait),
            "filters": filters,
            "is_again": bool(given),
            "to": to,
            "before": before,
            "comment": given.get("comment", ""),
        },
        error,
    )


def _made_call(call: ApiCall, wait: Any) -> dict[str, Any] | None:
    """Return the state of a decided call, with its result if the user may see it."""
    if wait["status"] == "pending" or not wait.get("tool"):
        return None
    try:
        [step] = call.engine.executions.show(wait["execution"], step=wait["address"])["steps"]
    except NotFound:
        return None
    error, output = step.get("error"), step.get("output")
    text = error["message"] if error else step.get("summary") or in_lines(output)
    is_shown = "ended_at" in step and call.may(Right.CONTENT, wait["flow"])
    return {**step, "text": text if is_shown else ""}


def _files(call: ApiCall, wait: Any, wanted: str) -> list[FilePreview]:
    """Return the files of an approval, for those who may download them."""
    if not call.may(Right.CONTENT, wait["flow"]):
        return []
    of_execution = call._replace(path={"execution": wait["execution"]})
    return previews(of_execution, files_in([wait.get("attachments"), wait.get("subject")]), wanted)


def _others(call: ApiCall, wait: Any) -> list[Any]:
    """Return the other open approvals of the same execution, the oldest first."""
    items = waits_in(call, execution=wait["execution"], limit=_MOST_OTHERS + 1)["items"]
    return [item for item in items if item["id"] != wait["id"]][:_MOST_OTHERS]
