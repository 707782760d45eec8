"""A program that decides about calls where people are asked: before they answer, in this process.

What it decides goes the way of every decision, in the name of the engine's user: whether that user
may decide, edits and results are checked, it is on disk before anything follows, and the first
decision stands. What it may not decide, or defers, is left to people.
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
    """Asks authorities about calls, and records what they decide.

    Args:
        host: Where the questions are.
        authority: Is asked about the calls of all executions.
        who: In whose name they decide.
    """

    def __init__(self, host: Host, authority: ToolAuthority | None, who: Actor) -> None:
        self._host = host
        self._authority = authority
        self._who = who
        self._of_executions: dict[str, tuple[ToolAuthority, Refused]] = {}

    @contextmanager
    def asking(self, execution: str, authority: ToolAuthority, refused: Refused) -> Iterator[None]:
        """Ask another authority about the calls of one execution, as long as the block lasts.

        Args:
            execution: Its full id.
            authority: Who is asked.
            refused: Is told why a decision of the authority does not count.
        """
        self._of_executions[execution] = authority, refused
        try:
            yield
        finally:
            del self._of_executions[execution]

    async def ask(self, wait: str, record: Mapping[str, Any]) -> bool:
        """Ask about a call.

        Args:
            wait: Full id of the question.
            record: What is asked.

        Returns:
            Whether it was answered; if not, it is left to people.
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
            return False  # it takes somebody else, or more than it said


def _shown(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what people are shown of what a call found."""
    return None if found is None else {key: found[key] for key in ("action", "target")}


async def _asked(authority: ToolAuthority, call: ToolCall) -> ApprovalResponse:
    """Return what an authority says; whatever is no decision is a no."""
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
    """Return a decision as people make one; None: it is deferred, or takes a choice of its own."""
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
            return None  # an argument cannot be taken away
        edits = {k: v for k, v in decision.args.items() if k not in subject or subject[k] != v}
    return GivenAnswer(
        choices[0], who, edits=edits or None, comment=decision.feedback, images=images
    )
