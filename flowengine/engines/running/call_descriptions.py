"""Descriptions of calls that require approval: the text of the tool, then and now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine.engines.executions.calls import (
    environments_of,
    kind_of,
    subject_of,
    tool_of,
)
from flowengine.engines.executions.execution import Execution
from flowengine.engines.host import Host
from flowengine.errors import NotFound
from flowengine.kernel.commands import Run
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import Described, ErrorData, Event
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.specs import StepSpec
from flowengine.kernel.view import View
from flowengine.kernel.waiting.permissions import waiting_run
from flowengine.sdk.steps.step_kind import StepKind

LONGEST = 1 << 20
"""Maximum length of a tool's text to keep."""
MOST_LINES = 200
"""Maximum number of lines of a diff to show."""
GONE = "the text of the tool cannot be read any more"


def server_description(host: Host, execution: Execution, step: int) -> str | None:
    """Return a server's description of a step's tool. None: no session is open here."""
    spec = execution.linked.compiled["steps"][step]
    kind = kind_of(spec)
    if kind is None or kind.session is None or host.environments is None:
        return None
    task = spec["task"]
    session = host.environments.opened(execution.id, environment_name(spec, task["server"]))
    find = getattr(session, "tool_text", None)
    tool: str | None = None if find is None else find(task["tool"])
    return tool


def environment_name(spec: StepSpec, place: str) -> str:
    """Return the name under which an environment of a step is open.

    Args:
        spec: The step.
        place: The name under which the step uses it.
    """
    uses: Any = environments_of(spec)
    declared = uses[place][1].get("spec") if place in uses else None
    if declared is None or declared[0] != "const":
        return place  # expressions cannot yield another name
    return str(declared[1].get("resource_key", place))


def described(
    execution: Execution, wait: int, step: int, now: int, text: str | None = None
) -> Described | None:
    """Return the description of a call to show to approvers, and keep its text.

    Args:
        execution: The execution that requests the approval.
        wait: Number of the question.
        step: The calling step.
        now: The time (ms).
        text: The server's description of the tool, if the tool is on a server.

    Returns:
        The event. None: no description is available.
    """
    kind = kind_of(execution.linked.compiled["steps"][step])
    if text is None and kind is not None and kind.source is not StepKind.source:
        text = execution.linked.runner.source(step)
    if text is None:
        return None
    kept: dict[str, Any] = execution.context.artifacts.put(_packed(text), "tool.txt")  # type: ignore[assignment]
    return {"type": "described", "at": now, "wait": wait, "source": kept["sha256"]}


def difference(host: Host, execution: Execution, step: int, approved: str) -> str | None:
    """Return how a tool has changed since its call was approved. None: unchanged.

    Args:
        host: Provides the kept text.
        execution: The calling execution.
        step: The calling step.
        approved: Digest of the approved text.
    """
    from hashlib import sha256

    text = execution.linked.runner.source(step)
    if text is None:
        return GONE
    now = _packed(text)
    if sha256(now).hexdigest() == approved:
        return None
    try:
        before = _text_of(host, execution, approved)
    except (NotFound, OSError):
        return "the text of the tool has changed, and the earlier text was not kept"
    return _compared(before.decode(), now.decode())


def asked_anew(host: Host, execution: Execution, run: Run, error: ErrorData) -> Event | None:
    """Return the event of a new approval request, if an attempt found the tool changed.

    Args:
        host: Provides the time and the kept texts.
        execution: The calling execution.
        run: The attempt, which has made no call.
        error: Its error.

    Returns:
        The event. None: it ended for another reason.
    """
    data: Any = error.get("data")
    if error["type"] != "ToolChanged" or not isinstance(data, dict) or "approved" not in data:
        return None
    approved: Any = run.approved
    if approved is None or run.unit not in execution.state["units"]:
        return None
    before, now = data["approved"]["before"], data["approved"]["now"]
    if "source" in approved:
        with suppress(NotFound, OSError):
            before = _text_of(host, execution, approved["source"]).decode()
    step = execution.linked.compiled["steps"][run.step]
    subject, why = subject_of(step, run.args, run.input), {"difference": _compared(before, now)}
    return asked(host, run, tool_of(step, {}), approved["version"], subject, why)


def asked(
    host: Host, run: Run, tool: str, version: str, subject: Plain, why: Mapping[str, Any]
) -> Event:
    """Return the event of an approval request that replaces an attempt.

    Args:
        host: Provides the time.
        run: The attempt.
        tool: The called tool.
        version: Digest of the call's definition.
        subject: The arguments.
        why: Parts of the event by name. Parts that are None are left out.
    """
    event: dict[str, Any] = {
        "type": "asked", "at": host.clock.now(), "unit": run.unit, "attempt": run.attempt,
        "tool": tool, "version": version, "subject": subject,
        **{name: value for name, value in why.items() if value is not None},
    }  # fmt: skip
    return event  # type: ignore[return-value] # built key by key


def _text_of(host: Host, execution: Execution, sha256: str) -> bytes:
    """Return the kept text of a tool."""
    with host.store.open_artifact(sha256, execution.id) as file:
        return file.read()


def _packed(text: str) -> bytes:
    return text[:LONGEST].encode(errors="replace")


def _compared(before: str, after: str) -> str:
    from difflib import unified_diff

    lines = [
        line.rstrip("\r\n")
        for line in unified_diff(before.splitlines(), after.splitlines(), "approved", "now", n=2)
    ]
    if not lines:
        return "line ends or blanks at the end have changed"
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"… and {more} more lines"] if more > 0 else [])])


def run_of_call(execution: Execution, wait: int) -> Run | None:
    """Return the attempt that a call with environments would make, if it can be known now.

    Args:
        execution: The execution.
        wait: Number of the question about the call.
    """
    state = execution.state
    unit = state["units"][next(iter(state["waits"][wait]["units"]))]
    try:
        return waiting_run(View(execution.linked.graph, state), unit)
    except (StepFailure, EvaluationError):  # reported when the call is made
        return None
