"""The routes of executions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from flowengine.drawing.data import drawn, node_link, statuses_of
from flowengine.engines.folds import Folds
from flowengine.engines.infos import ExecutionInfo, Reason, is_found_by
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.kernel.notation.addresses import DERIVED, NOTIFIES
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import (
    ApiCall,
    deployed_flow,
    flow_of_execution,
    labels_of,
    moment,
    shown_wait,
    visible_page,
)
from flowengine.server.redaction import (
    reason_without_content,
    reason_without_others,
    without_content,
    without_keys,
)
from flowengine.server.rights import Right
from flowengine.server.sent_values import sent_values, uploads_of

ENGINE_LABELS = frozenset({"session", "task", "tool", "chat"})
"""Labels by which the engine finds executions: of sessions, of tool environments, of chats."""
OPERATOR_LABELS = frozenset({"model", "traceparent"})
"""Labels that change how an execution runs: the model of its agents, the trace of its spans."""


def list_executions(call: ApiCall, *, notifications: bool = True) -> Any:
    """List executions, newest first.

    Args:
        call: The request.
        notifications: Whether those that send notifications are among them.
    """
    query = call.query

    def read(limit: int, after: str | None) -> Any:
        return call.engine.executions.list(
            flow=query.flow,
            status=query.status,
            labels=labels_of(query.label),
            since=None if query.since is None else moment(query.since),
            search=query.search,
            limit=limit,
            after=after,
        )

    def is_shown(item: Any) -> bool:
        is_wanted = notifications or not item["flow"].startswith(NOTIFIES)
        return is_wanted and _is_listed(call, item)

    page = visible_page(read, is_shown, query.limit, query.after)
    return {**page, "items": [shown_execution(call, item) for item in page["items"]]}


def _is_listed(call: ApiCall, item: Mapping[str, Any]) -> bool:
    """Return whether the user may see an execution in a list.

    A search covers only data that the user may see: without `content` by id, flow and labels.
    """
    flow, search = item["flow"], call.query.search
    if not call.may(Right.SEE, flow):
        return False
    if not search or search.isspace() or call.may(Right.CONTENT, flow):
        return True
    return is_found_by(without_content(item), search)


def count_executions(call: ApiCall) -> Any:
    """Count the executions of the flows that the user may see, by status."""
    flow = call.query.flow
    if flow is None and call.may(Right.SEE, ""):
        return {"counts": call.engine.executions.counts()}
    flows = {item["flow"] for item in call.engine.flows.versions()} if flow is None else {flow}
    seen = [id for id in sorted(flows) if call.may(Right.SEE, id)]
    return {"counts": call.engine.store.counts(seen)}


def _is_seen(call: ApiCall, execution: str) -> bool:
    try:
        return call.may(Right.SEE, call.engine.store.execution(execution).flow)
    except NotFound:
        return False


def start_execution(call: ApiCall) -> Any:
    """Record a new execution. The process that drives the store's executions begins it."""
    body = call.body
    flow = deployed_flow(call, body.flow, Right.START)
    _check_chosen(call, flow.id, body)
    inputs = sent_values(uploads_of(call), flow.inputs, body.inputs, "input")
    id = call.engine.start(flow, inputs, id=body.id or call.seed, labels=body.labels)
    if body.id is not None:
        record = call.engine.store.execution(id)
        is_own = record.started_by == call.principal.user
        if not is_own and not call.may(Right.CONTENT, record.flow):
            raise Conflict(f"the id {id} is taken")  # of another user, perhaps with these inputs
    return {"execution": id}


def _check_chosen(call: ApiCall, flow: str, body: Any) -> None:
    """Check that the id and the labels of a new execution are not those that the engine reads.

    Raises:
        InputError: They are.
        NotAllowed: The user does not have the right to choose them.
    """
    if body.id is not None and re.fullmatch(DERIVED, body.id):
        raise InputError(
            f"ids such as {body.id!r} are those of executions that the engine starts",
            field="id",
            hint="choose an id of another form, or none",
        )
    labels = body.labels or {}
    if kept := labels.keys() & ENGINE_LABELS:
        raise InputError(
            f"the label '{min(kept)}' is set by the engine",
            field="labels",
            hint="choose another name",
        )
    if labels.keys() & OPERATOR_LABELS:
        call.need(Right.OPERATE, flow)


def show_execution(call: ApiCall) -> Any:
    """Show an execution: status, steps, waits, and with the right `content` all data."""
    query, id = call.query, call.path["execution"]
    info: Mapping[str, Any]
    if query.brief:
        result = call.engine.executions.result(id)._asdict()
        due = result.pop("due")
        info = result if due is None else {**result, "due": format_time(due)}
    else:
        step = None if query.step is None else known_address(call, query.step)
        only = query.model_dump(include={"status", "kind", "sort", "limit"})
        info = call.engine.executions.show(id, step=step, **only)
    return shown_execution(call, info)


def shown_execution(call: ApiCall, info: Mapping[str, Any]) -> Any:
    """Return an execution as the user may see it."""
    for name in ("parent", "forked_from") if not call.may(Right.SEE, "") else ():
        other = (info.get(name) or "").partition(" ")[0]
        if other and not _is_seen(call, other):
            info = {**info, name: None}
    if call.may(Right.CONTENT, info["flow"]):
        return info
    shown = without_content(info)
    if "waits" in info:
        shown["waits"] = [shown_wait(call, wait) for wait in info["waits"]]
    return shown


