"""What a call is of that people are asked about: the text of its tool, then and now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine import registry
from flowengine.errors import NotFound
from flowengine.sdk import StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.kernel.events import Described

LONGEST = 1 << 20
"""Characters of a tool's text that are kept."""
MOST_LINES = 200
"""Lines of a difference that are shown."""
GONE = "the text of the tool cannot be read any more"


def has_source(execution: Execution, step: int) -> bool:
    """Return whether a step calls something whose text is known."""
    spec = execution.linked.compiled["steps"][step]
    if spec.get("action") != "task" or "kind" not in spec:
        return False
    return registry.kind_class(spec["kind"]).source is not StepKind.source


def described(execution: Execution, wait: int, step: int, now: int) -> Described | None:
    """Return what is told of a call that people are asked about; the text is kept.

    Args:
        execution: What asks.
        wait: Number of the question.
        step: The step that calls.
        now: The time (ms).

    Returns:
        The event; None: nothing is known of it.
    """
    if not has_source(execution, step):
        return None
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
        before = host.store.artifact(approved).read_bytes()
    except (NotFound, OSError):
        return "the text of the tool is another one; what it was is not kept"
    return _compared(before.decode(), now.decode())


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
