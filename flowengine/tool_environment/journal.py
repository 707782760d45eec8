"""Calls as executions of an engine: it journals each one, and its approval is a wait there.

The flow of a tool has two steps. `call` asks, if somebody is to be asked, and runs the tool;
`observe` tells the observers. What a call needs that is alive is a runtime resource of its
execution, and the engine keeps arguments with secrets masked: the call itself has the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flowengine.agents.live_functions import LIVE
from flowengine.errors import Conflict, NotFound
from flowengine.sdk.tool_calls import ApprovalResponse, Image
from flowengine.tool_environment.call import Call, digest_of

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.infos import WaitInfo
    from flowengine.engines.results import ExecutionResult

Step = Callable[..., Coroutine[Any, Any, dict[str, Any]]]
"""The function of a step of a call."""
TASK = "task"
"""The label that has the execution id of the tool environment."""
TOOL = "tool"
_CALL, _OBSERVE = "call", "observe"
"""Steps of the flow of a tool."""
_OBSERVERS = "/observers"
"""Names the function of the second step; that of the first has the name of the tool."""
LOOK = 0.1
"""Seconds between two looks at what other processes do."""
_PRUNED = 1_000
"""Calls after which an engine in memory forgets those that have ended."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_CHOICES = {"approve": "approve", "edit": "approve", "reject": "reject", "respond": "respond"}


class Elsewhere(Exception):
    """Another process has a call that is to stop here."""


class Journal:
    """The executions of one environment.

    Args:
        task: Its execution id.
        engine: Runs them; None: one in memory, which is made when the first call comes.
    """

    def __init__(self, task: str, engine: Engine | None) -> None:
        self._task = task
        self._engine = engine
        self.is_kept = engine is not None
        """Whether other processes may have made, or decided on, calls of the same task."""
        self._lock = threading.Lock()
        self._begun = 0

    @property
    def engine(self) -> Engine:
        """The engine."""
        with self._lock:
            if self._engine is None:
                from flowengine.engines.engine import Engine

                self._engine = Engine(None)
            return self._engine

    async def close(self) -> None:
        """Close the engine, if it is the environment's own."""
        if self._engine is not None and not self.is_kept:
            await self._engine.__aexit__()

    def find(self, call: str) -> Mapping[str, Any] | None:
        """Return the inputs of the execution of a call that an earlier process made, if it counts.

        Args:
            call: Id of the call.
        """
        return self._kept(call)[1] if self.is_kept else None

    async def begin(self, call: Call, run: Step, observe: Step, *, asks: bool) -> ExecutionResult:
        """Begin the execution of a call, or go on with what there is of it.

        Args:
            call: The call; what the engine keeps of its arguments is in `masked`.
            run: Runs the tool; takes a `StepContext` and the arguments.
            observe: Takes what came of it.
            asks: Whether somebody is asked first.

        Raises:
            Elsewhere: Another process has it, and the call is to stop.
        """
        assert call.definition is not None
        live = {LIVE: {call.tool: run, _OBSERVERS: observe}}
        version = call.definition.version()
        call.execution, kept = self._kept(call.id) if self.is_kept else (self._id(call.id, 0), None)
        if kept is not None:
            asked = approval_of(self.engine.result(call.execution))
            if asked is None or kept["version"] == version:
                call.replayed = True
                return await self.go_on(call, live)
            await self.withdraw(call)  # what was asked about is not what would run
            call.execution, _ = self._kept(call.id)
        options = call.definition.options
        schema = json.dumps(call.definition.signature.schema, sort_keys=True)
        approval = ("required" if options.approval == "required" else "ask") if asks else "none"
        flow = flow_of(call.tool, schema, options.effect, version, approval)
        inputs = {
            "call": call.id, "tool": call.tool, "args": call.masked,
            "digest": digest_of(call.args), "version": version,
        }  # fmt: skip
        self._begun += 1
        if not self.is_kept and self._begun % _PRUNED == 0:
            self.engine.prune()
        try:
            return await self.engine.run_async(
                flow, inputs, id=call.execution, labels={TASK: self._task, TOOL: call.tool},
                runtime_resources=live,
            )  # fmt: skip
        except Conflict:  # somebody has begun it in this moment
            there = self._kept(call.id)[1]
            if there is None or there["digest"] != inputs["digest"]:
                raise
            call.replayed = True
            return await self.go_on(call, live)

    async def go_on(self, call: Call, live: Mapping[str, Any] | None = None) -> ExecutionResult:
        """Go on with the execution of a call, as soon as no other process has it.

        Args:
            call: The call.
            live: What it needs that is alive, if this process has not begun it.

        Raises:
            Elsewhere: Another process has it, and the call is to stop.
        """
        while True:
            try:
                result = self.engine.result(call.execution)
                if result.ended:
                    return result
                return await self.engine.resume_async(call.execution, runtime_resources=live)
            except Conflict:
                if await call.unless_stopped(asyncio.ensure_future(asyncio.sleep(LOOK))):
                    continue
                raise Elsewhere from None

    async def decide(
        self, call: Call, wait: WaitInfo, decision: ApprovalResponse
    ) -> ExecutionResult:
        """Record a decision, and go on."""
        given: Any = {"comment": decision.feedback}
        if decision.decision == "respond":
            given["value"] = decision.content
        else:
            given["images"] = [each.url for each in decision.images]
        if decision.args is not None:
            shown = wait["subject"]
            given["edit"] = {
                key: value
                for key, value in decision.args.items()
                if key not in shown or shown[key] != value
            } or None
        assert decision.decision is not None
        call.decision = decision
        try:
            made = await self.engine.decide_async(wait["id"], _CHOICES[decision.decision], **given)
        except Conflict:  # somebody else was first
            call.decision = None
            return await self.go_on(call)
        return made.result or await self.go_on(call)

    def is_open(self, wait: WaitInfo) -> bool:
        """Return whether nobody has decided on a wait."""
        return self.engine.wait(wait["id"])["status"] == "pending"

    async def withdraw(self, call: Call) -> ExecutionResult:
        """End the execution of a call that has not begun, unless somebody has just decided."""
        with suppress(Conflict):  # it has ended
            await self.engine.cancel_async(call.execution)
        return self.engine.result(call.execution)

    def decided(self, call: Call) -> ApprovalResponse | None:
        """Return the decision whether a call may run, whoever made it; None: nobody was asked."""
        for event in reversed(list(self.engine.events(call.execution))):
            if event["type"] == "decided" and event["choice"] in _CHOICES:
                files = [
                    self.engine.store.artifact(one["sha256"]) for one in event.get("images") or ()
                ]
                return ApprovalResponse(
                    approved=event["choice"] == "approve",
                    feedback=event.get("comment"),
                    images=[Image.model_validate(file.read_bytes()) for file in files],
                    by=event["by"],
                )
        return None

    def state_of(self, tool: str) -> Mapping[str, Any]:
        """Return what a tool had in its state at the end of its last call: `number`, `values`."""
        newest: Mapping[str, Any] = {"number": 0, "values": {}}
        after = None
        while self.is_kept:
            page = self.engine.executions(labels={TASK: self._task, TOOL: tool}, after=after)
            for each in page.items:
                outputs = self.engine.result(each["execution"]).outputs or {}
                state = outputs.get("state") or newest
                newest = max(newest, state, key=lambda one: one["number"])
            after = page.next
            if after is None:
                break
        return newest

    def _kept(self, call: str) -> tuple[str, Mapping[str, Any] | None]:
        """Return the execution of a call, and its inputs; None: it is still to be begun.

        One that was withdrawn before it began does not count: the same call may be made again.
        """
        number = 0
        while True:
            id = self._id(call, number)
            try:
                shown = self.engine.show(id)
            except NotFound:
                return id, None
            if shown["status"] != "cancelled":
                return id, shown["inputs"]
            number += 1

    def _id(self, call: str, number: int) -> str:
        """Return the id of an execution; none is the beginning of another."""
        return f"{_part(self._task)}.{_part(call)}.{number:04}"


