"""What a call is of that people are asked about: the text of its tool, then and now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.calls import environments_of, kind_of, subject_of, tool_of
from flowengine.errors import NotFound
from flowengine.sdk import StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Run
    from flowengine.kernel.events import Described, ErrorData, Event
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import StepSpec

LONGEST = 1 << 20
"""Characters of a tool's text that are kept."""
MOST_LINES = 200
"""Lines of a difference that are shown."""
GONE = "the text of the tool cannot be read any more"


def has_source(execution: Execution, step: int) -> bool:
    """Return whether a step calls something whose text is known."""
    kind = kind_of(execution.linked.compiled["steps"][step])
    return kind is not None and kind.source is not StepKind.source


def said_by_server(host: Host, execution: Execution, step: int) -> str | None:
    """Return what a server says of the tool that a step calls; None: no session is open here."""
    spec = execution.linked.compiled["steps"][step]
    kind = kind_of(spec)
    if kind is None or kind.session is None:
        return None
    task = spec["task"]
    session = host.environments.opened(execution.id, environment_name(spec, task["server"]))
    find = getattr(session, "tool_text", None)
    found: str | None = None if find is None else find(task["tool"])
    return found


def environment_name(spec: StepSpec, place: str) -> str:
    """Return under which name an environment is open that a step gets.

    Args:
        place: Under which name the step finds it.
    """
    uses: Any = environments_of(spec)
    declared = uses[place][1].get("spec") if place in uses else None
    if declared is None or declared[0] != "const":
        return place  # what expressions give names no other one
    return str(declared[1].get("resource_key", place))


def described(
    execution: Execution, wait: int, step: int, now: int, said: str | None = None
) -> Described | None:
    """Return what is told of a call that people are asked about; the text is kept.

    Args:
        execution: What asks.
        wait: Number of the question.
        step: The step that calls.
        now: The time (ms).
        said: What the server says of the tool, if it is one of a server.

    Returns:
        The event; None: nothing is known of it.
    """
    text = said
    if text is None and has_source(execution, step):
        text = execution.linked.runner.source(step)
    if text is None:
        return None
    kept: dict[str, Any] = execution.context.artifacts.put(_packed(text), "tool.txt")  # type: ignore[assignment]
    return {"type": "described", "at": now, "wait": wait, "source": kept["sha256"]}


def undescribed(execution: Execution, now: int) -> Iterator[Described]:
    """Yield what is still to be told of questions: a process died right after it asked.

    Args:
        execution: Just loaded.
        now: The time (ms).
    """
    state = execution.state
    for number, record in execution.waits.items():
        if "digest" not in record or "source" in record:
            continue
        unit = state["units"][next(iter(state["waits"][number]["units"]))]
        event = described(execution, number, state["acts"][unit["act"]]["step"], now)
        if event is not None:
            yield event


def difference(host: Host, execution: Execution, step: int, approved: str) -> str | None:
    """Return what has changed of a tool since a call of it was approved; None: nothing.

    Args:
        execution: What calls.
        step: The step that calls.
        approved: Digest of the text that was approved.
    """
    from hashlib import sha256

    text = execution.linked.runner.source(step)
    if text is None:
        return GONE
    now = _packed(text)
    if sha256(now).hexdigest() == approved:
        return None
    try:
        before = _text_of(host, approved)
    except (NotFound, OSError):
        return "the text of the tool has changed; the earlier text was not kept"
    return _compared(before.decode(), now.decode())


def asked_anew(host: Host, execution: Execution, run: Run, error: ErrorData) -> Event | None:
    """Return that people are asked again, if an attempt found another tool than they approved.

    Args:
        run: The attempt, which has called nothing.
        error: How it ended.

    Returns:
        The event; None: it ended otherwise.
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
            before = _text_of(host, approved["source"]).decode()
    step = execution.linked.compiled["steps"][run.step]
    subject, why = subject_of(step, run.args, run.input), {"difference": _compared(before, now)}
    return asked(host, run, tool_of(step, {}), approved["version"], subject, why)


def asked(
    host: Host, run: Run, tool: str, version: str, subject: Plain, why: Mapping[str, Any]
) -> Event:
    """Return that people are asked about a call, in place of the attempt that was to make it.

    Args:
        run: The attempt.
        tool: What is called.
        version: Digest of how.
        subject: The arguments.
        why: Parts of the event by name; None: there is no such part.
    """
    event: dict[str, Any] = {
        "type": "asked", "at": host.clock.now(), "unit": run.unit, "attempt": run.attempt,
        "tool": tool, "version": version, "subject": subject,
        **{name: one for name, one in why.items() if one is not None},
    }  # fmt: skip
    return event  # type: ignore[return-value] # built key by key


def _text_of(host: Host, sha256: str) -> bytes:
    """Return the text of a tool that was kept."""
    with host.store.open_artifact(sha256) as file:
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
