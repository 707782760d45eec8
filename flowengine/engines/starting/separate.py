"""Executions that another one starts and does not wait for: detached flows and notifications.

Their ids are derived from their cause, so they are started once however often that is repeated.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from flowengine.engines.starting.beginning import create, execution_data
from flowengine.engines.starting.inputs import check_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.host import Host

ID_LENGTH = 26
"""Number of hexadecimal digits of an id, the same as for other ids."""


def separate_id(*cause: str | int) -> str:
    """Return the id of the execution that has a cause, such as a step of an execution."""
    text = json.dumps(cause, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def begin_separate(
    host: Host,
    linked: LinkedFlow,
    number: int,
    id: str,
    parent: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> None:
    """Create an execution of one of the flows of a compiled flow, unless its id exists.

    It is driven next by this process, unless another one holds it by then.

    Args:
        host: Provides the store.
        linked: The flow of the execution that starts it.
        number: Number of the flow to run.
        id: Its id.
        parent: `id`, `labels`, `started_by` and `workdir` of the execution that starts it.
        inputs: Its inputs.

    Raises:
        InputError: They are not valid.
    """
    now = host.clock.now()
    separate = _separate(host, linked, number)
    labels, user, workdir = parent["labels"], parent["started_by"], parent["workdir"]
    data = execution_data(host, separate.compiled, now, id, labels, user)
    data |= {"parent": parent["id"], "workdir": workdir}
    checked = check_inputs(separate.graph, inputs, data, now, workdir)
    create(host, separate, {"type": "started", "at": now, "inputs": checked, "execution": data})
    host.woken[id] = True


def _separate(host: Host, linked: LinkedFlow, number: int) -> LinkedFlow:
    """Return one of the flows of a compiled flow, as the flow of an execution."""
    from flowengine.flow.compile.link import alone
    from flowengine.flow.structural_hash import form_hash, structural_hash

    flow = alone(linked.compiled, number)
    return host.flows.of(flow, form_hash(flow, structural_hash(flow)))
