"""From what an engine tells of an execution to log events of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.loggers import LoggerManager

if TYPE_CHECKING:
    from flowengine.engines.results import Update
    from flowengine.metachain.agent_events import AgentEvent, AgentEvents


class Reporter:
    """Tells a logger what the agents of one execution do.

    Args:
        logger: Is told.
        events: Reads it from the updates of the engine.
        ends: Also tell how each agent's work ends.
    """

    def __init__(self, logger: LoggerManager, events: AgentEvents, *, ends: bool = False) -> None:
        self._logger = logger
        self._events = events
        self._ends = ends
        self._changed: dict[str, dict[str, str]] = {}
        """Address of the calls of a reply → key of the context → the call that has set it."""

    def __call__(self, update: Update) -> None:
        """Take an update of the engine."""
        for event in self._events.of(update):
            self._tell(event)

    def _tell(self, event: AgentEvent) -> None:
        logger = self._logger
        at = {"execution": self._events.execution, "step": event.step}
        place = {**at, "agent": event.agent}
        if event.kind == "handoff":
            logger.log_agent_handoff(event.agent, event.to, **at)
        elif event.kind == "retry":
            logger.log_retry(event.attempt, event.error, **place)
        elif event.kind == "failure":
            logger.log("note", event.error, {"error": event.error}, level="ERROR", **place)
        elif event.kind == "reply" and event.output is not None:
            instead = str(event.output.get("instead_of", ""))
            usage = event.output.get("usage")
            logger.log_llm_call(str(event.output["model"]), usage, instead_of=instead, **place)
        elif event.kind in ("tool_call", "tool_end"):
            logger.log_tool_call(event.tool, event.arguments, status=event.status, **place)
            if event.status == "succeeded" and event.output is not None:
                self._look_for_clashes(event.step, event.output.get("context") or {})
        elif event.kind == "end" and self._ends:
            logger.log_termination(event.status, event.error, **place)

    def _look_for_clashes(self, step: str, context: Mapping[str, Any]) -> None:
        """Tell of a key of the context that two calls of one reply have set."""
        before = self._changed.setdefault(step.rpartition("[")[0], {})
        for key in context:
            if key in before:
                text = f"context variable {key!r} was set by two calls of one reply"
                data = {"key": key, "calls": [before[key], step]}
                place = {"execution": self._events.execution, "step": step}
                self._logger.log("context_clash", text, data, **place)
            before[key] = step
