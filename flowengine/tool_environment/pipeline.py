"""Takes a call from its registration to its result and disposal."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from flowengine.sdk.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Ran,
    Status,
    ToolResult,
)
from flowengine.tool_environment.call import Call
from flowengine.tool_environment.execution import execute, not_begun
from flowengine.tool_environment.gate import digest_of
from flowengine.tool_environment.observers import observe
from flowengine.tool_environment.outcomes import bounded, describe
from flowengine.tool_environment.registry import disposed
from flowengine.tool_environment.results import response_of
from flowengine.tool_environment.signatures import Fault

if TYPE_CHECKING:
    from flowengine.tool_environment.host import Host
    from flowengine.tool_environment.questions import Questions

ASKED = 3
"""How often somebody is asked about a call whose tool changes meanwhile."""


class Pipeline:
    """Runs the calls of one environment.

    Args:
        host: The environment's parts.
        questions: Asks about calls.
    """

    def __init__(self, host: Host, questions: Questions) -> None:
        self._host = host
        self._questions = questions

    async def run(self, call: Call) -> EnvironmentResponse:
        """Bring a call whose arguments are final to its end, whatever happens.

        Args:
            call: The call.

        Returns:
            The response.
        """
        response: EnvironmentResponse | None = None
        try:
            result = await self._result(call)
            response = response_of(result)
            return response
        except asyncio.CancelledError:  # the loop ends, and not just whoever waits
            call.halt("aborted")
            response = response_of(_stopped(call))
            raise
        except Exception as error:
            logging.getLogger("flowengine.tools").exception("call %s failed", call.id)
            response = response_of(_internal(call, error))
            return response
        finally:
            if response is not None:
                self._finish(call, response)

    async def _result(self, call: Call) -> ToolResult:
        host = self._host
        fault = self._fault(call)
        if fault is not None:
            return self._ended(call, "invalid", fault)
        assert call.definition is not None
        for _ in range(ASKED):
            args = call.args if call.changed is None else call.changed
            definition = host.registry.definition(call.tool) or call.definition
            ticket = host.gate.pass_through(call.id, definition, args)
            if ticket is not None:
                break
            ended = await self.ask(call)
            if isinstance(ended, ToolResult):
                self._note_decision(call, ended)
                return ended
        else:
            return self._ended(call, "rejected", "the tool changed each time it was approved")
        if call.stop is not None:
            return not_begun(call)
        digest = digest_of(call.args)
        host.began(call, digest)
        result = await execute(host, call, ticket)
        result = _with_feedback(result, ticket.decision)
        ran = result.ran != "no"
        if ran:
            result = result.model_copy(update={"written_by": definition.options.written_by})
        host.note(call.id, call.tool, digest, result, observed=not ran)
        if ran:
            result = await self.observe(call, result)
            host.note(call.id, call.tool, digest, result, observed=True)
        return result

    def _note_decision(self, call: Call, result: ToolResult) -> None:
        """Note what somebody decided in place of a call: the next process asks nobody again."""
        if result.status in ("rejected", "ok"):
            self._host.note(call.id, call.tool, digest_of(call.args), result, observed=True)

    async def ask(self, call: Call) -> ApprovalResponse | ToolResult:
        """Ask about a call whose arguments are final.

        Returns:
            The decision, if the call is granted; otherwise its result.
        """
        host = self._host
        definition = host.registry.definition(call.tool) or call.definition
        assert definition is not None
        call.definition = definition
        decision = await self._questions.ask(call, definition)
        if decision == "aborted":
            return not_begun(call)
        if decision == "expired":
            return self._ended(call, "expired", "nobody decided in time; nothing was done")
        assert isinstance(decision, ApprovalResponse)
        if decision.decision == "respond":
            return ToolResult(
                tool_call_id=call.id,
                tool_name=call.tool,
                status="ok",
                success=True,
                ran="no",
                content=decision.content,
                feedback=decision.feedback,
                feedback_images=decision.images,
            )
        if not decision.approved:
            said = f": {decision.feedback}" if decision.feedback else ""
            result = self._ended(call, "rejected", f"rejected by {decision.by}{said}")
            return _with_feedback(result, decision)
        if decision.args is not None:
            call.changed = decision.args
        args = call.args if call.changed is None else call.changed
        host.gate.grant(call.id, definition, args, decision)
        return decision

    async def observe(self, call: Call, result: ToolResult) -> ToolResult:
        """Tell the observers that there are now of a call that ran."""
        host = self._host
        observers = host.observers.now()
        if call.stage == "execution":
            call.move("observers", names=[observer.name for observer in observers])
        if not observers:
            return result
        view = call.view()
        view.args = host.mask(view.args)
        found = await observe(
            observers,
            view,
            result,
            clock=host.clock,
            bound=host.bounds.observer,
            mask=host.mask,
        )
        return result.model_copy(update={"observer_results": found})

    def _fault(self, call: Call) -> str | None:
        """Return what is wrong with the final arguments."""
        assert call.definition is not None
        if call.arriving is not None and call.arriving.fault is not None:
            return call.arriving.fault
        try:
            call.definition.signature.convert(call.args)
        except Fault as error:
            return str(error)
        return None

    def _ended(self, call: Call, status: Status, message: str) -> ToolResult:
        return ToolResult(
            tool_call_id=call.id,
            tool_name=call.tool,
            status=status,
            success=False,
            ran="no",
            message=self._host.mask(message),
        )

    # The end

    def _finish(self, call: Call, response: EnvironmentResponse) -> None:
        self._host.gate.withdraw(call.id)
        call.move("result", result=response.tool_result, call=call.view())
        call.response.set_result(response)
        self._host.keep_running(self._dispose(call))

    def abandon(self, call: Call) -> None:
        """End a call that was never executed, as aborted."""
        self._finish(call, response_of(not_begun(call)))

    async def _dispose(self, call: Call) -> None:
        """Dispose the instance of a call; its result does not wait for it."""
        host = self._host
        instance, call.instance = call.instance, None
        if call.arriving is not None:
            await bounded(host.clock, host.bounds.dispose, call.arriving.end())
        outcome = await bounded(host.clock, host.bounds.dispose, disposed(instance))
        if outcome.late or outcome.error is not None:
            error = outcome.error
            why = f"it did not end within {host.bounds.dispose:g} s"
            host.warn(
                "dispose",
                f"dispose of tool '{call.tool}': {why if error is None else describe(error)}",
                tool_call_id=call.id,
                tool_name=call.tool,
            )
        call.move("disposal")
        call.forget()


def _with_feedback(result: ToolResult, decision: ApprovalResponse) -> ToolResult:
    if decision.feedback is None and not decision.images:
        return result
    return result.model_copy(
        update={"feedback": decision.feedback, "feedback_images": decision.images}
    )


def _stopped(call: Call) -> ToolResult:
    if call.stage not in {"execution", "observers"}:
        return not_begun(call)
    result: dict[str, Any] = not_begun(call).model_dump()
    message = "aborted while it ran: it may have acted in part"
    return ToolResult(**{**result, "ran": "maybe", "message": message})


def _internal(call: Call, error: Exception) -> ToolResult:
    ran: Ran = "maybe" if call.stage in {"execution", "observers"} else "no"
    return ToolResult(
        tool_call_id=call.id,
        tool_name=call.tool,
        status="error",
        success=False,
        ran=ran,
        message=f"the environment failed: {describe(error)}",
    )
