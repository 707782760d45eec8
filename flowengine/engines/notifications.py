"""Sending notifications about approvals and ends: each is an execution that calls its tool.

See docs/language/approvals.md: Notifications.

An execution has attempts that are repeated after a crash, a retry, rules and a journal, and
its failure affects no other. Its id follows from the notification, so it is started only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.engines.host import Host
from flowengine.engines.starting.separate import begin_separate
from flowengine.errors import NotFound
from flowengine.kernel.notation.addresses import separate_id


def notify(host: Host, event: Mapping[str, Any]) -> str:
    """Start the execution that sends a notification, unless that was done before.

    Args:
        host: Provides the store, and the address of the page.
        event: The notification, see `executions/parts.py`.

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
    url, parent = host.settings.server_url, event["parent"]
    cause = parent["identity"]
    if "approval" in event:
        name, place = "approval", "approvals"
        id = separate_id(cause, event["wait"], event["number"], sender)
    else:
        name, place = "execution", "executions"
        id = separate_id(cause, event["number"], sender)
    about = event[name]
    link = None if url is None else f"{url}/{place}/{about['id']}"
    return begin_separate(host, linked, number, id, parent, {name: {**about, "link": link}})
