"""Calls as executions of an engine, which journals each call and holds its approval as a wait.

The flow of a tool has one step, which waits for an approval if one is needed, and runs the tool.
Live objects of a call are runtime resources of its execution. The engine stores the arguments with
secrets masked. The `AdmittedCall` has the original ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any

from flowengine.agents.live_functions import LIVE
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.infos import ExecutionInfo, WaitInfo
from flowengine.engines.people.tool_authority import CallAnswer
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, FlowEngineError, NotFound
from flowengine.flow.building.flow import Flow
from flowengine.flow.models.types import in_generated
from flowengine.sdk.tool_calls import ApprovalResponse, Image
from flowengine.sdk.visible_text import literal_text
from flowengine.tool_environment.call import AdmittedCall, digest_of
from flowengine.tool_environment.tools import overrides

Function = Callable[..., Any]
"""A function of the flow of a call."""
TASK = "task"
"""The label that contains the execution id of the tool environment."""
TOOL = "tool"
_CALL = "call"
"""The step of the flow of a tool."""
LOOK = 0.1
"""Seconds between two checks for changes by other processes."""
_PRUNED = 1_000
"""Number of calls after which an engine in memory discards ended ones."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_CHOICES = ("approve", "reject", "respond")


class CallJournal:
    """The executions of one environment.

    Args:
        task: Its execution id.
        engine: Runs the executions. None: an engine in memory, created with the first call.
        expires: Seconds that a question stays open. None: unlimited.
        secrets: Name → reference of each secret to mask.
    """

    def __init__(
        self,
        task: str,
        engine: Engine | None,
        expires: float | None,
        secrets: Mapping[str, Any],
    ) -> None:
        self._task = task
        self._expires = None if expires is None else timedelta(seconds=expires)
        self._secrets = json.dumps(dict(secrets), sort_keys=True)
        self._engine = engine
        self.is_kept = engine is not None
        """Whether other processes can make calls of the same task, or decide about them."""
        self._lock = threading.Lock()
        self._begun = 0

    @property
    def engine(self) -> Engine:
        """The engine."""
        with self._lock:
            if self._engine is None:
                self._engine = Engine(None)
            return self._engine

    async def close(self) -> None:
        """Close the engine if the environment created it."""
        if self._engine is not None and not self.is_kept:
            await self._engine.__aexit__()

    def find(self, call: str) -> tuple[str, Mapping[str, Any] | None]:
        """Return the execution id of a call, and the inputs if the execution exists.

        An execution that was cancelled before the tool started does not count, so the call can be
        made again. One that is not of a tool environment does not count either.

        Args:
            call: Id of the call.
        """
        number = 0
        while True:
            id = f"{_part(self._task)}.{_part(call)}.{number:04}"  # none is a prefix of another
            if not self.is_kept:
                return id, None
            try:
                shown = self.engine.executions.show(id)
            except NotFound:
                return id, None
            is_own = shown["labels"].get(TASK) == self._task  # no client can set this label
            if is_own and (shown["status"] != "cancelled" or _has_begun(shown)):
                return id, shown["inputs"]
            number += 1

    async def make(
        self,
        call: AdmittedCall,
        function: Function,
        answer: CallAnswer,
        refused: Callable[[FlowEngineError], None],
        *,
        asks: bool,
    ) -> ExecutionResult | None:
        """Start the execution of a call or resume the existing one, until it ends or waits.

        Args:
            call: The call. The engine stores its `masked` arguments.
            function: Runs the tool.
            answer: Decides when the engine requests a decision.
            refused: As of `Engine.approvals.consulting`.
            asks: Whether the call needs a decision first.

        Returns:
            The state of the execution. It waits for approval if no decision was made. None: another
            process holds it, and the call was stopped here.
        """
        preview = getattr(call.instance, "preview", None)
        live = {LIVE: {call.tool: function, _preview_of(call.tool): preview}}
        call.execution, kept = self.find(call.id)
        is_other = kept is not None and kept["version"] != call.definition.version
        if is_other and approval_of(self.engine.executions.result(call.execution)) is not None:
            await self.withdraw(call)  # the question is about another version
            call.execution, kept = self.find(call.id)
        with self.engine.approvals.consulting(call.execution, answer, refused):
            if kept is None:
                return await self._start(call, live, asks=asks)
            return await self._go_on(call, live)

    async def _start(
        self, call: AdmittedCall, live: Mapping[str, Any], *, asks: bool
    ) -> ExecutionResult | None:
        options, version = call.definition.options, call.definition.version
        approval = ("required" if options.approval == "required" else "ask") if asks else "none"
        flow = flow_of(
            call.tool, call.definition.schema, options.effect, version, approval,
            overrides(call.instance, "preview"), self._expires, self._secrets,
        )  # fmt: skip
        inputs = {
            "call": call.id, "tool": call.tool, "args": call.masked,
            "digest": digest_of(call.args), "version": version,
        }  # fmt: skip
        self._begun += 1
        if not self.is_kept and self._begun % _PRUNED == 0:
            self.engine.executions.prune()
        try:
            return await self.engine.run_async(
                flow, inputs, id=call.execution, labels={TASK: self._task, TOOL: call.tool},
                runtime_resources=live,
            )  # fmt: skip
        except Conflict:  # another process started it first
            there = self.find(call.id)[1]
            if there is None or there["digest"] != inputs["digest"]:
                raise
            return await self._go_on(call, live)

    async def _go_on(self, call: AdmittedCall, live: Mapping[str, Any]) -> ExecutionResult | None:
        """Resume the execution of a call, as soon as no other process holds it.

        Returns:
            The state of the execution. None: the call was stopped here before.
        """
        call.replayed = True
        while True:
            result = self.engine.executions.result(call.execution)
            if result.ended:
                return result
            with suppress(Conflict):
                return await self.engine.resume_async(call.execution, runtime_resources=live)
            if not await call.unless_stopped(asyncio.ensure_future(asyncio.sleep(LOOK))):
                return None

    async def withdraw(self, call: AdmittedCall) -> ExecutionResult:
        """Cancel the execution of a call that has not started, and return its state."""
        with suppress(Conflict):  # it has ended
            await self.engine.executions.cancel_async(call.execution)
        return self.engine.executions.result(call.execution)

    def has_begun(self, call: AdmittedCall) -> bool:
        """Return whether any process has started the tool of a call."""
        return _has_begun(self.engine.executions.show(call.execution))

    def decided(self, call: AdmittedCall) -> ApprovalResponse | None:
        """Return the latest decision about the approval of a call, if any."""
        for event in reversed(list(self.engine.executions.events(call.execution))):
            if event["type"] == "decided" and event["choice"] in _CHOICES:
                images = [self._image(image["sha256"]) for image in event.get("images") or ()]
                return ApprovalResponse(
                    approved=event["choice"] == "approve",
                    feedback=event.get("comment"),
                    images=images,
                    by=event["by"],
                )
        return None

    def _image(self, sha256: str) -> Image:
        """Return an image attached to a decision."""
        with self.engine.store.open_artifact(sha256) as file:
            return Image.model_validate(file.read())


