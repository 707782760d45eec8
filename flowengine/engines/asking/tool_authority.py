"""Tool authorities: programs consulted about calls in this process, before approvers answer.

Their decisions are treated like all others, on behalf of the engine's user. The user's permissions,
the edits and the results are checked. The decision is on disk before it takes effect, and the first
decision counts. If the authority defers, or is not permitted to decide, the question is left to
approvers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from flowengine.engines.actors import Actor
from flowengine.engines.host import Host
from flowengine.engines.people.approval_ownership import standing
from flowengine.engines.people.approvals import decide
from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk.errors import raised
from flowengine.sdk.python.user_code import UsersCode
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.tools.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall

CallAnswer = Callable[[ToolCall, Awaitable[Shown]], Awaitable[EnvironmentResponse]]
"""Returns the decision about a call, whose preview is being computed."""


class _Own(NamedTuple):
    """What is consulted about the calls of one execution."""

    answer: CallAnswer
    refused: Callable[[FlowEngineError], None] | None


class Consultant:
    """Consults authorities about calls, and records their decisions.

    Args:
        host: Provides the store.
        authority: Consulted about the calls of all executions.
        who: The actor on whose behalf they decide.
    """

    def __init__(self, host: Host, authority: ToolAuthority | None, who: Actor) -> None:
        self._host = host
        self._all = None if authority is None else _Own(_with_preview(authority), None)
        self._who = who
        self._of_executions: dict[str, _Own] = {}

    @contextmanager
    def asking(
        self, execution: str, answer: CallAnswer, refused: Callable[[FlowEngineError], None] | None
    ) -> Iterator[None]:
        """Consult a function about the calls of one execution within the block.

        Args:
            execution: Its full id.
            answer: The function.
            refused: Receives the error that explains why a decision does not count.
        """
        self._of_executions[execution] = _Own(answer, refused)
        try:
            yield
        finally:
            self._of_executions.pop(execution, None)

    def has_own(self, execution: str) -> bool:
        """Return whether a function is consulted about the calls of an execution."""
        return execution in self._of_executions

    async def ask(
        self,
        execution: str,
        wait: str,
        record: Mapping[str, Any],
        preview: Awaitable[Shown],
    ) -> bool:
        """Consult the authority about a call.

        Args:
            execution: Full id.
            wait: Full id of the question.
            record: Record of the question.
            preview: The preview that is being computed.

        Returns:
            Whether it was answered. Otherwise it is left to approvers.
        """
        own = self._of_executions.get(execution, self._all)
        if own is None:
            return False
        call = ToolCall(
            tool_call_id=wait,
            tool_name=record["tool"],
            names=record.get("names", []),
            args=dict(record["subject"]),
            found=_shown(record.get("found")),
        )
        decision = await decision_of(own.answer(call, preview))
        given = decision.answer_to(record)
        if given is None:
            return False
        try:
            return decide(self._host, standing(self._host.store, wait), given, self._who).first
        except FlowEngineError as error:
            if own.refused is not None:
                own.refused(error)
            return False  # needs another user, or a more complete decision


def _with_preview(authority: ToolAuthority) -> CallAnswer:
    """Return a function that consults an authority as soon as the preview is known."""

    async def answer(call: ToolCall, preview: Awaitable[Shown]) -> EnvironmentResponse:
        call.preview, call.preview_note = await preview
        return await authority.approve_tool(call)

    return answer


def _shown(shown: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the displayed part of the effect that a call determined."""
    return None if shown is None else {key: shown[key] for key in ("action", "target")}


async def decision_of(response: Awaitable[Any]) -> ApprovalResponse:
    """Return the decision of an authority. Anything else counts as rejection.

    Args:
        response: The return value of the authority.
    """
    try:
        with UsersCode():
            return ApprovalResponse.of(await response)
    except InputError as error:
        why = f"gave no decision: {error.message}"
    except Exception as error:
        why = f"raised {type(raised(error)).__name__}"
    return ApprovalResponse(approved=False, feedback=f"the tool authority {why}"[:2000])


class ToolAuthority(Protocol):
    """Decides whether a call may be made. `flowengine.tool_environment` has one for callbacks."""

    async def approve_tool(self, call_: ToolCall, /) -> EnvironmentResponse:
        """Return the decision about a call."""
