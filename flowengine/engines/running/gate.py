"""The gate before execution: the final check of a call right before it is made.

The kernel has already applied the flow's rules for a tool call. This module checks the conditions
that may have changed since, or that the flow does not control: the rules of the host, and whether
the tool is still the approved one. For a step that names no tool, the flow's rules are applied here
too. Like the host's rules, they see the command to be run.

Every call passes through the gate, with nothing between the gate and the attempt. Effects that only
the attempt itself can determine, such as the request sent by a button of a page, are raised as
`NeedsApproval` before they happen. They require approval in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine import registry
from flowengine.engines.attempts.outcome import AttemptFailed, failed
from flowengine.engines.executions.calls import is_call, names_of, offer_of, subject_of, tool_of
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.outer_attempts import AttemptOver, rule_names, stricter
from flowengine.engines.host import Host
from flowengine.engines.running.answers import revoked_by, say
from flowengine.engines.running.call_descriptions import asked, asked_anew, difference
from flowengine.errors import FlowEngineError
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Event
from flowengine.kernel.graph import environment_uses
from flowengine.kernel.graph.compiled import Plain, digest
from flowengine.kernel.graph.rules import Called, Verdict, strictest
from flowengine.kernel.graph.specs import StepSpec
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.view import as_said, call_names

BY_HOST = "rule"
"""The approver of a call that a rule of the host allows."""
_WANTS_PEOPLE = frozenset({"rule", "difference", "found", "form", "opens"})
"""Parts of a question that a rule which allows the call does not cover."""

_TWICE = (
    "The call asks while it runs, and may have taken effect. With 'accept' or 'decline' it is made "
    "again from its beginning, although it is declared to run only once. 'cancel' ends it instead."
)


def check(host: Host, execution: Execution, run: Run) -> Event | None:
    """Check an attempt that is about to begin.

    Args:
        host: Provides the rules.
        execution: The execution of the attempt.
        run: The attempt.

    Returns:
        None: it may begin. Otherwise the event that replaces it: a refusal or an approval request.
    """
    if run.unit not in execution.state["units"]:
        return None  # it only determines the outcome of an earlier attempt
    if execution.outer is not None and (short := _short_outside(host, execution, run)):
        return short
    step = execution.linked.compiled["steps"][run.step]
    if not is_call(step):
        return None
    is_ruled = host.rules.there()
    if host.is_open(run, execution):
        return None  # true for most calls, for which nothing can have changed
    offered = offer_of(step, run.input)
    tool, subject = tool_of(step, offered), subject_of(step, run.args, run.input)
    called = _called(step, tool)
    try:
        verdict = _verdict(host, execution, run.unit, called, subject) if is_ruled else None
    except FlowEngineError as error:
        return _refused(host, run, tool, "", f"the rules of this host cannot be read: {error}")
    if run.step in execution.linked.ruled:
        names, evaluate = rule_names(execution.state, subject), execution.linked.graph.evaluate
        own = strictest(step["rules"], lambda number: bool(evaluate(number, names)), tool)
        verdict = stricter(verdict, own)
    if execution.outer is not None:
        try:
            verdict = stricter(verdict, execution.outer.verdict(called, subject))
        except AttemptOver as error:
            return _refused(host, run, tool, "", f"{tool!r} was not called: {error}")
    if verdict is not None and verdict.do == "deny":
        message = f"{tool!r} was not called: {verdict.rule} refuses it"
        return _refused(host, run, tool, verdict.rule, message)
    changed = None
    is_served = registry.kind_class(step["kind"]).session is not None
    if run.approved is not None and "source" in run.approved and not is_served:
        changed = difference(host, execution, run.step, run.approved["source"])
    version, ended = version_of(step, offered), _ended_grant(host, execution, run)
    if changed is None and ended is None and _stands(verdict, run, version, step):
        return None
    rule = verdict.rule if verdict is not None and verdict.do == "ask" else ended
    why = {"rule": rule, "difference": changed}
    return asked(host, run, tool, version, subject, why)


def asked_instead(
    host: Host, execution: Execution, run: Run, failure: AttemptFailed
) -> Event | None:
    """Return the event of a question, if an attempt found that it needs an approval or input.

    Args:
        host: Provides the time.
        execution: The execution of the attempt.
        run: The attempt, which ends without a result.
        failure: Its failure, whose error is one of `ASKING`.

    Returns:
        The event. None: it is no question, and the attempt failed.
    """
    error = failure.error
    if error["type"] == "ToolChanged":
        return None if run.approved is None else asked_anew(host, execution, run, error)
    step = execution.linked.compiled["steps"][run.step]
    match error.get("data"):
        case {"found": {"action": str(), "target": dict()} as found}:
            details: dict[str, Any] = {"found": found}
        case {"input": {"key": str(), "request": {"by": str(), "message": str()}} as wanted} if str(
            wanted["request"].get("url", "https://")
        ).startswith(("https://", "http://")):
            details = {"input": _with_warning(wanted, step)}
        case _:
            return None
    if run.unit not in execution.state["units"]:
        return None
    if failure.openings:
        details["opened"] = [*failure.openings]
    if not is_call(step):
        place = details.get("found", {}).get("environment")
        return None if place is None else asked(host, run, str(place), "", {}, details)
    offered = offer_of(step, run.input)
    subject = subject_of(step, run.args, run.input)
    tool, version = tool_of(step, offered), version_of(step, offered)
    return asked(host, run, tool, version, subject, details)


def _with_warning(wanted: Mapping[str, Any], step: StepSpec) -> dict[str, Any]:
    """Return a request for input, with a warning if the answer may repeat an effect."""
    asked = {key: value for key, value in wanted.items() if key != "begun"}
    if wanted.get("begun") and step.get("effect", "once") == "once":
        request = asked["request"]
        asked["request"] = {
            **request,
            "note": "\n".join(filter(None, [request.get("note"), _TWICE])),
        }
    return asked


def _ended_grant(host: Host, execution: Execution, run: Run) -> str | None:
    """Return why the grant behind the approval of a call has ended. None: it has not.

    A call that it answered and that has not begun must not begin.
    """
    approved = run.approved or {}
    by = None
    if "granted" in approved:
        by = revoked_by(host.store, execution.context.flow, approved["granted"])
    elif "grant" in approved:
        by = execution.state.get("grants", {}).get(approved["grant"], {}).get("revoked")
    return None if by is None else f"the grant that answered was revoked by {by}"


def _stands(verdict: Verdict | None, run: Run, version: str, step: StepSpec) -> bool:
    """Return whether the call needs no approval, or no further one."""
    approved = run.approved
    if approved is None:
        return verdict is None or verdict.do == "allow"
    if approved["by"] == BY_HOST and (verdict is None or verdict.do == "ask"):
        return False
    # For calls that require approval in the flow, the kernel has checked the version.
    return "approval" in step or bool(approved["version"] == version)


def version_of(step: StepSpec, offered: Mapping[str, str]) -> str:
    """Return a digest of a step's call definition."""
    places = environment_uses.places(environment_uses.of_step(step))
    called = [step["kind"], step.get("task", {}), step.get("effect", ""), *places]
    return digest([*called, offered] if offered else called)


