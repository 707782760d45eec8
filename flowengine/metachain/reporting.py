"""Log events about agents, derived from the updates of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.loggers import LEVELS, Kind, LogEvent, LoggerManager

if TYPE_CHECKING:
    from flowengine.engines.results import Update
    from flowengine.metachain.agent_events import AgentEvents, StreamPart


class Reporter:
    """Reports the actions of one execution's agents to a logger.

    Args:
        logger: Receives the events.
        events: Derives them from the updates of the engine.
        ends: Whether to report the end of each agent's work, too.
    """

    def __init__(self, logger: LoggerManager, events: AgentEvents, *, ends: bool = False) -> None:
        self._logger = logger
        self._events = events
        self._ends = ends
        self._changed: dict[str, dict[str, str]] = {}
        """Address of the calls of a reply → key of the context → address of the call that set it.
        """

    def __call__(self, update: Update) -> None:
        """Process an update of the engine."""
        for event in self._events.of(update):
            for kind, text, data, level in self._logged(event):
                self._logger.log(
                    LogEvent(
                        kind, text, event.agent, self._events.execution, event.step, data,
                        LEVELS[level],
                    )
                )  # fmt: skip

    def _logged(self, event: StreamPart) -> Iterator[tuple[Kind, str, dict[str, Any], str]]:
        """Yield kind, text, data and level of the log events for an agent event."""
        if event.kind == "handoff":
            yield "agent_handoff", f"hands over to {event.to}", {"to": event.to}, "INFO"
        elif event.kind == "retry":
            data: dict[str, Any] = {"attempt": event.attempt, "error": event.error}
            yield "retry", f"attempt {event.attempt} failed: {event.error}", data, "WARNING"
        elif event.kind == "failure":
            yield "note", event.error, {"error": event.error}, "ERROR"
        elif event.kind == "reply" and event.output is not None:
            yield "llm_call", *_model_call(event.output), "INFO"
        elif event.kind in ("tool_call", "tool_end"):
            data = {"tool": event.tool, "arguments": {**(event.arguments or {})}}
            data["status"] = event.status
            yield "tool_call", f"tool {event.tool} {event.status}", data, "INFO"
            if event.status == "succeeded" and event.output is not None:
                yield from self._clashes(event.step, event.output.get("context") or {})
        elif event.kind == "ended" and self._ends:
            yield "termination", *termination(event.status, event.error), "INFO"

    def _clashes(
        self, step: str, context: Mapping[str, Any]
    ) -> Iterator[tuple[Kind, str, dict[str, Any], str]]:
        """Yield the keys of the context that were set by two calls of one reply."""
        before = self._changed.setdefault(step.rpartition("[")[0], {})
        for key in context:
            if key in before:
                text = f"context variable {key!r} was set by two calls of one reply"
                yield "context_clash", text, {"key": key, "calls": [before[key], step]}, "INFO"
            before[key] = step


def _model_call(output: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of a model call, from the output of its turn."""
    usage, model = output.get("usage") or {}, str(output["model"])
    data, who = {"model": model, **usage}, model
    if instead := output.get("instead_of"):
        data["instead_of"] = str(instead)
        who = f"{model} instead of {instead}"
    return f"{who}: {usage.get('input_tokens', 0)} + {usage.get('output_tokens', 0)} tokens", data


def termination(outcome: str, reason: str) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of the end of a run.

    Args:
        outcome: As in `Response.termination`.
        reason: Why it did not end as `resolved`.
    """
    text = f"ended: {outcome}, {reason}" if reason else f"ended: {outcome}"
    return text, {"termination": outcome, "reason": reason}
