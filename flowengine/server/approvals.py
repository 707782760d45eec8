"""The routes of approvals and questions."""

from __future__ import annotations

from typing import Any

from flowengine.engines.infos import LISTED
from flowengine.errors import Conflict, FlowEngineError
from flowengine.server.calls import (
    ApiCall,
    flow_of_execution,
    flow_of_wait,
    shown_wait,
    visible_page,
)
from flowengine.server.problems import problem_of, status_of
from flowengine.server.rights import Right
from flowengine.server.sent_values import attached, sent_edits, sent_values, uploads_of


def list_approvals(call: ApiCall) -> Any:
    """List waits: oldest first, in the order in which they are due, or closed ones newest first."""
    query = call.query
    execution = query.execution
    if execution is not None:
        execution = flow_of_execution(call.engine, call.principal, execution).id
    assignee = call.principal.user if query.assignee == "me" else query.assignee

    def read(limit: int, after: str | None) -> Any:
        return call.engine.approvals.list(
            flow=query.flow,
            execution=execution,
            assignee=assignee,
            batch=query.batch,
            status=query.status,
            in_turn=query.in_turn,
            kinds=query.kind or LISTED,
            limit=limit,
            after=after,
        )

    def is_shown(wait: Any) -> bool:
        if query.batch is not None and not call.sees_all_of(wait):
            return False
        decides = query.assignee != "me" or wait["status"] != "pending"
        if query.decided_by == "me":
            decided = [wait.get("decision") or {}, *(wait.get("votes") or ())]
            if all(one.get("by") != call.principal.user for one in decided):
                return False
        return call.may(Right.SEE, wait["flow"]) and (
            decides or call.may(Right.DECIDE, wait["flow"])
        )

    page = visible_page(read, is_shown, query.limit, query.after)
    return {**page, "items": [shown_wait(call, wait) for wait in page["items"]]}


def show_approval(call: ApiCall) -> Any:
    """Show a wait, open or closed."""
    return shown_wait(call, call.engine.approvals.show(call.path["approval"]))


def decide(call: ApiCall) -> Any:
    """Decide on an approval, or answer a question. The first decision counts."""
    return _decide(call, call.path["approval"], call.body)


def decide_many(call: ApiCall) -> Any:
    """Decide on several approvals. Each has its own result, with the status of a single one."""
    results = []
    for decision in call.body.decisions:
        result: dict[str, Any] = {"wait": decision.wait, "status": 200}
        try:
            call.need(Right.DECIDE, flow_of_wait(call.engine, call.principal, decision.wait).flow)
            result["decision"] = _decide(call, decision.wait, decision)
        except FlowEngineError as error:
            result["status"] = status_of(error)
            result["problem"] = problem_of(error)
        results.append(result)
    return {"results": results}


def claim(call: ApiCall) -> Any:
    """Claim an approval that has to be claimed before it is decided."""
    return shown_wait(call, call.engine.approvals.claim(call.path["approval"]))


def release(call: ApiCall) -> Any:
    """Release a claimed approval."""
    return shown_wait(call, call.engine.approvals.release(call.path["approval"]))


def delegate(call: ApiCall) -> Any:
    """Delegate an approval to another user."""
    body = call.body
    return shown_wait(
        call, call.engine.approvals.delegate(call.path["approval"], body.to, comment=body.comment)
    )


def _decide(call: ApiCall, id: str, body: Any) -> dict[str, Any]:
    wait: Any = call.engine.approvals.show(id)
    if not call.sees_all_of(wait):
        call.engine.approvals.decide(
            id, body.choice, resume=False
        )  # refuses, and notes it in the journal
        raise Conflict(f"{id} was already decided")
    uploads = uploads_of(call)
    answer: dict[str, Any] = {"resume": False}
    if body.form is not None:
        form = wait.get("form") or {}
        fields = form.get("properties", {})
        answer["form"] = sent_values(uploads, fields, body.form, "form field", form)
    if body.edit is not None:
        answer["edit"] = sent_edits(uploads, wait, body.edit)
    if body.comment is not None:
        answer["comment"] = body.comment
    if "value" in body.model_fields_set:
        schemas, given = {"value": wait.get("returns")}, {"value": body.value}
        answer |= sent_values(uploads, schemas, given, "result's")
    if body.grant is not None:
        answer["grant"] = body.grant.model_dump(exclude_none=True)
    uploaded = [image for image in body.images if not image.startswith("data:")]
    with attached(call, [*body.attach, *uploaded]) as paths:
        images = dict(zip(uploaded, paths[len(body.attach) :], strict=True))
        decision = call.engine.approvals.decide(
            id,
            body.choice,
            **answer,
            images=[images.get(image, image) for image in body.images],
            attach=paths[: len(body.attach)],
        )
    return decision.data
