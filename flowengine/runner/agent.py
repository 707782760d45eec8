"""Agents in Python, which run themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Generic, Unpack

from flowengine.agents.agent import AgentDefinition, Deps, Out, Response
from flowengine.engines.stream_parts import StreamPart
from flowengine.runner.chain import Runner
from flowengine.runner.work import AgentRunOptions


class Agent(AgentDefinition[Out, Deps], Generic[Out, Deps]):
    """A model with instructions and tools.

    A tool is a Python function, with its type hints as the schema. A tool that returns an agent, or
    a `Result` with an agent, hands the conversation off to it. So does the tool `transfer_to_NAME`
    that the model receives for each agent of `handoffs`. An agent with `case_resolved` or
    `case_not_resolved` among its tools ends by calling one of them, any other agent by a reply
    without calls.
    """

    def run(
        self,
        messages: str | list[dict[str, Any]],
        *,
        deps: Deps | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> Response[Out]:
        """Run the agent until it answers, or its work ends in another way.

        Args:
            messages: The user's message, or the conversation so far.
            deps: The object for parameters of the class `Agent(deps=…)`.
            **options: See `AgentRunOptions`.

        Returns:
            The response. After a handoff, its output has the form that the other agent returns.

        Raises:
            UsageError: The agent cannot be run, and no model was called.
            AgentRunFailed: The execution failed.
        """
        response: Response[Out] = _runner(options).run(self, messages, deps=deps, **options)
        return response

    async def run_async(
        self,
        messages: str | list[dict[str, Any]],
        *,
        deps: Deps | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> Response[Out]:
        """Run the agent like `run`, on the running event loop."""
        run = _runner(options).run_async(self, messages, deps=deps, **options)
        response: Response[Out] = await run
        return response

    def stream(
        self,
        messages: str | list[dict[str, Any]],
        *,
        deps: Deps | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> Iterator[StreamPart]:
        """Run the agent like `run`, and yield the parts of the run, as `Runner.stream` does."""
        parts: Iterator[StreamPart] = _runner(options).stream(self, messages, deps=deps, **options)
        return parts

    def stream_async(
        self,
        messages: str | list[dict[str, Any]],
        *,
        deps: Deps | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> AsyncGenerator[StreamPart, None]:
        """Run the agent like `stream`, on the running event loop."""
        parts: AsyncGenerator[StreamPart, None] = _runner(options).stream_async(
            self, messages, deps=deps, **options
        )
        return parts


def _runner(options: Any) -> Any:
    """Return the runner for the arguments of a run, and take its engine out of them."""
    return Runner(options.pop("engine", None))
