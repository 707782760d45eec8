"""The pipeline of a call, from its registration to its result and disposal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.results import ExecutionResult
from flowengine.sdk import StepContext
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolResult
from flowengine.sdk.user_code import Shown, bounded, call_preview, computed
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.execution import Attempt, not_begun
from flowengine.tool_environment.journal import approval_of
from flowengine.tool_environment.observers import observe
from flowengine.tool_environment.questions import Questions, unmasked
from flowengine.tool_environment.registry import EnvironmentParts, disposed
from flowengine.tool_environment.results import response_of, result_of
from flowengine.tool_environment.tools import ArgumentFault, overrides

_Result = TypeVar("_Result")


class CallPipeline:
    """Runs the calls of one environment.

    Args:
        parts: The environment's parts.
        questions: Requests decisions about calls.
    """

    def __init__(self, parts: EnvironmentParts, questions: Questions) -> None:
        self._parts = parts
        self._questions = questions

    async def approve(self, call: AdmittedCall) -> EnvironmentResponse:
        """Request a decision about a call that is made later, and return it."""
        await call.finish()
        call.submitted = True
        if (fault := self._fault(call)) is not None:
            return await self._finish(call, result_of(call, "invalid", self._parts.mask(fault)))
        decision = call.decision or self._questions.answer(call)
        if decision is None:
            call.masked = self._parts.mask(copy(call.args))
            preview = asyncio.ensure_future(self._preview(call))
            try:
                async with asyncio.timeout(self._parts.bounds.question):
                    decision = await self._questions.decision(call, preview)
            except TimeoutError:
                return await self._finish(call, _expired(call))
            if decision is None:
                return await self.abandon(call)
            if decision.decision != "defer":
                call.decision = decision
        return EnvironmentResponse(result=decision)

    async def run(self, call: AdmittedCall) -> EnvironmentResponse:
        """Run a call, and return a response in every case.

        Args:
            call: The call.

        Returns:
            The response.
        """
        try:
            await call.finish()
            result = await self._result(call)
        except asyncio.CancelledError:  # the loop ends, not only the waiting task
            call.halt("aborted")
            await self._finish(call, _stopped(call))
            raise
        except Exception as error:
            logging.getLogger("flowengine.tools").exception("call %s failed", call.id)
            result = _internal(call, f"the environment failed: {describe(error)}")
        return await self._finish(call, result)

    async def _result(self, call: AdmittedCall) -> ToolResult:
        parts, journal = self._parts, self._parts.journal
        call.masked = parts.mask(copy(call.args))
        decision = None
        if journal.find(call.id)[1] is None:
            if (fault := self._fault(call)) is not None:
                return result_of(call, "invalid", parts.mask(fault))
            call.definition = parts.registry.definition(call.tool) or call.definition
            decision = None if call.decision else self._questions.answer(call)
        ask, refused = partial(self._questions.ask, call), partial(self._questions.refused, call)

        async def run(*, step_of_call: StepContext, **given: Any) -> dict[str, Any]:
            return await self._run(call, step_of_call, given)

        made = await journal.make(call, run, ask, refused, asks=decision is None)
        if made is None:
            why = "aborted while another process has it: it may have acted"
            return result_of(call, call.stop or "aborted", why, ran="maybe")
        if approval_of(made) is not None:  # no decision was made
            made = await journal.withdraw(call)
            if call.refusal is not None:
                return result_of(call, "rejected", parts.mask(call.refusal))
            if made.status == "cancelled":
                return not_begun(call)
        result = self._read(call, made)
        if call.stage == "execution":
            call.move("observers", names=[*parts.observers])
            seen = observe(
                parts.observers, parts.shown(call), result, parts.bounds.observer, parts.mask
            )
            result.observer_results = await _in_context(call, seen)
        return result

    async def _run(
        self, call: AdmittedCall, step: StepContext, given: dict[str, Any]
    ) -> dict[str, Any]:
        """Run the tool, as the step of its execution, with only plain data as output."""
        edited = None if call.decision is None else call.decision.args
        args = unmasked(given if edited is None else edited, call.masked, call.args)
        call.changed = None if args == call.args else args
        if call.stage == "parameters_final":  # approved elsewhere, or by a policy
            call.move("approval", call=call.view(), asked=False)
        decision = call.decision
        if decision is None and step.approval is not None:
            decision = self._parts.journal.decided(call)
        try:
            result = await _in_context(call, Attempt(self._parts, call, args, step).run())
        except asyncio.CancelledError:  # it waited for its turn, or had ended
            call.halt("aborted")
            result = _stopped(call)
        result = _with_feedback(result, decision)
        if result.ran != "no":
            result = result.model_copy(update={"written_by": call.options.written_by})
        call.result = result
        return {"result": result.model_dump(exclude_defaults=True)}

    def _read(self, call: AdmittedCall, result: ExecutionResult) -> ToolResult:
        """Return the result of a call from its execution."""
        journal, error = self._parts.journal, result.error
        if result.outputs is not None:
            answer = result.outputs["made"]
            if isinstance(answer, dict) and "result" in answer:
                made = ToolResult(**answer["result"])
            else:  # a human supplied the result
                made = result_of(call, "ok", content=answer)
            if made.success and made.ran == "no":
                made = _with_feedback(made, call.decision or journal.decided(call))
        elif result.status == "cancelled":
            made = call.result or _stopped(call, began=journal.has_begun(call))
        elif error is None:
            why = "the process ended during the call: it is unknown whether it acted"
            made = result_of(call, "uncertain", why, ran="maybe")
        elif error["type"] == "Rejected":
            decision = call.decision or journal.decided(call)
            assert decision is not None
            reason = f": {decision.feedback}" if decision.feedback else ""
            why = self._parts.mask(f"rejected by {decision.by}{reason}")
            made = _with_feedback(result_of(call, "rejected", why), decision)
        elif error["type"] == "Expired":
            made = _expired(call)
        elif error["type"] == "Refused":
            made = result_of(call, "rejected", error["message"])
        else:
            made = _internal(call, error["message"])
        return made.model_copy(update={"replayed": call.replayed and call.stage != "execution"})

    async def _preview(self, call: AdmittedCall) -> Shown:
        """Return the preview of a call that no execution has begun."""
        tool: Any = call.instance
        if not overrides(tool, "preview"):
            return Shown()
        return await computed(
            lambda _: call_preview(tool.preview, call.masked), nullcontext(), self._parts.mask
        )

    def _fault(self, call: AdmittedCall) -> str | None:
        """Return the fault of the final arguments, if any."""
        try:
            call.definition.signature.convert(call.args)
        except ArgumentFault as error:
            return str(error)
        return None

    # The end

    async def _finish(self, call: AdmittedCall, result: ToolResult) -> EnvironmentResponse:
        """End a call with its result, and dispose of its instance."""
        bound, response = self._parts.bounds.dispose, response_of(result)
        call.move("result", result=result, call=call.view())
        call.respond(response)
        instance, call.instance = call.instance, None
        if (why := (await bounded(bound, disposed(instance))).fault(bound)) is not None:
            self._parts.warn("dispose", f"dispose of tool '{call.tool}': {why}")
        call.move("disposal")
        return response

    async def abandon(self, call: AdmittedCall) -> EnvironmentResponse:
        """End a call that was never made, as aborted, unless it has ended."""
        if call.response.done():
            return call.response.result()
        return await self._finish(call, not_begun(call))


async def _in_context(call: AdmittedCall, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a part of a call in the context of its caller instead of the engine's."""
    return await asyncio.get_running_loop().create_task(work, context=call.context)


def _with_feedback(result: ToolResult, decision: ApprovalResponse | None) -> ToolResult:
    if decision is None or (decision.feedback is None and not decision.images):
        return result
    return result.model_copy(
        update={"feedback": decision.feedback, "feedback_images": decision.images}
    )


def _stopped(call: AdmittedCall, *, began: bool | None = None) -> ToolResult:
    if not (call.stage == "execution" if began is None else began):
        return not_begun(call)
    message = "aborted while it ran: it may have acted in part"
    return result_of(call, call.stop or "aborted", message, ran="maybe")


def _expired(call: AdmittedCall) -> ToolResult:
    return result_of(call, "expired", "it was not decided in time. Nothing was done")


def _internal(call: AdmittedCall, message: str) -> ToolResult:
    began = call.replayed or call.stage in {"execution", "observers"}
    return result_of(call, "error", message, ran="maybe" if began else "no")
