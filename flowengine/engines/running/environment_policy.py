"""Consulting a program before approvers decide about an environment or a call.

Its answer is a decision like any other: recorded first, and settled by compare-and-set. If an
approver and a policy answer at the same time, only one of them wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.calls import names_of
from flowengine.engines.executions.parts import has_expired
from flowengine.errors import FlowEngineError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Vote
from flowengine.kernel.notation.addresses import wait_id

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.execution_environment.policy_approval import PolicyAnswer
    from flowengine.kernel.commands import Consult
    from flowengine.sdk.user_code import Shown


async def consult(
    host: Host, execution: Execution, asked: Consult, preview: Awaitable[Shown] | None
) -> bool:
    """Consult the programs that may answer a question, and record their decision.

    Args:
        host: Provides the store.
        execution: The execution that has just opened the question.
        asked: The question.
        preview: The preview of the call, which is being computed. None: it is no call.

    Returns:
        Whether it was answered. Otherwise it is left to approvers.
    """
    id = wait_id(execution.id, asked.wait)
    if asked.environment is None:
        record = execution.waits.get(asked.wait)
        if host.consultant is None or record is None or preview is None:
            return False
        names = names_of(execution.linked.compiled["steps"][asked.step])
        return await host.consultant.ask(execution.id, id, {**record, "names": names}, preview)
    secrets = execution.linked.runner.secrets(asked.step)
    try:
        answered = await host.environments.consult(execution.context, asked, id, secrets)
    except FlowEngineError:
        return False  # the spec is refused with its reason when it is opened
    record = execution.waits.get(asked.wait)
    if answered is None or record is None:
        return False
    event, now = _event(record, *answered), host.clock.now()
    if event is None or has_expired(record, now):
        return False
    event |= {"at": now, "wait": asked.wait}
    approves = answered[1].approved
    return host.store.decide(id, Vote(event["by"], event["at"], approves, pack(event))).accepted


def _event(record: dict[str, Any], by: str, answer: PolicyAnswer) -> dict[str, Any] | None:
    """Return the decision of an answer. None: it requires an approver."""
    wanted = "approve" if answer.approved else "reject"
    choices = [choice["id"] for choice in record["choices"] if choice["counts_as"] == wanted]
    if len(choices) != 1 or (answer.approved and record.get("form")):
        return None
    value: dict[str, Any] = {}
    if answer.policy is not None:
        value["policy"] = {key: rule for key, rule in answer.policy.items() if rule is not None}
    if answer.by_policy:
        value["refused"] = True
    event = {"type": "decided", "choice": choices[0], "by": by, "via": "policy", "form": None}
    return {**event, "edits": None, "comment": answer.reason or None, "value": value or None}
