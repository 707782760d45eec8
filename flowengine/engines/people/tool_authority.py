"""Tool authorities: programs consulted about calls in this process, before approvers answer.

Their decisions are treated like all others, on behalf of the engine's user. The user's permissions,
the edits and the results are checked. The decision is on disk before it takes effect, and the first
decision counts. If the authority defers, or is not permitted to decide, the question is left to
approvers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowengine.engines.people.approvals import GivenAnswer, decide
from flowengine.errors import FlowEngineError
from flowengine.kernel.view import RESPOND

if TYPE_CHECKING:
    from flowengine.engines.actors import Actor
    from flowengine.engines.host import Host
    from flowengine.engines.seam import ToolAuthority
    from flowengine.sdk.tool_calls import ApprovalResponse, ToolCall

Refused = Callable[[FlowEngineError], None]


class Consultant:
    """Consults authorities about calls, and records their decisions.

    Args:
        host: Provides the store.
        authority: Consulted about the calls of all executions.
        who: The actor on whose behalf they decide.
    """

    def __init__(self, host: Host, authority: ToolAuthority | None, who: Actor) -> None:
        self._host = host
        self._authority = authority
        self._who = who
        self._of_executions: dict[str, tuple[ToolAuthority, Refused]] = {}

    @contextmanager
    def asking(self, execution: str, authority: ToolAuthority, refused: Refused) -> Iterator[None]:
        """Consult another authority about the calls of one execution within the block.

        Args:
            execution: Its full id.
            authority: The authority.
            refused: Receives the error that explains why a decision of the authority does not
                count.
        """
        self._of_executions[execution] = authority, refused
        try:
            yield
        finally:
            del self._of_executions[execution]

    async def ask(self, wait: str, record: Mapping[str, Any]) -> bool:
        """Consult the authority about a call.

        Args:
            wait: Full id of the question.
            record: Record of the question.

        Returns:
            Whether it was answered. Otherwise it is left to approvers.
        """
        from flowengine.sdk.tool_calls import ToolCall

        authority, refused = self._authority, None
        if self._of_executions:
            execution = self._host.store.wait(wait).execution
            authority, refused = self._of_executions.get(execution, (authority, None))
        if authority is None:
            return False
        call = ToolCall(
            tool_call_id=wait,
            tool_name=record["tool"],
            names=record.get("names", []),
            args=dict(record["subject"]),
            preview=record.get("preview"),
            preview_note=record.get("note"),
            found=_shown(record.get("found")),
        )
        answer = _answer(record, await _asked(authority, call), self._who)
        if answer is None:
            return False
        host = self._host
        try:
            return decide(host.store, host.settings, wait, answer, host.clock.now()).first
        except FlowEngineError as error:
            if refused is not None:
                refused(error)
            return False  # needs another user, or a more complete decision


def _shown(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the displayed part of the effect that a call determined."""
    return None if found is None else {key: found[key] for key in ("action", "target")}


async def _asked(authority: ToolAuthority, call: ToolCall) -> ApprovalResponse:
    """Return the decision of an authority. An invalid response counts as rejection."""
    from flowengine.sdk.tool_calls import ApprovalResponse

    try:
        response = await authority.approve_tool(call)
        decision = response.result
        if isinstance(decision, ApprovalResponse):
            return decision
        why = "gave no decision" if response.error is None else response.error.message
    except Exception as error:
        why = f"raised {type(error).__name__}"
    return ApprovalResponse(approved=False, feedback=f"the tool authority {why}"[:2000])


def _answer(
    record: Mapping[str, Any], decision: ApprovalResponse, who: Actor
) -> GivenAnswer | None:
    """Return a decision in the form of a user's answer.

    None: it is deferred, or cannot be expressed by one of the choices.
    """
    if decision.decision == "defer":
        return None
    if decision.decision == "respond":
        return GivenAnswer(RESPOND, who, comment=decision.feedback, value=decision.content)
    images = [image.url for image in decision.images]
    counts_as = "approve" if decision.approved else "reject"
    choices = [choice["id"] for choice in record["choices"] if choice["counts_as"] == counts_as]
    if len(choices) != 1:
        return None
    edits = None
    if decision.args is not None:
        subject = record["subject"]
        if subject.keys() - decision.args.keys():
            return None  # an argument cannot be removed
        edits = {k: v for k, v in decision.args.items() if k not in subject or subject[k] != v}
    return GivenAnswer(
        choices[0], who, edits=edits or None, comment=decision.feedback, images=images
    )
