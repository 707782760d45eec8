"""`Runner`: the calls that run agents."""

from __future__ import annotations

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
    from flowengine.metachain.streaming import StreamPart


class Runner:
    """Runs agents.

    Args:
        engine: The engine that runs them, and whose store keeps the executions; default: one in
            memory for each run.
        model: In place of the model of every agent, unless a run names one.
        logger: Is told what they do; default: `LoggerManager.get_logger()`.
        log_path: A file for log events as JSON lines; a logger of its own is made for it.
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
        """Return the flow that runs agents; `to_networkx()` gives its graph.

        Args:
            agents: The first one begins.
            **how: `model`, `max_turns`, `execute_tools`, as of `run`.

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
        """Run an agent until it has answered, or its work ends in another way.

        Args:
            agent: The agent that begins.
            messages: What a user asks; or the conversation so far, which is not changed.
            context_variables: Data and live objects for its functions; the model never sees them.
                Of plain data the functions get copies; live objects stay the same.
            max_turns: Calls of models, those of agents that it hands over to included.
            execute_tools: False: it ends after the first reply, with its calls not run.
            **options: See `RunOptions`.

        Returns:
            The response.

        Raises:
            UsageError: Something cannot be run; nothing was asked. In a running event loop: call
                `run_async`.
            AgentRunFailed: The execution failed.
        """
        refuse_in_loop(None, "run_async()")
        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        with self._engine_of(work) as engine:
            return self._checked(work, work.run(engine, work.begun(engine)))

    async def run_async(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Response:
        """Like `run`, on the running event loop."""
        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        async with self._engine_of(work) as engine:
            return self._checked(work, await work.run_async(engine, work.begun(engine)))

    def stream(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Generator[StreamPart, None, None]:
        """Like `run`, but yield each reply in parts while it arrives, then the response.

        Between replies come tool calls, their results, handoffs and questions. A loop that is left
        stops the run: the request to the model is given up, and no further call is run. With an
        engine that keeps it, it can be resumed. A loop that is too slow misses pieces of replies,
        and learns how many; everything else, and the response, is always whole.

        Yields:
            The parts; the last one has the response.
        """
        from flowengine.metachain.streaming import stream

        refuse_in_loop(None, "stream_async()")
        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        with self._engine_of(work) as engine:
            for part in stream(engine, work, work.begun(engine)):
                if part.response is not None:
                    self._checked(work, part.response)
                yield part

    async def stream_async(
        self,
        agent: Agent,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamPart, None]:
        """Like `stream`, on the running event loop.

        `contextlib.aclosing` stops the run at once when the loop is left; without it Python does so
        when it finalizes the iterator.

        Yields:
            The parts; the last one has the response.
        """
        from flowengine.metachain.streaming import stream_async

        work = self._new(agent, messages, context_variables, max_turns, execute_tools, **options)
        async with (
            self._engine_of(work) as engine,
            aclosing(stream_async(engine, work, work.begun(engine))) as parts,
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
        """Continue a run after an approval, a crash or a failure, also in another process.

        What has been done is not done again: calls of models and tools that have ended stay. A run
        that has ended well gives its response again.

        Args:
            execution: Its id, as in `Response.execution`; the engine has its store.
            agent: The agent that it began with.
            context_variables: The live objects among them; data is kept with the execution.
            **options: See `ResumeOptions`.

        Returns:
            The response.
        """
        refuse_in_loop(None, "resume_async()")
        engine, work = self._kept(execution, agent, context_variables, **options)
        return work.run(engine, work.resumed(engine))

    async def resume_async(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Response:
        """Like `resume`, on the running event loop."""
        engine, work = self._kept(execution, agent, context_variables, **options)
        return await work.run_async(engine, work.resumed(engine))

    def resume_stream(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Generator[StreamPart, None, None]:
        """Continue a run, as `resume` does, and yield what follows in parts, as `stream` does.

        Yields:
            The parts; the last one has the response.
        """
        from flowengine.metachain.streaming import stream

        refuse_in_loop(None, "resume_stream_async()")
        engine, work = self._kept(execution, agent, context_variables, **options)
        yield from stream(engine, work, work.resumed(engine))

    async def resume_stream_async(
        self,
        execution: str,
        agent: Agent,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> AsyncGenerator[StreamPart, None]:
        """Like `resume_stream`, on the running event loop.

        Yields:
            The parts; the last one has the response.
        """
        from flowengine.metachain.streaming import stream_async

        engine, work = self._kept(execution, agent, context_variables, **options)
        async with aclosing(stream_async(engine, work, work.resumed(engine))) as parts:
            async for part in parts:
                yield part

    def _engine_of(self, work: Work) -> Engine | nullcontext[Engine]:
        """Return the engine of a run; its own ends with it, but for the store of a session."""
        if self.engine is not None:
            return nullcontext(self.engine)
        from flowengine.engines.engine import Engine

        return Engine(None) if work.session is None else Engine()

    def _checked(self, work: Work, response: Response) -> Response:
        """Refuse to lose a run that waits together with its engine."""
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
        """Return a run that begins."""
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
        """Return the engine, and a run that it has kept."""
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
