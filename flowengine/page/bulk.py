"""How operators change the course of executions on the page, of one or of many at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from flowengine.engines.infos import InterventionPlan, shown_title
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotAllowed, NotFound, UsageError
from flowengine.page.approval_views import filters_of, wait_of, waits_of
from flowengine.page.choices import closed_as, rows_of
from flowengine.page.choices import why_not as why_not_decided
from flowengine.page.execution_list import filters_in, listed
from flowengine.page.execution_views import frame
from flowengine.page.fields import MORE, shown_form
from flowengine.page.forms import GIVES_RESULT, changes_in, inputs_of
from flowengine.page.overview import grouped
from flowengine.page.view import Noted, PageView, checked, with_error
from flowengine.server import approvals, executions
from flowengine.server.calls import ApiCall, flow_of_execution, flow_of_wait
from flowengine.server.models import MOST_DECISIONS, CancelBody, DecisionBody, ForkBody, RetryBody
from flowengine.server.problems import status_of
from flowengine.server.redaction import hidden_keys
from flowengine.server.rights import Right

# Many executions cancelled or retried at once, and many approvals decided.
#
# A first view, which changes nothing, lists what would happen to each. Its form sends the listed
# ones by name, so that nothing else is changed, and each has its own result.

MOST = MOST_DECISIONS
"""Executions or approvals of one request."""
_LONGEST = 300
"""Characters of the content of an approval."""
_PICKED = "pick."
_ALL = "all"
_MOST_PLANNED = 20
"""Executions for which the preview has the numbers of steps."""
_Text = Callable[[str], str]
"""Returns a text about the object of an id."""
_HIDDEN = "there is none that you may see"


class PlannedOperation(NamedTuple):
    """The effect that a bulk operation would have on one execution or approval."""

    id: str
    flow: str
    title: str
    status: str
    address: str
    about: str
    """The beginning of its content."""
    why_not: str
    """Why nothing happens to it. Empty: it is changed."""


def plan_executions(call: ApiCall, given: dict[str, str]) -> PageView:
    """Preview the effect of a bulk action on each chosen execution. Nothing changes."""
    do, ids = _do(given), _picked(given)
    more = False
    if _ALL in given:
        page = listed(call, filters_in(given), None, MOST)
        ids, more = [item["execution"] for item in page["items"]], page["next"] is not None
    items = [_execution(call, do, id, is_planned=len(ids) <= _MOST_PLANNED) for id in ids]
    context = {"items": items, "do": do, "more": more, "most": MOST}
    return PageView("bulk_executions.html", context)


def change_executions(call: ApiCall, given: dict[str, str]) -> PageView:
    """Cancel or retry executions, and report what happened to each."""
    do, reason = _do(given), given.get("reason", "")

    def change(id: str) -> str:
        flow = flow_of_execution(call.engine, call.principal, id)
        call.need(Right.OPERATE, flow.flow)
        of_call = call._replace(path={"execution": flow.id}, flow=flow.flow)
        if do == "cancel":
            executions.cancel(of_call._replace(body=checked(CancelBody, {"reason": reason})))
            return "is cancelled"
        executions.retry(of_call._replace(body=checked(RetryBody, {"repeat_once": True})))
        return "is retried"

    def title(id: str) -> str:
        return _execution(call, do, id, is_planned=False).title

    return _results(_picked(given), "executions", do, change, title)


def plan_approvals(call: ApiCall, given: dict[str, str]) -> PageView:
    """Preview the effect of a choice on each chosen approval. Nothing is decided."""
    choice, ids, more = given.get("choice", ""), _picked(given), False
    if _ALL in given:
        page = waits_of(call, filters_of(given), None, MOST)
        ids, more = [wait["id"] for wait in page["items"]], page["next"] is not None
    waits = [(id, wait_of(call, id)) for id in ids]
    choices: dict[str, str] = {}
    for _, wait in waits:
        for item in (wait or {}).get("choices") or ():
            if item["id"] not in GIVES_RESULT:
                choices.setdefault(item["id"], item.get("label") or item["id"])
    items = [_approval(call, id, wait, choice) for id, wait in waits]
    context = {"items": items, "choice": choice, "choices": choices, "more": more, "most": MOST}
    return PageView("bulk_approvals.html", context)


def decide_approvals(call: ApiCall, given: dict[str, str]) -> PageView:
    """Decide approvals with one choice, and report what happened to each."""
    comment = given.get("comment", "").strip() or None
    body = checked(DecisionBody, {"choice": given.get("choice", ""), "comment": comment})

    def decide(id: str) -> str:
        flow = flow_of_wait(call.engine, call.principal, id)
        call.need(Right.DECIDE, flow.flow)
        approvals.decide(call._replace(path={"approval": flow.id}, flow=flow.flow, body=body))
        return closed_as(approvals.show_approval(call._replace(path={"approval": flow.id})))

    def title(id: str) -> str:
        return _approval(call, id, wait_of(call, id), "").title

    return _results(_picked(given), "approvals", "decide", decide, title)


def _results(ids: Iterable[str], what: str, do: str, act: _Text, title: _Text) -> PageView:
    """Return the results of an action, which is recorded for each object by itself."""
    items: list[dict[str, Any]] = []
    noted: list[Noted] = []
    for id in ids:
        path = f"/{what}/{quote(id)}"
        item = {"id": id, "title": title(id), "address": path, "done": True, "text": "", "hint": ""}
        try:
            item["text"] = act(id)
            noted.append(Noted(f"{path}/{do}", 202, None))
        except FlowEngineError as error:
            text = error.message.removeprefix(f"{id} ")
            item |= {"done": False, "text": text, "hint": error.hint_for("page") or ""}
            noted.append(Noted(f"{path}/{do}", status_of(error), error.message))
        items.append(item)
    back = f"/{what}"
    context = {"items": items, "do": do, "what": what, "back": back}
    return PageView("bulk_results.html", context, is_kept=True, noted=tuple(noted))


def _execution(call: ApiCall, do: Any, id: str, *, is_planned: bool) -> PlannedOperation:
    """Return what would happen to an execution, with the numbers of its steps if it is planned."""
    try:
        flow = flow_of_execution(call.engine, call.principal, id)
    except NotFound:
        return PlannedOperation(id, "", "", "", "", "", _HIDDEN)
    item = call.engine.executions.summary(flow.id)
    status, why_not, about = item["status"], "", ""
    title = shown_title(item) if call.may(Right.CONTENT, flow.flow) else flow.flow
    if not call.may(Right.OPERATE, flow.flow):
        why_not = f"you do not have the right to operate the flow {flow.flow}"
    elif do == "cancel" and status in ENDED:
        why_not = "it has ended"
    elif do == "retry" and status != "failed":
        why_not = "it has not failed"
    elif is_planned:
        try:
            plan = call.engine.executions.plan(flow.id, do)
            twice = sum(effect == "once" for effect in plan.again.values())
            parts = (
                (len(plan.again), "run again"),
                (twice, "may take effect twice"),
                (len(plan.stopped), "stopped"),
                (len(plan.undone), "compensated"),
                (len(plan.cleanup), "clean up"),
            )
            about = ", ".join(f"{number} {what}" for number, what in parts if number)
        except FlowEngineError as error:
            why_not = error.message
    return PlannedOperation(
        flow.id, flow.flow, title, status, f"/executions/{quote(flow.id)}", about, why_not
    )


def _approval(call: ApiCall, id: str, wait: Any, choice: str) -> PlannedOperation:
    if wait is None:
        return PlannedOperation(id, "", "", "", "", "", _HIDDEN)
    address, title = f"/approvals/{wait['id']}", wait.get("title") or wait["kind"]
    status = closed_as(wait) if wait["status"] == "closed" else wait["status"]
    why_not = why_not_decided(call, wait) or _why_not_chosen(call, wait, choice)
    parts = [f"{name}: {text}" if name else text for name, text in rows_of(wait.get("subject"))]
    about = ", ".join(parts)[:_LONGEST]
    return PlannedOperation(wait["id"], wait["flow"], title, status, address, about, why_not)


def _why_not_chosen(call: ApiCall, wait: Mapping[str, Any], choice: str) -> str:
    """Return why a choice cannot decide an approval. Empty: it can, or none is chosen yet."""
    chosen = {item["id"]: item for item in wait.get("choices") or ()}.get(choice)
    if wait.get("claim") and wait.get("claimed_by") != call.principal.user:
        return f"It is claimed by {wait['claimed_by']}." if wait.get("claimed_by") else "Claim it."
    if not choice:
        return ""
    if chosen is None:
        return "It has no such choice."
    if choice in GIVES_RESULT:
        return "Its result has to be entered."
    form = wait.get("form") or {}
    has_required = form and (form.get("required") or "properties" not in form)
    if has_required and chosen.get("counts_as") == "approve":
        return "Its form has to be filled in."
    return ""


def _do(given: Mapping[str, str]) -> str:
    do = given.get("do", "")
    if do in ("cancel", "retry"):
        return do
    raise UsageError("unknown action", hint="cancel or retry")


def _picked(given: Mapping[str, str]) -> list[str]:
    """Return the ids of the chosen objects.

    Raises:
        NotAllowed: They are too many.
    """
    ids = [name.removeprefix(_PICKED) for name in given if name.startswith(_PICKED)]
    if len(ids) > MOST:
        raise NotAllowed(f"{len(ids)} are too many at once", hint=f"choose at most {MOST}")
    return ids


# How operators change the course of an execution on the page: retry, fork and cancel it.


def show_retry(call: ApiCall, given: dict[str, str]) -> PageView:
    """Preview a retry of all failures, of those with one cause, or of those in one step."""
    steps = [given["at"]] if "at" in given else []
    if "cause" in given:
        failures = grouped(executions.shown_folds(call)[1].failures()[0])
        steps = next((one.addresses for one in failures if one.id == given["cause"]), [])
        if not steps:
            raise NotFound("these steps have not failed", hint="open the execution again")
    failed = [executions.known_address(call, step) for step in steps]
    plan = call.engine.executions.plan(call.path["execution"], "retry", step=failed)
    return _intervention(call, "retry", plan, steps=json.dumps(steps), step=given.get("at", ""))


def retry(call: ApiCall, given: dict[str, str]) -> PageView:
    """Record a retry of what failed in an execution, and show it."""
    try:
        steps = json.loads(given.get("steps") or "null")
    except ValueError:
        raise InputError("the steps of the form cannot be read", hint="open it again") from None
    # The preview has named the calls that are repeated.
    body = checked(RetryBody, {"step": steps or None, "repeat_once": True})
    return _shown(executions.retry(call._replace(body=body)))


def show_fork(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the form of a fork: its effects, the state before the step, and other versions."""
    step = given.get("at", "")
    return _fork(call, step, _plan_of(call, step), {}, None)