def why(call: ApiCall) -> Any:
    """Return why an execution makes no progress: a reason for each live branch."""
    reasons: Any = call.engine.executions.why(call.path["execution"])
    if not call.may(Right.SEE, ""):
        reasons = [reason_without_others(reason) for reason in reasons]
    if call.may(Right.CONTENT, call.flow):
        return {"items": reasons}

    def shown(reason: Reason) -> Any:
        asks = "wait" in reason and call.sees_all_of(call.engine.approvals.show(reason["wait"]))
        return reason if asks else reason_without_content(reason, call.path["execution"])

    return {"items": [shown(reason) for reason in reasons]}


def cancel(call: ApiCall) -> Any:
    """Request that an execution is cancelled."""
    body = call.body
    id = call.path["execution"]
    step = None if body.step is None else known_address(call, body.step)
    call.engine.executions.cancel(id, reason=body.reason, now=body.now, step=step, resume=False)
    return {"execution": id}


def retry(call: ApiCall) -> Any:
    """Record a retry of what failed. The process that drives the store's executions continues."""
    body = call.body
    flow = None if body.flow is None else deployed_flow(call, body.flow, Right.OPERATE)
    given = [body.step] if isinstance(body.step, str) else body.step
    result = call.engine.executions.retry(
        call.path["execution"],
        step=given and [known_address(call, step) for step in given],
        flow=flow,
        repeat_once=body.repeat_once,
        resume=False,
    )
    return {"execution": result.execution}


def fork(call: ApiCall) -> Any:
    """Record a new execution that begins where a step of this one started."""
    body, old = call.body, call.path["execution"]
    changed = None if body.flow is None else deployed_flow(call, body.flow, Right.OPERATE)
    from_step = known_address(call, body.from_step)
    flow = changed or call.engine.executions.flow_of(old, step=from_step)
    _check_chosen(call, flow.id, body)
    given = sent_values(uploads_of(call), schemas(flow.compiled, "state"), body.set, "state")
    if body.id is None and call.seed is not None:
        with suppress(NotFound):  # by this request, before the server was killed
            return {"execution": call.engine.store.execution(call.seed).id}
    result = call.engine.executions.fork(
        old,
        from_step=from_step,
        set=given,
        flow=changed,
        id=body.id or call.seed,
        labels=body.labels,
        resume=False,
    )
    return {"execution": result.execution}


def shown_folds(call: ApiCall) -> tuple[ExecutionInfo, Folds]:
    """Return the execution in the path and the tree of its steps, as the user may see it."""
    whole, folds = call.engine.executions.folds(call.path["execution"])
    if call.may(Right.CONTENT, call.flow):
        return whole, folds
    return whole, folds.renamed(partial(without_keys, execution=whole["execution"]))


def known_address(call: ApiCall, given: str) -> str:
    """Return the address that a user has given, who may know it with digests in place of keys."""
    if call.may(Right.CONTENT, call.flow):
        return given
    id = call.path["execution"]
    shown = without_keys(given, id)
    steps = call.engine.executions.show(id)["steps"]
    known = (step["address"] for step in steps if "[" in shown)
    return next((address for address in known if without_keys(address, id) == given), shown)


def upgrade(call: ApiCall) -> Any:
    """Move an open execution to another version of its flow, or report what would happen."""
    body = call.body
    flow = deployed_flow(call, body.flow, Right.OPERATE)
    mapping = body.mapping
    if isinstance(values := mapping.get("values"), Mapping):
        given = {
            section: sent_values(
                uploads_of(call), schemas(flow.compiled, section), values[section], section
            )
            for section in ("inputs", "state")
            if section in values
        }
        mapping = {**mapping, "values": {**values, **given}}
    [info] = call.engine.executions.upgrade(
        flow, call.path["execution"], mapping=mapping, check=body.check, resume=False
    )
    if not call.may(Right.CONTENT, call.flow):
        return {**info, "obstacles": [], "write": {}}  # they may quote values
    return info


def schemas(compiled: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return name → JSON Schema of the inputs or the state of a flow."""
    declared = compiled.get(section, {})
    if section == "inputs":
        return dict(declared)
    return {name: value.get("schema", {}) for name, value in declared.items()}


def resume(call: ApiCall) -> Any:
    """Answer the open questions about interrupted attempts, so that the execution continues."""
    result = call.engine.executions.result(call.path["execution"])
    asked = [wait["id"] for wait in result.waits if wait.get("ran") == "maybe"]
    if not asked:
        raise Conflict(
            f"execution {result.execution} has no open question about an interrupted attempt",
            hint="an execution that is due is continued by the process that drives the store",
        )
    for wait in asked:
        call.engine.approvals.decide(wait, call.body.on_crash, resume=False)
    return {"answered": asked}


def graph(call: ApiCall) -> Any:
    """Return the graph of an execution's flow with the state of its steps, and a picture of it."""
    id = call.path["execution"]
    statuses = statuses_of(call.engine.executions.show(id)["steps"])
    return node_link(drawn(call.engine.executions.flow_of(id), statuses))


def diff(call: ApiCall) -> Any:
    """Compare an execution with another one: where their histories diverge, and how they differ."""
    other = call.path["other"]
    call.need(Right.CONTENT, flow_of_execution(call.engine, call.principal, other).flow)
    return call.engine.executions.diff(call.path["execution"], other)


def download(call: ApiCall) -> Path:
    """Return a file that an execution keeps, as an attachment without a type."""
    sha256 = call.path["sha256"]
    if re.fullmatch("[0-9a-f]{64}", sha256) is None:
        raise NotFound(f"{sha256!r} is not the SHA-256 of a file", hint="64 hex digits")
    return call.engine.store.fetch_artifact(sha256, call.path["execution"])
