"""The pipeline of a call, from its registration to its result and disposal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk import StepContext
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolResult
from flowengine.sdk.user_code import Shown, bounded, call_preview, computed
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.execution import execute, not_begun
from flowengine.tool_environment.journal import Function, approval_of
from flowengine.tool_environment.observers import observe
from flowengine.tool_environment.questions import unmasked
from flowengine.tool_environment.registry import disposed
from flowengine.tool_environment.results import response_of, result_of
from flowengine.tool_environment.tools import ArgumentFault, overrides

if TYPE_CHECKING:
    from flowengine.engines.results import ExecutionResult
    from flowengine.tool_environment.questions import Questions
    from flowengine.tool_environment.registry import EnvironmentParts

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
        call.submitted = True
        fault = self._fault(call)
        if fault is not None:
            self._finish(call, response_of(result_of(call, "invalid", self._parts.mask(fault))))
            return call.response.result()
        decision = call.decision or self._questions.answer(call)
        if decision is None:
            call.masked = self._parts.mask(copy(call.args))
            preview = asyncio.ensure_future(self._preview(call))
            try:
                async with asyncio.timeout(self._parts.bounds.question):
                    decision = await self._questions.decision(call, preview)
            except TimeoutError:
                self._finish(call, response_of(_expired(call)))
                return call.response.result()
            if decision is None:
                self.abandon(call)
                return call.response.result()
            if decision.decision != "defer":
                call.decision = decision
        return EnvironmentResponse(result=decision)

    async def run(self, call: AdmittedCall) -> EnvironmentResponse:
        """Run a call with final arguments, and return a response in every case.

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
        except asyncio.CancelledError:  # the loop ends, not only the waiting task
            call.halt("aborted")
            began = call.stage in {"execution", "observers"}
            response = response_of(_stopped(call, began=began))
            raise
        except Exception as error:
            logging.getLogger("flowengine.tools").exception("call %s failed", call.id)
            response = response_of(_internal(call, f"the environment failed: {describe(error)}"))
            return response
        finally:
            if response is not None:
                self._finish(call, response)

    async def _result(self, call: AdmittedCall) -> ToolResult:
        parts, journal = self._parts, self._parts.journal
        call.masked = parts.mask(copy(call.args))
        decision = None
        if journal.find(call.id)[1] is None:
            fault = self._fault(call)
            if fault is not None:
                return result_of(call, "invalid", parts.mask(fault))
            call.definition = parts.registry.definition(call.tool) or call.definition
            decision = None if call.decision else self._questions.answer(call)
        ask, refused = partial(self._questions.ask, call), partial(self._questions.refused, call)
        functions = self._functions(call)
        result = await journal.make(call, functions, ask, refused, asks=decision is None)
        if result is None:
            why = "aborted while another process has it: it may have acted"
            return result_of(call, call.stop or "aborted", why, ran="maybe")
        if approval_of(result) is not None:  # no decision was made
            result = await journal.withdraw(call)
            if call.refusal is not None:
                return result_of(call, "rejected", parts.mask(call.refusal))
            if result.status == "cancelled":
                return not_begun(call)
        return self._read(call, result)

    # The steps of its execution

    def _functions(self, call: AdmittedCall) -> tuple[Function, Function, Function | None]:
        """Return the functions of the call, with only plain data as input and output."""

        async def run(*, step_of_call: StepContext, **given: Any) -> dict[str, Any]:
            return await self._run(call, step_of_call, given)

        async def tell(*, result: Any) -> dict[str, Any]:
            return await self._observe(call, result)

        return run, tell, getattr(call.instance, "preview", None)

    async def _run(
        self, call: AdmittedCall, step: StepContext, given: dict[str, Any]
    ) -> dict[str, Any]:
        """Run the tool (first step)."""
        edited = None if call.decision is None else call.decision.args
        args = unmasked(given if edited is None else edited, call.masked, call.args)
        call.changed = None if args == call.args else args
        if call.stage == "parameters_final":  # approved elsewhere, or by a policy
            call.move("approval", call=call.view(), asked=False)
        asked = step.approval is not None
        decision = call.decision or (self._parts.journal.decided(call) if asked else None)
        try:
            result = await _in_context(call, execute(self._parts, call, args, step))
        except asyncio.CancelledError:  # it waited for its turn, or had ended
            call.halt("aborted")
            result = _stopped(call, began=call.stage == "execution")
        result = _with_feedback(result, decision)
        if result.ran != "no":
            result = result.model_copy(update={"written_by": call.options.written_by})
        observers = self._parts.observers.now() if result.ran != "no" else []
        if call.stage == "execution":
            call.move("observers", names=[observer.name for observer in observers])
        return {
            "result": result.model_dump(exclude_defaults=True),
            "state": self._state_of(call),
            "is_observed": bool(observers),
        }

    def _state_of(self, call: AdmittedCall) -> Any:
        """Return the changed state of a call's tool for later processes, if any."""
        parts = self._parts
        return parts.mask(parts.state_of(call.tool).to_keep()) if parts.journal.is_kept else None

    async def _observe(self, call: AdmittedCall, result: Any) -> dict[str, Any]:
        """Run the current observers (second step, if there were any)."""
        parts = self._parts
        made = ToolResult(**result, replayed=call.stage != "observers")
        answers = await _in_context(call, observe(
            parts.observers.now(), parts.shown(call), made, parts.bounds.observer, parts.mask
        ))  # fmt: skip
        return {name: answer.model_dump() for name, answer in answers.items()}

    def _read(self, call: AdmittedCall, result: ExecutionResult) -> ToolResult:
        """Return the result of a call from its execution."""
        if result.outputs is not None:
            answer = result.outputs["made"]
            if isinstance(answer, dict) and "result" in answer:
                observed = result.outputs["observed"] or {}
                made = ToolResult(**answer["result"], observer_results=observed)
            else:  # a human supplied the result
                made = result_of(call, "ok", content=answer)
            if made.success and made.ran == "no":
                made = _with_feedback(made, call.decision or self._parts.journal.decided(call))
        elif result.status == "cancelled":
            late = self._parts.journal.late_result(call)
            began = late is None and self._parts.journal.has_begun(call)
            made = _stopped(call, began=began) if late is None else ToolResult(**late)
        elif result.error is None:
            why = "the process ended during the call: it is unknown whether it acted"
            made = result_of(call, "uncertain", why, ran="maybe")
        elif result.error["type"] == "Rejected":
            decision = call.decision or self._parts.journal.decided(call)
            assert decision is not None
            reason = f": {decision.feedback}" if decision.feedback else ""
            why = self._parts.mask(f"rejected by {decision.by}{reason}")
            made = _with_feedback(result_of(call, "rejected", why), decision)
        elif result.error["type"] == "Expired":
            made = _expired(call)
        elif result.error["type"] == "Refused":
            made = result_of(call, "rejected", result.error["message"])
        else:
            made = _internal(call, result.error["message"])
        replayed = call.replayed and call.stage not in {"execution", "observers"}
        return made.model_copy(update={"replayed": replayed})

    async def _preview(self, call: AdmittedCall) -> Shown:
        """Return the preview of a call that no execution has begun."""
        tool: Any = call.instance
        if not overrides(tool, "preview"):
            return Shown()
        return await computed(lambda: call_preview(tool.preview, call.masked), self._parts.mask)

    def _fault(self, call: AdmittedCall) -> str | None:
        """Return the fault of the final arguments, if any."""
        assert call.definition is not None
        if call.fault is not None:
            return call.fault
        try:
            call.definition.signature.convert(call.args)
        except ArgumentFault as error:
            return str(error)
        return None

    # The end

    def _finish(self, call: AdmittedCall, response: EnvironmentResponse) -> None:
        call.move("result", result=response.tool_result, call=call.view())
        call.respond(response)
        if overrides(call.instance, "dispose") or not call.is_shown:
            self._parts.keep_running(self._dispose(call))
        else:
            call.forget()

    def abandon(self, call: AdmittedCall) -> None:
        """End a call that was never made, as aborted, unless it has ended."""
        if not call.response.done():
            self._finish(call, response_of(not_begun(call)))

    async def _dispose(self, call: AdmittedCall) -> None:
        """Dispose of the instance of a call, while its result is already available."""
        parts = self._parts
        await bounded(parts.bounds.dispose, call.shown())
        outcome = await bounded(parts.bounds.dispose, disposed(call.instance))
        why = outcome.fault(parts.bounds.dispose)
        if why is not None:
            call.warn("dispose", f"dispose of tool '{call.tool}': {why}")
        call.forget()


async def _in_context(call: AdmittedCall, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a part of a call in the context of its caller instead of the engine's."""
    return await asyncio.get_running_loop().create_task(work, context=call.context)


def _with_feedback(result: ToolResult, decision: ApprovalResponse | None) -> ToolResult:
    if decision is None or (decision.feedback is None and not decision.images):
        return result
    return result.model_copy(
        update={"feedback": decision.feedback, "feedback_images": decision.images}
    )


def _stopped(call: AdmittedCall, *, began: bool) -> ToolResult:
    if not began:
        return not_begun(call)
    message = "aborted while it ran: it may have acted in part"
    return result_of(call, call.stop or "aborted", message, ran="maybe")


def _expired(call: AdmittedCall) -> ToolResult:
    return result_of(call, "expired", "it was not decided in time; nothing was done")


def _internal(call: AdmittedCall, message: str) -> ToolResult:
    began = call.replayed or call.stage in {"execution", "observers"}
    return result_of(call, "error", message, ran="maybe" if began else "no")