def fork(call: ApiCall, given: dict[str, str], refused: FlowEngineError | None = None) -> PageView:
    """Record a fork that begins where a step started, and show it. A refused form stays."""
    step = given.get("from_step", "")
    plan = _plan_of(call, step)
    if refused is not None or MORE in given:
        return _fork(call, step, plan, given, refused)
    try:
        schemas, known = _state(call, step, plan)
        fields = {"from_step": step, "set": changes_in(schemas, known, given)}
        body = checked(ForkBody, {**fields, "flow": given.get("flow") or None})
        return _shown(executions.fork(call._replace(body=body)))
    except FlowEngineError as error:
        return _fork(call, step, plan, given, error)


def _fork(
    call: ApiCall,
    step: str,
    plan: InterventionPlan,
    given: dict[str, str],
    error: FlowEngineError | None,
) -> PageView:
    schemas, known = _state(call, step, plan)
    versions = call.engine.flows.versions(call.flow)
    fields = inputs_of(schemas, known, given, group="set", optional=True)
    form = {**shown_form(fields, error, given), "flow": given.get("flow", "")}
    return _intervention(call, "fork", plan, error, step=step, versions=versions, **form)


def _plan_of(call: ApiCall, step: str) -> InterventionPlan:
    known = executions.known_address(call, step)
    return call.engine.executions.plan(call.path["execution"], "fork", step=known)