def answer(host: Host, execution: Execution, wait: int, number: int, *, required: bool) -> bool:
    """Answer a question about a call by the rules of the host, if they apply.

    A rule that denies the call would refuse it after the approval, so no approval is requested. A
    rule that allows the call approves it, unless the approval of a human is required or another
    rule requests it.

    Args:
        host: Provides the rules.
        execution: The execution that has just opened the question.
        wait: Number of the question.
        number: The calling step.
        required: Whether only a human may approve.

    Returns:
        Whether it was answered. Otherwise it is left to others.
    """
    record = execution.waits.get(wait)
    if record is None or not host.rules.there():
        return False
    step = execution.linked.compiled["steps"][number]
    [unit] = execution.state["waits"][wait]["units"]
    subject = record.get("subject")
    try:
        subject = subject if isinstance(subject, dict) else {}
        verdict = _verdict(host, execution, unit, _called(step, record["tool"]), subject)
    except FlowEngineError:
        return False  # an approved call would be refused for that
    if verdict is None or verdict.do == "ask":
        return False
    if verdict.do == "allow" and (required or not record.keys().isdisjoint(_WANTS_PEOPLE)):
        return False
    denies = verdict.do == "deny"
    more: dict[str, Plain] = {"value": {"refused": True}} if denies else {}
    id = wait_id(execution.id, wait)
    return say(host, id, record, BY_HOST, approves=not denies, comment=verdict.rule, **more)


def _verdict(
    host: Host,
    execution: Execution,
    unit: int,
    called: Called,
    subject: dict[str, Plain],
) -> Verdict | None:
    """Return the verdict of the host's rules on a call.

    Args:
        host: Provides the rules.
        execution: The execution of the call.
        unit: The calling unit.
        called: The call.
        subject: The arguments.

    Raises:
        FlowEngineError: The rules cannot be read.
    """
    state = execution.state
    seen = {**call_names(state["units"][unit], subject), "execution": state["execution"]}
    return host.rules.verdict(called, seen)


def _called(step: StepSpec, tool: str) -> Called:
    """Return the call of a step, in the form that rules evaluate."""
    names = [
        *environment_uses.names(environment_uses.of_step(step)),
        *filter(None, [step.get("task", {}).get("in")]),
    ]
    effect = step.get("effect", "once")
    caller = step.get("caller", "")
    declared = step.get("declared", "")
    return Called(tool, step["kind"], effect, names, caller, names_of(step), declared)


def _short_outside(host: Host, execution: Execution, run: Run) -> Event | None:
    """Return the refusal of an attempt for which an enclosing budget is used up.

    The remainder when the execution began is enforced separately. Other executions may have used
    the budget since.
    """
    budget, outer = execution.state.get("budget"), execution.outer
    if budget is None or outer is None or run.measures or run.unit not in budget["calls"]:
        return None
    own = budget.get("reserved", {}).get(run.unit, {"tool_calls": 1})
    try:
        short = outer.short(own)
    except AttemptOver as error:
        return _failed(host, run, "Refused", str(error), None)
    if short is None:
        return None
    meter, left = short
    of = as_said({meter: left.limit})[meter]
    message = f"'{left.flow}', which started these agents, has used up its budget.{meter}: {of}"
    data: Plain = {"limit": meter, "of": of, "flow": left.flow, "refused": None}
    return _failed(host, run, "BudgetExceeded", message, data)


def _refused(host: Host, run: Run, tool: str, rule: str, message: str) -> Event:
    data = {"tool": tool, "rule": rule, "rules_changed": run.approved is not None}
    return _failed(host, run, "Refused", message, data)


def _failed(host: Host, run: Run, type: str, message: str, data: Plain) -> Event:
    error: Any = {"type": type, "message": message, "data": data, "retryable": False}
    event: Any = failed(run, AttemptFailed(error), host.clock.now())
    return {**event, "began": False}  # type: ignore[return-value]
