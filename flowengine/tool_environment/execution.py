"""Execution of calls by the engine, and their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk import StepContext, StepError
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.tools.tool_calls import EnvironmentResponse, ToolCall, ToolResult
from flowengine.tool_environment.approval import DEFERRED, Deciding
from flowengine.tool_environment.calls import Call, has_begun, is_asked, resolve
from flowengine.tool_environment.observers import data_of
from flowengine.tool_environment.results import (
    internal,
    response_of,
    result_of,
    stopped,
    with_feedback,
)
from flowengine.tool_environment.runs import ToolRuns
from flowengine.tool_environment.tools import overrides

VIEW_TIME = 2.0
"""Maximum seconds for `load_ui`."""


class Executing(Deciding):
    """The part of an environment that makes its calls."""

    _runs: ToolRuns

    async def _show(self, call: Call) -> None:
        """Publish the arguments so far, and the tool's own view of them, if they have changed."""
        if call.args == call.published:
            return
        call.published = copy(call.args)
        self._watchers.send("parameters_updated", call, call=call.view())
        if overrides(call.instance, "load_ui"):
            shown = call_plugin(call.instance.load_ui, copy(call.args))
            data, why = await data_of(shown, VIEW_TIME)
            if why is not None:
                self._watchers.warn("load_ui", f"load_ui of '{call.tool}': {why}", call)
            elif data is not None:
                self._watchers.send("view", call, view=data)

    async def _run(self, call: Call) -> EnvironmentResponse:
        """Run a call, and return a response in every case."""
        try:
            if call.is_loading:
                await self._show(call)
                call.is_loading = False
            result = await self._result(call)
        except asyncio.CancelledError:  # the loop ends, not only the waiting task
            call.halt("aborted")
            await self._end(call, stopped(call, began=call.began))
            raise
        except Exception as error:
            logging.getLogger("flowengine.tools").exception("call %s failed", call.id)
            result = internal(call, f"the environment failed: {describe(error)}")
        return await self._end(call, result)

    async def _result(self, call: Call) -> ToolResult:
        executions, mask = self._executions, self._watchers.mask
        call.masked = mask(copy(call.args))
        call.execution, kept = executions.find(call.id)
        is_other = kept is not None and kept["version"] != call.definition.version
        if is_other and is_asked(executions.engine.executions.result(call.execution)):
            await executions.withdraw(call)  # the question is about another version
            call.execution, kept = executions.find(call.id)
        is_approved = False
        if kept is None:
            if (invalid := self._invalid(call)) is not None:
                return invalid
            is_approved = call.decision is None and self._automatic(call) is not None

        async def run(*, step_of_call: StepContext, **given: Any) -> dict[str, Any]:
            decision = call.decision
            if decision is None and step_of_call.approval is not None:
                decision = executions.decided(call)
            edited = None if call.decision is None else call.decision.args
            args = call.unmasked(given if edited is None else edited)
            call.changed = None if args == call.args else args
            result = with_feedback(await self._runs.run(call, step_of_call, args), decision)
            if result.ran != "no":
                result = result.model_copy(update={"written_by": call.options.written_by})
            call.ended = result
            return {"result": result.model_dump(exclude_defaults=True)}

        def refused(error: FlowEngineError) -> None:
            decision, call.decision = call.decision, None
            if decision is not None:
                call.refusal = f"the decision of {decision.by} is not valid: {error.message}"

        ask = partial(self._ask, call)
        with executions.engine.approvals.consulting(call.execution, ask, refused):
            made = await executions.run(call, kept, run, asks=not is_approved)
        if made is None:
            why = "aborted while another process has it: it may have acted"
            return result_of(call, call.signal.reason or "aborted", why, ran="maybe")
        if is_asked(made):  # no decision was made
            made = await executions.withdraw(call)
            if call.refusal is not None:
                return result_of(call, "rejected", mask(call.refusal))
            if made.status == "cancelled":
                return stopped(call)
        result = self._read(call, made)
        if call.began:
            result.observer_results = await self._watchers.observe(call.view(), result)
        return result

    async def _ask(self, call: Call, _: ToolCall, preview: Awaitable[Shown]) -> EnvironmentResponse:
        """Request a decision about a call for the engine, unless there is one already."""
        call.decision = call.decision or await self._requested(call, preview)
        if call.decision is None:
            return EnvironmentResponse(result=DEFERRED)
        return EnvironmentResponse(result=self._watchers.copy(call.decision))

    def _read(self, call: Call, made: ExecutionResult) -> ToolResult:
        """Return the result of a call from its execution."""
        error, decided = made.error, self._executions.decided
        if made.outputs is not None:
            answer = made.outputs["made"]
            if isinstance(answer, dict) and "result" in answer:
                result = ToolResult(**answer["result"])
            else:  # a human supplied the result
                result = result_of(call, "ok", content=answer)
                result = with_feedback(result, call.decision or decided(call))
        elif made.status == "cancelled":
            shown = self._executions.engine.executions.show(call.execution)
            result = call.ended or stopped(call, began=has_begun(shown))
        elif error is None:
            why = "the process ended during the call: it is unknown whether it acted"
            result = result_of(call, "uncertain", why, ran="maybe")
        elif error["type"] == "Rejected":
            decision = call.decision or decided(call)
            assert decision is not None
            reason = f": {decision.feedback}" if decision.feedback else ""
            why = self._watchers.mask(f"rejected by {decision.by}{reason}")
            result = with_feedback(result_of(call, "rejected", why), decision)
        elif error["type"] == "Expired":
            result = result_of(call, "expired", "it was not decided in time. Nothing was done")
        elif error["type"] == "Refused":
            result = result_of(call, "rejected", error["message"])
        else:
            result = internal(call, error["message"])
        return result.model_copy(update={"replayed": call.replayed and not call.began})

    def _invalid(self, call: Call) -> ToolResult | None:
        """Return the result of a call whose arguments do not fit, or None."""
        try:
            call.definition.convert(call.args)
        except (InputError, StepError) as error:
            return result_of(call, "invalid", self._watchers.mask(error.message))
        return None

    async def _end(self, call: Call, result: ToolResult) -> EnvironmentResponse:
        """End a call with its result, and dispose of its instance."""
        if not call.response.done():
            self._watchers.send("result", call, result=result, call=call.view())
            resolve(call.stopped, None)
            await self._dispose(call.tool, call.instance)
            call.is_loading, call.produced, call.instance = False, [], None
            call.response.set_result(response_of(result))
        return call.response.result()
