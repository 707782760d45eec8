"""Notifications about approvals, as they leave the execution that asks.

See docs/language.md: approval.

They are stored together with the event that causes them, like messages to other executions, so a
crash loses none. `messages/notifications.py` sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.journal.encoding import pack
from flowengine.journal.records import Outgoing
from flowengine.kernel.notation.ids import wait_id
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.kernel.commands import Notify
    from flowengine.kernel.state.records import State

RECEIVER = "notify"
"""The receiver of an outgoing notification."""
LARGEST = 64 * 1024
"""Maximum size of the content of a question in its notifications, in bytes of msgpack."""
_SHOWN = ("title", "body", "subject", "tool", "environment", "batch", "assignees", "choices")


def outgoing(
    execution: str, flow: str, hash: str, state: State, record: Mapping[str, Any], notice: Notify
) -> Iterator[Outgoing]:
    """Yield what is stored for each flow that sends a notification.

    Args:
        execution: The execution that asks.
        flow: Id of its flow.
        hash: The form of its flow.
        state: Its state.
        record: The record of the approval.
        notice: The kernel's command.
    """
    parent = state["execution"]
    for sender in notice.flows:
        event = {
            "flow": sender,
            "hash": hash,
            "wait": notice.wait,
            "number": notice.number,
            "parent": {
                "id": execution,
                **{key: parent[key] for key in ("labels", "started_by", "workdir")},
            },
            "approval": _approval(execution, flow, record, notice),
        }
        yield Outgoing(0, execution, RECEIVER, state["now"], pack(event))


def _approval(
    execution: str, flow: str, record: Mapping[str, Any], notice: Notify
) -> dict[str, Any]:
    """Return the question as the tool receives it, except for its link."""
    shown = {key: record.get(key) for key in _SHOWN}
    if len(pack(shown)) > LARGEST:
        shown |= {"body": None, "subject": None}
        shown["title"] = str(shown["title"])[: LARGEST // 8]
    return {
        "id": wait_id(execution, notice.wait),
        "execution": execution,
        "flow": flow,
        "step": record["step"],
        "why": notice.why,
        "number": notice.number,
        "to": notice.to,
        "since": format_time(record["since"]),
        "due": format_time(record["due"]) if "due" in record else None,
        **shown,
    }
