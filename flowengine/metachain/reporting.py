"""From what an engine tells of an execution to log events of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.loggers import LoggerManager

if TYPE_CHECKING:
    from flowengine.engines.results import Update
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow, StepSpec

_TURN, _CALL = "python_agent_turn", "agent_function"


class Reporter:
    """Tells a logger what the agents of one execution do.

    Args:
        logger: Is told.
        flow: The compiled flow.
        execution: Id of the execution.
    """

    def __init__(self, logger: LoggerManager, flow: CompiledFlow, execution: str) -> None:
        self._logger = logger
        self._steps: list[StepSpec] = flow["steps"]
        self._execution = execution
        self._active = ""
        self._changed: dict[str, dict[str, str]] = {}
        """Address of the calls of a reply → key of the context → the call that has set it."""

    def __call__(self, update: Update) -> None:
        """Take an update of the engine."""
        seen = update.step
        if update.execution != self._execution or seen is None:
            return
        kind = self._steps[seen.step].get("kind")
        if kind == _TURN:
            self._turn(seen)
        elif kind == _CALL:
            self._call(seen)

    def _place(self, seen: Observation) -> dict[str, str]:
        return {"execution": self._execution, "step": seen.address}

    def _turn(self, seen: Observation) -> None:
        agent = str(self._steps[seen.step]["task"]["agent"]["called"])
        place = self._place(seen)
        if seen.status == "running" and self._active not in {"", agent}:
            self._logger.log_agent_handoff(self._active, agent, **place)
        self._active = agent
        if seen.status in {"retrying", "failed"} and seen.error is not None:
            error = f"{seen.error['type']}: {seen.error['message']}"
            self._logger.log_retry(seen.attempt, error, agent=agent, **place)
        elif seen.status == "succeeded" and isinstance(seen.output, Mapping):
            told = seen.output
            usage, instead = told.get("usage"), str(told.get("instead_of", ""))
            model = str(told["model"])
            self._logger.log_llm_call(model, usage, instead_of=instead, agent=agent, **place)

    def _call(self, seen: Observation) -> None:
        status = {"running": "started"}.get(seen.status, seen.status)
        if status not in {"started", "succeeded", "failed"}:
            return
        function = self._steps[seen.step]["task"]["function"]
        name = str(self._steps[seen.step]["id"].rpartition(".")[2])
        given: Any = seen.input if isinstance(seen.input, Mapping) else {}
        arguments = given.get("args", {}) if function else {}
        place = self._place(seen)
        self._logger.log_tool_call(name, arguments, status=status, agent=self._active, **place)
        if status == "succeeded" and isinstance(seen.output, Mapping):
            self._look_for_clashes(seen, seen.output.get("context") or {})

    def _look_for_clashes(self, seen: Observation, context: Mapping[str, Any]) -> None:
        """Tell of a key of the context that two calls of one reply have set."""
        before = self._changed.setdefault(seen.address.rpartition("[")[0], {})
        for key in context:
            if key in before:
                text = f"context variable {key!r} was set by two calls of one reply"
                calls = [before[key], seen.address]
                data = {"key": key, "calls": calls}
                self._logger.log("context_clash", text, data, **self._place(seen))
            before[key] = seen.address