def _state(call: ApiCall, step: str, plan: InterventionPlan) -> tuple[dict[str, Any], Any]:
    """Return name → JSON Schema of the state of an execution's flow, and its values.

    They are those right before a step. Users without the right to see content receive none.
    """
    known = executions.known_address(call, step)
    flow = call.engine.executions.flow_of(call.path["execution"], step=known)
    schemas = executions.schemas(flow.compiled, "state")
    return schemas, plan.state if call.may(Right.CONTENT, call.flow) else {}


def show_cancel(call: ApiCall, given: dict[str, str]) -> PageView:
    """Preview a cancellation."""
    plan = call.engine.executions.plan(call.path["execution"], "cancel")
    return _intervention(call, "cancel", plan, step="")


def cancel(call: ApiCall, given: dict[str, str]) -> PageView:
    """Request that an execution is cancelled, and show it."""
    body = checked(CancelBody, {"reason": given.get("reason", "")})
    return _shown(executions.cancel(call._replace(body=body)))


def _intervention(
    call: ApiCall,
    do: str,
    plan: InterventionPlan,
    error: FlowEngineError | None = None,
    **form: Any,
) -> PageView:
    """Return the view that previews an intervention and asks for confirmation."""
    if not call.may(Right.CONTENT, call.flow):
        plan = InterventionPlan(*(hidden_keys(part, call.path["execution"]) for part in plan))
    groups: dict[str, list[str]] = {"once": [], "safe": [], "other": []}
    for address, effect in plan.again.items():
        groups["once" if effect == "once" else "safe" if effect else "other"].append(address)
    head = call.engine.executions.summary(call.path["execution"])
    shown = {**frame(call, head), "do": do, "plan": plan, "groups": groups, **form}
    return with_error("intervention.html", shown, error)


def _shown(answer: dict[str, Any]) -> PageView:
    return PageView("", {}, redirect=f"/executions/{answer['execution']}")
