"""The messages of a tool environment about calls, derived from the journal of an execution.

They depend on the journal alone, so that their numbers stay the same, and new ones only follow.
Data outside the journal is missing: parts of arguments, progress, and the work of observers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowengine.agents.actions import answering_message
from flowengine.engines.executions.linked_flows import LinkedFlows, Moment, walk
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.kernel.graph.specs import StepSpec
from flowengine.kernel.view import counting, edited
from flowengine.sdk.call_answers import value_of
from flowengine.sdk.tool_calls import ToolCall, ToolResult
from flowengine.sdk.untrusted import unmarked

_STATUSES = {"Rejected": "rejected", "Refused": "rejected", "Expired": "expired"}
"""Type of an error → status of a call that did not run."""
_OF_ENVIRONMENT = "tool_call"
"""Id of the flows of a tool environment, see decision 24."""


def tool_messages(
    flows: LinkedFlows, hash: str, journal: Sequence[Event]
) -> Iterator[dict[str, Any]]:
    """Yield the messages about all calls of tools in an execution.

    Args:
        flows: The flows under which it ran.
        hash: Hash of the flow that it runs now.
        journal: Its events.

    Yields:
        `{number, type, tool_call_id, tool_name, address, …}`. The id of a call that a tool
        environment made is that of the environment. Any other one is the address of the step.
    """
    seen: list[Observation] = []
    calls = _Calls()
    number = 0
    for moment in walk(flows, hash, journal, seen):
        for message in calls.of(moment, seen):
            number += 1
            yield {"number": number, **message}
        seen.clear()


class _Calls:
    """The calls of one execution so far."""

    def __init__(self) -> None:
        self._given: Mapping[str, Any] = {}
        """The inputs of the execution."""
        self._open: dict[str, _Call] = {}
        """Address → a call that has not ended."""
        self._asked: dict[int, Mapping[str, Any]] = {}
        """Number of an open question about a call → its record."""

    def of(self, moment: Moment, seen: Sequence[Observation]) -> Iterator[dict[str, Any]]:
        """Yield the messages about one event, which has these observations."""
        event: Any = moment.event
        if event["type"] == "started":
            self._given = event.get("inputs") or {}
        asked: dict[int, Mapping[str, Any]] = {
            number: wait["record"]
            for number, wait in moment.state["waits"].items()
            if wait.get("record", {}).get("tool") and wait["owner"] == "permission"
        }
        if event["type"] == "decided" and event["wait"] not in asked:
            record = self._asked.get(event["wait"])
            call = None if record is None else self._open.get(record["address"])
            if record is not None and call is not None:
                yield call.decided(event, record)
        for observation in seen:
            spec = moment.graph.flow["steps"][observation.step]
            is_map = spec.get("map") and not observation.address.endswith(
                "]"
            )  # its items are the calls
            if spec.get("tool") and not is_map:
                yield from self._seen(moment.graph.flow["id"], observation, spec)
        for number, record in asked.items():
            call = self._open.get(record["address"])
            if number not in self._asked and call is not None:
                yield call.approval(record)
        self._asked = asked

    def _seen(
        self, flow: str, observation: Observation, spec: StepSpec
    ) -> Iterator[dict[str, Any]]:
        call = self._open.get(observation.address)
        if call is None and observation.status in ("waiting", "running", "succeeded", "failed"):
            call = self._open[observation.address] = self._new(flow, observation, spec)
            yield call.message("call_registered", call=call.view(is_loading=True))
            yield call.message("parameters_final", call=call.view())
        if call is None:
            return
        if observation.status == "running":
            call.runs(observation.input)
            yield call.message("execution", call=call.view())
        elif observation.status in ("succeeded", "failed", "cancelled"):
            del self._open[observation.address]
            yield call.message("result", result=call.result(observation), call=call.view())

    def _new(self, flow: str, observation: Observation, spec: Any) -> _Call:
        function = (spec.get("task") or {}).get("function")
        is_own = flow == _OF_ENVIRONMENT and isinstance(function, Mapping) and "live" in function
        id = str(self._given.get("call")) if is_own else observation.address
        return _Call(id, observation.address, str(spec["tool"]), observation.input)


class _Call:
    """A call that has not ended.

    Args:
        id: Its id.
        address: Address of its step.
        tool: Name of the tool.
        given: Input of the step.
    """

    def __init__(self, id: str, address: str, tool: str, given: Any) -> None:
        self._id = id
        self._address = address
        self._tool = tool
        self._args = _arguments(given)
        self._ran = False
        self._decided: Mapping[str, Any] = {}
        """The message about the decision."""

    def message(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return a message."""
        head = {"type": kind, "tool_call_id": self._id, "tool_name": self._tool}
        return {**head, "address": self._address, **fields}

    def view(self, **fields: Any) -> dict[str, Any]:
        """Return the call as data."""
        call = ToolCall.model_construct(
            tool_call_id=self._id, tool_name=self._tool, args=self._args, **fields
        )
        return call.model_dump()

    def approval(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message about a question."""
        subject = record.get("subject")
        self._args = dict(subject) if isinstance(subject, Mapping) else self._args
        answer = record.get("found")
        shown = self.view(
            is_approval_pending=True,
            names=list(record.get("names") or ()),
            preview=record.get("preview"),
            preview_note=record.get("note"),
            found=None if answer is None else {key: answer[key] for key in ("action", "target")},
        )
        return self.message("approval", call=shown, asked=True)

    def decided(self, event: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message about a decision."""
        kind = counting(dict(record), event["choice"])
        args = None
        if event.get("edits"):
            kind, args = "edit", edited(record["subject"], event["edits"])
        self._decided = self.message(
            "decided",
            decision=event["choice"] if kind == "other" else kind,
            by=event["by"],
            feedback=event.get("comment"),
            args=args,
            auto_approve=None,
        )
        return dict(self._decided)

    def runs(self, given: Any) -> None:
        """Note that the tool runs, with its final arguments."""
        self._ran = True
        self._args = _arguments(given)

    def result(self, observation: Observation) -> dict[str, Any]:
        """Return the result as data."""
        output: Any = observation.output
        if isinstance(output, Mapping) and isinstance(found := output.get("result"), Mapping):
            return ToolResult.model_construct(**found).model_dump()
        if answer := answering_message(output):
            output = value_of(observation.output.get("value"))
            if observation.error is not None:
                output = unmarked(str(answer.get("content")))
        status = "ok"
        if observation.status == "cancelled":
            status = "aborted"
        elif observation.error is not None:
            status = _STATUSES.get(observation.error["type"], "error")
        message = None if observation.error is None else observation.error["message"]
        feedback = self._decided.get("feedback")
        if status == "rejected" and self._decided:
            message = f"rejected by {self._decided['by']}{f': {feedback}' if feedback else ''}"
        made = ToolResult.model_construct(
            tool_call_id=self._id,
            tool_name=self._tool,
            success=status == "ok",
            status=status,
            content=output,
            ran="yes" if self._ran else "no",
            args=self._decided.get("args"),
            feedback=feedback,
            message=message,
        )
        return made.model_dump()


def _arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a call, from the input of its step."""
    if not isinstance(given, Mapping):
        return {}
    args = given.get("args") if set(given) == {"args"} else given
    return dict(args) if isinstance(args, Mapping) else dict(given)
