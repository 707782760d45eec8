"""Executions whose ids are derived from their cause, so that each is started once.

Another execution starts them and does not wait for them: detached flows and notifications. Those of
schedules have such ids, too. Clients of a server cannot choose ids of these forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.host import Host
from flowengine.engines.starting.beginning import create, execution_data
from flowengine.engines.starting.inputs import check_inputs


def begin_separate(
    host: Host,
    linked: LinkedFlow,
    number: int,
    id: str,
    parent: Mapping[str, Any],
    inputs: Mapping[str, Any],
    background: Mapping[str, Any] | None = None,
) -> str:
    """Create an execution of one of the flows of a compiled flow, unless that was done before.

    It is driven next by this process, unless another one holds it by then.

    Args:
        host: Provides the store.
        linked: The flow of the execution that starts it.
        number: Number of the flow to run.
        id: The id that is derived from its cause.
        parent: `id`, `labels`, `started_by`, `forked_by` and `workdir` of the execution that starts
            it. A fork changes no user's part in what the fork starts, either.
        inputs: Its inputs.
        background: If it belongs to a running flow of the other execution: its record there, and
            the `tool` that started it.

    Returns:
        Its id.

    Raises:
        InputError: They are not valid.
    """
    now = host.clock.now()
    separate = host.flows.part(linked, number)
    labels, user, workdir = parent["labels"], parent["started_by"], parent["workdir"]
    data = execution_data(host, separate.compiled, now, id, labels, user)
    data |= {"parent": parent["id"], "workdir": workdir}
    if "forked_by" in parent:
        data["forked_by"] = parent["forked_by"]
    if background is not None:
        kept = {key: background[key] for key in ("step", "tool", "shared") if key in background}
        data |= {"background": kept, "room": background["room"]}
    checked = check_inputs(separate.graph, inputs, data, now, workdir)
    started = {"type": "started", "at": now, "inputs": checked, "execution": data}
    if background is not None and "part" in background:
        started["budget"] = background["part"]
    create(host, separate, started)
    host.woken[id] = True
    return id
