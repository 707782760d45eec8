"""From what an engine tells of an execution to log events of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.loggers import LoggerManager

if TYPE_CHECKING:
    from flowengine.engines.results import Update
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow, StepSpec

TURNS = ("agent_turn", "python_agent_turn")
_FUNCTION = "agent_function"


class Reporter:
    """Tells a logger what the agents of one execution do.

    Args:
        logger: Is told.
        flow: The compiled flow.
        execution: Id of the execution.
        ends: Also tell how each agent's work ends.
    """

    def __init__(
        self, logger: LoggerManager, flow: CompiledFlow, execution: str, *, ends: bool = False
    ) -> None:
        self._logger = logger
        self._steps: list[StepSpec] = flow["steps"]
        self._execution = execution
        self._ends = ends
        self._active: dict[str, str] = {}
        """Address of the step whose agents are at work → the one that is active."""
        self._changed: dict[str, dict[str, str]] = {}
        """Address of the calls of a reply → key of the context → the call that has set it."""

    def __call__(self, update: Update) -> None:
        """Take an update of the engine."""
        seen = update.step
        if update.execution != self._execution or seen is None:
            return
        spec = self._steps[seen.step]
        if spec.get("kind") in TURNS:
            self._turn(seen)
        elif "teller" in spec:
            self._call(seen)
        elif seen.address in self._active and seen.status in {"succeeded", "failed", "cancelled"}:
            self._end(seen)

    def _place(self, seen: Observation) -> dict[str, str]:
        return {"execution": self._execution, "step": seen.address}

    def _turn(self, seen: Observation) -> None:
        task = self._steps[seen.step]["task"]["agent"]
        agent = str(task.get("called", task["name"]))
        place = self._place(seen)
        above = seen.address.rpartition("/")[0]
        active = self._active.get(above, agent)
        if seen.status == "running" and active != agent:
            self._logger.log_agent_handoff(active, agent, **place)
        self._active[above] = agent
        if seen.status in {"retrying", "failed"} and seen.error is not None:
            error = f"{seen.error['type']}: {seen.error['message']}"
            if seen.status == "retrying":
                self._logger.log_retry(seen.attempt, error, agent=agent, **place)
            else:
                data = {"error": error}
                self._logger.log("note", error, data, level="ERROR", agent=agent, **place)
        elif seen.status == "succeeded" and isinstance(seen.output, Mapping):
            told = seen.output
            usage, instead = told.get("usage"), str(told.get("instead_of", ""))
            model = str(told["model"])
            self._logger.log_llm_call(model, usage, instead_of=instead, agent=agent, **place)

    def _call(self, seen: Observation) -> None:
        status = {"running": "started"}.get(seen.status, seen.status)
        if status not in {"started", "succeeded", "failed"}:
            return
        spec = self._steps[seen.step]
        name = str(spec["id"])
        given: Any = seen.input if isinstance(seen.input, Mapping) else {}
        arguments = given.get("args", given)
        if spec.get("kind") == _FUNCTION:
            name = name.rpartition(".")[2]
            arguments = given.get("args", {}) if spec["task"]["function"] else {}
        place = self._place(seen)
        above = seen.address.rpartition("/")[0].rpartition("/")[0]
        agent = self._active.get(above, "")
        self._logger.log_tool_call(name, arguments, status=status, agent=agent, **place)
        if status == "succeeded" and isinstance(seen.output, Mapping):
            self._look_for_clashes(seen, seen.output.get("context") or {})

    def _end(self, seen: Observation) -> None:
        agent = self._active.pop(seen.address)
        if self._ends:
            reason = "" if seen.error is None else f"{seen.error['type']}: {seen.error['message']}"
            how = seen.outcome or seen.status
            self._logger.log_termination(how, reason, agent=agent, **self._place(seen))

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
