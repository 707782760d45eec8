"""`Runner`, with the methods that run agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from flowengine.agents.agent import Agent, Response
from flowengine.agents.loggers import LoggerManager
from flowengine.agents.turn_limit import TURNS
from flowengine.argument_checks import check_keywords
from flowengine.errors import UsageError
from flowengine.metachain import flows
from flowengine.metachain.options import ResumeOptions, RunOptions
from flowengine.metachain.work import Work
from flowengine.sdk.background import refuse_in_loop

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow
    from flowengine.metachain.agent_events import StreamPart


class Runner:
    """Runs agents.

    Args:
        engine: The engine that runs them, whose store keeps the executions. Default: an engine in
            memory for each run.
        model: Overrides the model of every agent, unless a run names another one.
        logger: Receives log events. Default: `LoggerManager.get_logger()`.
        log_path: File for log events as JSON lines. A separate logger is created for it.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        model: str | None = None,
        logger: LoggerManager | None = None,
        log_path: str | PathLike[str] | None = None,
    ) -> None:
        if log_path is not None and logger is None:
            logger = LoggerManager(file=log_path)
        self.engine = engine
        self.model = model
        self.logger = logger or LoggerManager.get_logger()

    def compile(self, agents: Sequence[Agent], **how: Any) -> LoadedFlow:
        """Return the flow that runs agents. Its `to_networkx()` returns the graph.

        Args:
            agents: The agents. The first one starts.
            **how: `model`, `max_turns` and `execute_tools`, as for `run`.

        Returns:
            The flow.
        """
        return flows.described(agents, **{"model": self.model, **how}).flow

    def run(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Response:
        """Run an agent until it answers, or its work ends in another way.

        Args:
            agent: The agent that starts.
            messages: The user's message, or the conversation so far, which is not changed.
            context_variables: Data and live objects for its functions, invisible to the model.
                Functions receive copies of plain data, and live objects themselves.
            max_turns: Maximum model calls, including those of agents that it hands off to.
            execute_tools: If false, the run ends after the first reply, without running its calls.
            **options: See `RunOptions`.

        Returns:
            The response.

        Raises:
            UsageError: The agents cannot be run, and no model was called. In a running event loop,
                call `run_async` instead.
            AgentRunFailed: The execution failed.
        """
        refuse_in_loop(None, "run_async()")
        return asyncio.run(
            self.run_async(agent, messages, context_variables, max_turns, execute_tools, **options)
        )

    async def run_async(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Response:
        """Run an agent like `run`, on the running event loop."""
        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        async with self._engine_of(work) as engine:
            return self._checked(work, await work.run(engine))

    def stream(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Generator[StreamPart, None, None]:
        """Run an agent like `run`, and yield each reply in parts as it arrives, then the response.

        Tool calls, their results, handoffs and questions are yielded between replies. Leaving the
        loop stops the run: the model request is cancelled, and no further calls are run. If the
        engine keeps the run, it can be resumed. A slow loop misses pieces of replies and receives
        their number. All other parts, including the response, are always complete.

        Yields:
            The parts. The last one contains the response.
        """
        from flowengine.metachain.streaming import on_thread

        refuse_in_loop(None, "stream_async()")
        yield from on_thread(
            self.stream_async(
                agent, messages, context_variables, max_turns, execute_tools, **options
            )
        )

    async def stream_async(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamPart, None]:
        """Run an agent like `stream`, on the running event loop.

        With `contextlib.aclosing`, the run stops as soon as the loop is left. Otherwise it stops
        when Python finalizes the iterator.

        Yields:
            The parts. The last one contains the response.
        """
        from flowengine.metachain.streaming import stream_async

        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        async with (
            self._engine_of(work) as engine,
            aclosing(stream_async(engine, work)) as parts,
        ):
            async for part in parts:
                if part.response is not None:
                    self._checked(work, part.response)
                yield part

    def resume(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Response:
        """Continue a run after an approval, a crash or a failure, possibly in another process.

        Completed model calls and tool calls are not repeated. A run that succeeded returns its
        response again.

        Args:
            execution: Id of the execution, from `Response.execution`, in the engine's store.
            agent: The agent that it started with.
            context_variables: The live objects among them. Data is stored with the execution.
            **options: See `ResumeOptions`.

        Returns:
            The response.
        """
        refuse_in_loop(None, "resume_async()")
        return asyncio.run(self.resume_async(execution, agent, context_variables, **options))

    async def resume_async(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Response:
        """Continue a run like `resume`, on the running event loop."""
        engine, work = self._kept(execution, agent, context_variables, **options)
        return await work.run(engine)

    def resume_stream(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Generator[StreamPart, None, None]:
        """Continue a run like `resume`, and yield its parts like `stream`.

        Yields:
            The parts. The last one contains the response.
        """
        from flowengine.metachain.streaming import on_thread

        refuse_in_loop(None, "resume_stream_async()")
        yield from on_thread(
            self.resume_stream_async(execution, agent, context_variables, **options)
        )

    async def resume_stream_async(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> AsyncGenerator[StreamPart, None]:
        """Continue a run like `resume_stream`, on the running event loop.

        Yields:
            The parts. The last one contains the response.
        """
        from flowengine.metachain.streaming import stream_async

        engine, work = self._kept(execution, agent, context_variables, **options)
        async with aclosing(stream_async(engine, work)) as parts:
            async for part in parts:
                yield part

    def _engine_of(self, work: Work) -> Engine | nullcontext[Engine]:
        """Return the engine of a run.

        An engine in memory ends with the run. A session without an engine uses the store of the
        directory.
        """
        if self.engine is not None:
            return nullcontext(self.engine)
        from flowengine.engines.engine import Engine

        return Engine(None) if work.session is None else Engine()

    def _checked(self, work: Work, response: Response) -> Response:
        """Refuse to discard a waiting run together with its engine."""
        if response.waits and work.session is None and self.engine is None:
            wait = response.waits[0]
            raise UsageError(
                f"the run waits for a decision ({wait.get('title') or wait['type']}), and its "
                "engine in memory ends with it",
                hint="give one that lasts: Runner(Engine(…)); then decide, and call resume()",
            )
        return response

    def _new(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None,
        max_turns: int | Mapping[str, Any],
        execute_tools: bool,
        **options: Unpack[RunOptions],
    ) -> Work:
        """Return a new run."""
        check_keywords("a run of agents", options, RunOptions.__annotations__)
        how: flows.How = {
            "model": options.get("model") or self.model,
            "max_turns": max_turns,
            "execute_tools": execute_tools,
            "budget": options.get("budget"),
            "policies": options.get("policies", ()),
        }
        agents = (agent, *options.get("agents", ()))
        return Work.starting(self.logger, agents, messages, context_variables, options, how)

    def _kept(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None,
        **options: Unpack[ResumeOptions],
    ) -> tuple[Engine, Work]:
        """Return the engine, and a run from its store."""
        check_keywords("resuming a run of agents", options, ResumeOptions.__annotations__)
        if self.engine is None:
            raise UsageError(
                "there is no engine that has kept a run", hint="give one: Runner(Engine(…))"
            )
        agents = (agent, *options.get("agents", ()))
        objects = options.get("runtime_resources")
        return self.engine, Work.of(
            self.engine, self.logger, execution, agents, context_variables, objects
        )
