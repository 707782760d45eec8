"""Sending notifications about approvals: each is an execution that calls its tool.

See docs/language.md: approval.

An execution has attempts that are repeated after a crash, a retry, policies and a journal, and its
failure affects no other. Its id follows from the notification, so it is started only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.starting.separate import begin_separate, id_of_cause
from flowengine.errors import NotFound
from flowengine.kernel.notation.ids import separate_id, wait_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.engines.host import Host
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.state.records import Wait


def begin(host: Host, event: Mapping[str, Any]) -> str:
    """Start the execution that sends a notification, unless that was done before.

    Args:
        host: Provides the store, and the address of the page.
        event: The notification, see `executions/notices.py`.

    Returns:
        The id of the execution.

    Raises:
        NotFound: Its flow is missing.
    """
    linked = host.flows.by_hash(event["hash"])
    sender = event["flow"]
    flows = [linked.compiled, *linked.compiled.get("flows", [])]
    number = next((n for n, flow in enumerate(flows) if flow["id"] == sender), None)
    if number is None:
        raise NotFound(f"the flow has no tool for {sender}")
    url, approval = host.settings.server_url, event["approval"]
    link = None if url is None else f"{url}/approvals/{approval['id']}"
    parent = event["parent"]
    id = _id(parent["id"], event["wait"], event["number"], sender)
    inputs = {"approval": {**approval, "link": link}}
    return begin_separate(host, linked, number, id, parent, inputs)


def is_moot(host: Host, event: Mapping[str, Any]) -> bool:
    """Return whether the approval is closed or decided, so there is nothing to notify about."""
    try:
        return not host.store.wait(event["approval"]["id"]).open
    except NotFound:
        return True


def last_sent(
    host: Host, execution: str, wait: Wait
) -> Iterator[tuple[str, ExecutionRecord | None]]:
    """Yield each flow that notifies about an open approval, with its newest execution.

    Args:
        host: Provides the store.
        execution: Full id of the execution that asks.
        wait: The approval.

    Yields:
        Id of the flow, and the execution, or None if it is not started yet.
    """
    store = host.store
    for sender in wait.get("notify", ()):
        id = _id(execution, wait["id"], wait["notified"], sender)
        try:
            id = id_of_cause(store, id, sender, store.execution(execution).started_by)
            yield sender, store.execution(id)
        except NotFound:
            yield sender, None


def _id(execution: str, wait: int, number: int, sender: str) -> str:
    return separate_id(wait_id(execution, wait), number, sender)