def approval_of(result: ExecutionResult) -> WaitInfo | None:
    """Return the open question whether a call may run, if an execution waits for it."""
    return next((wait for wait in result.waits if wait["kind"] == "approval"), None)


def _part(name: str) -> str:
    """Return a name as a part of an execution id, or its digest: only that has two dots."""
    if _PART.fullmatch(name):
        return name
    return f"x..{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


@lru_cache(maxsize=256)
def flow_of(name: str, schema: str, effect: str, version: str, approval: str) -> LoadedFlow:
    """Return the flow of a tool.

    Args:
        name: Its name.
        schema: JSON Schema of its arguments.
        effect: Whether it may run again.
        version: Digest of its code: an approval is for this version.
        approval: `ask`, `required` or `none`.
    """
    from flowengine.engines.flows import load
    from flowengine.flow.building.flow import Flow
    from flowengine.flow.models.types import in_generated
    from flowengine.sdk.literal_text import literal_text

    inputs = {"call": str, "tool": str, "args": dict, "digest": str, "version": str}
    flow = Flow("tool_call", inputs=inputs)
    function = {"live": name, "version": version}
    tool: dict[str, Any] = {
        "agent_function": {"function": function, "args": {"type": "object"}},
        "args": literal_text(json.loads(schema)),
        "effect": effect,
    }
    if approval != "none":
        tool["approval"] = {"edit": True, "required": approval == "required"}
    own = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    flow.declare("tools", own, tool)
    args: Any = "${{ inputs.args }}"
    flow.step(_CALL, call=own, with_=args)
    given = {"function": {"live": _OBSERVERS}, "args": {"type": "object"}}
    flow.step(
        _OBSERVE,
        action={"agent_function": given},
        with_={"result": f"${{{{ steps.{_CALL}.output }}}}"},
        effect="idempotent",
    )
    for output in ("result", "state"):
        flow.output(output, f"${{{{ steps.{_OBSERVE}.output.{output} }}}}")
    token = in_generated.set(True)
    try:
        return load(flow)
    finally:
        in_generated.reset(token)