def approval_of(result: ExecutionResult) -> WaitInfo | None:
    """Return the open approval that an execution waits for, if any."""
    return next((wait for wait in result.waits if wait["kind"] == "approval"), None)


def _has_begun(shown: ExecutionInfo) -> bool:
    return any(step["attempts"] for step in shown["steps"])


def _part(name: str) -> str:
    """Return a name as a part of an execution id, or its digest, marked by two dots."""
    if _PART.fullmatch(name):
        return name
    return f"x..{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _preview_of(tool: str) -> str:
    """Return the key of the function that returns the preview of a tool."""
    return f"{tool}/preview"


@lru_cache(maxsize=256)
def flow_of(
    name: str,
    schema: str,
    effect: str,
    version: str,
    approval: str,
    has_preview: bool,
    expires: timedelta | None,
    secrets: str,
) -> LoadedFlow:
    """Return the flow of a tool.

    Args:
        name: Its name.
        schema: JSON Schema of its arguments.
        effect: Side effects of the tool, which determine whether it can run again.
        version: Digest of its code. An approval is limited to this version.
        approval: `ask`, `required` or `none`.
        has_preview: Whether the tool has a preview.
        expires: How long a question stays open. None: unlimited.
        secrets: References to the secrets of the environment, as JSON.
    """
    inputs = {"call": str, "tool": str, "args": dict, "digest": str, "version": str}
    flow = Flow("tool_call", inputs=inputs, secrets=json.loads(secrets))
    function: dict[str, Any] = {"live": name, "version": version}
    if has_preview:
        function["preview"] = {"live": _preview_of(name)}
    tool: dict[str, Any] = {
        "agent_function": {"function": function},
        "args": literal_text(json.loads(schema)),
        "effect": effect,
    }
    if approval != "none":
        tool["approval"] = {"edit": True, "required": approval == "required"}
        if expires is not None:
            tool["approval"]["expires"] = expires
    own = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    flow.declare("tools", own, tool)
    args: Any = "${{ inputs.args }}"
    flow.step(_CALL, call=own, with_=args)
    flow.output("made", f"${{{{ steps.{_CALL}.output }}}}")
    token = in_generated.set(True)
    try:
        return load(flow)
    finally:
        in_generated.reset(token)
