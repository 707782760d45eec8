"""`Runner`, with the methods that run agents, and the interface of AutoAgent: `MetaChain`."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import update_wrapper
from inspect import signature
from os import PathLike
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from flowengine.agents.agent import AgentDefinition, Response
from flowengine.agents.agent_mistakes import RUN, check_names
from flowengine.agents.loggers import LoggerManager
from flowengine.agents.models.registry import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.agents.termination import TURNS
from flowengine.engines.agent_events import AgentEvents
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.inspection.updates import UpdateBacklog
from flowengine.engines.results import Update
from flowengine.engines.stream_parts import (
    AgentEnded,
    ModelFailed,
    ModelReplied,
    ResponsePart,
    StreamPart,
    ToolCallPart,
    ToolEnded,
)
from flowengine.errors import UsageError
from flowengine.runner import responses as flows
from flowengine.runner.sessions import SessionWork
from flowengine.runner.work import ResumeOptions, RunOptions, Work
from flowengine.sdk.environments.resources import refuse_in_loop
from flowengine.sdk.python.argument_checks import (
    check_keywords,
    check_kinds,
    check_methods,
    in_words,
)
from flowengine.secrets import mask_known
from flowengine.util.blocking import run_on_new_loop
from flowengine.util.loops import new_event_loop

# `Runner`, with the methods that run agents.

_Args = ParamSpec("_Args")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Prepare = Callable[Concatenate["Runner", _Args], Work]
"""Checks the arguments of a run, and returns it. The public methods take the same arguments."""


def _named(method: _Method, prepare: Callable[..., Work], name: str) -> _Method:
    """Give a method its name, and the signature and docstring of the one that prepares its runs."""
    returns = method.__annotations__["return"]
    update_wrapper(method, prepare)
    method.__name__, method.__qualname__ = name, f"Runner.{name}"
    made: Any = method
    made.__signature__ = signature(prepare).replace(return_annotation=returns)
    return method


def _prepared(
    prepare: _Prepare[_Args], runner: Runner, /, *args: _Args.args, **options: _Args.kwargs
) -> Work:
    if not isinstance(runner, Runner):
        raise UsageError(
            "a run needs a runner, and the method of the class was called",
            hint="write Runner().run(agent, messages), or agent.run(messages)",
        )
    return prepare(runner, *args, **options)


def _awaited(
    prepare: _Prepare[_Args], name: str
) -> Callable[Concatenate[Runner, _Args], Coroutine[Any, Any, Response]]:
    """Return a coroutine method that runs agents."""

    async def call(self: Runner, /, *args: _Args.args, **options: _Args.kwargs) -> Response:
        work = _prepared(prepare, self, *args, **options)
        async with self._engine_of(work) as engine:
            return self._checked(work, await work.run(engine))

    return _named(call, prepare, name)


def _blocking(
    prepare: _Prepare[_Args], name: str
) -> Callable[Concatenate[Runner, _Args], Response]:
    """Return the blocking form of such a method, which in a running loop names the other."""
    run = _awaited(prepare, f"{name}_async")

    def call(self: Runner, /, *args: _Args.args, **options: _Args.kwargs) -> Response:
        refuse_in_loop(None, f"await {name}_async()")
        return run_on_new_loop(run(self, *args, **options))

    return _named(call, prepare, name)


def _streamed(
    prepare: _Prepare[_Args], name: str
) -> Callable[Concatenate[Runner, _Args], AsyncGenerator[StreamPart, None]]:
    """Return a method that runs agents and yields the parts of the run."""

    async def call(
        self: Runner, /, *args: _Args.args, **options: _Args.kwargs
    ) -> AsyncGenerator[StreamPart, None]:
        work = _prepared(prepare, self, *args, **options)
        async with (
            self._engine_of(work) as engine,
            aclosing(stream_async(engine, work)) as parts,
        ):
            async for part in parts:
                if part.response is not None:
                    self._checked(work, part.response)
                yield part

    return _named(call, prepare, name)


def _iterated(
    prepare: _Prepare[_Args], name: str
) -> Callable[Concatenate[Runner, _Args], Generator[StreamPart, None, None]]:
    """Return the blocking form of such a method, which in a running loop names the other.

    It refuses when it is called, not when its result is iterated over: `async for` could not.
    """
    stream = _streamed(prepare, f"{name}_async")

    def call(
        self: Runner, /, *args: _Args.args, **options: _Args.kwargs
    ) -> Generator[StreamPart, None, None]:
        refuse_in_loop(None, f"use 'async for part in {name}_async(…)'")
        return iterated_on_thread(stream(self, *args, **options))

    return _named(call, prepare, name)


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
        if engine is not None and not hasattr(engine, "resume_async"):
            raise UsageError(
                f"{in_words(engine)} is not an engine",
                hint="give an Engine here, and the agent to run(agent, messages)",
            )
        check_kinds(str, model=model)
        check_kinds(PathLike, log_path=log_path)
        check_methods("logger", logger, "log")
        if log_path is not None and logger is None:
            logger = LoggerManager(file=log_path)
        self.engine = engine
        self.model = model
        self.logger = logger or LoggerManager.get_logger()

    def compile(self, agents: Sequence[AgentDefinition], **how: Any) -> LoadedFlow:
        """Return the flow that runs agents. Its `to_networkx()` returns the graph.

        Args:
            agents: The agents. The first one starts.
            **how: `model`, `max_turns` and `execute_tools`, as for `run`.

        Returns:
            The flow.
        """
        return flows.described(agents, **{"model": self.model, **how}).flow

    def _new(
        self,
        agent: AgentDefinition,
        messages: str | list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        max_turns: int | Mapping[str, Any] = TURNS,
        execute_tools: bool = True,
        **options: Unpack[RunOptions],
    ) -> Work:
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
            The response. The methods that stream yield parts, and the last one contains it.

        Raises:
            UsageError: The agents cannot be run, and no model was called.
            AgentRunFailed: The execution failed.
        """
        check_names(RUN, options, RunOptions.__annotations__)
        more = options.get("agents") or ()
        check_kinds(list, agents=more)
        described = flows.described(
            (agent, *more),
            model=options.get("model") or self.model,
            max_turns=max_turns,
            execute_tools=execute_tools,
            chat=options.get("session") is not None,
            budget=options.get("budget"),
            rules=options.get("rules", ()),
        )
        kind = Work if options.get("session") is None else SessionWork
        return kind.starting(self.logger, described, messages, context_variables, options)

    def _kept(
        self,
        execution: str,
        agent: AgentDefinition,
        context_variables: dict[str, Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Work:
        """Continue a run after an approval, a crash or a failure, possibly in another process.

        Completed model calls and tool calls are not repeated. A run that succeeded returns its
        response again.

        Args:
            execution: Id of the execution, from `Response.execution`, in the engine's store.
            agent: The agent that it started with, or that was active last.
            context_variables: The live objects among them. Data is stored with the execution.
            **options: See `ResumeOptions`.

        Returns:
            As for `run`.
        """
        check_keywords("resuming a run of agents", options, ResumeOptions.__annotations__)
        if self.engine is None:
            raise UsageError("no engine has kept a run", hint="give one: Runner(Engine(…))")
        agents = (agent, *options.get("agents", ()))
        return Work.of(self.engine, self.logger, execution, agents, context_variables, options)

    # Python's messages about wrong arguments name a method that exists.
    _new.__qualname__, _kept.__qualname__ = "Runner.run", "Runner.resume"

    run = _blocking(_new, "run")
    """Run an agent until it answers, or its work ends in another way."""
    run_async = _awaited(_new, "run_async")
    """Run an agent like `run`, on the running event loop."""
    stream = _iterated(_new, "stream")
    """Run an agent like `run`, and yield each reply in parts as it arrives, then the response.

    Tool calls, their results, handoffs and questions are yielded between replies. Leaving the loop
    stops the run: the model request is cancelled, and no further calls are run. If the engine keeps
    the run, it can be resumed. A slow loop misses pieces of replies and receives their number. All
    other parts, including the response, are always complete.
    """
    stream_async = _streamed(_new, "stream_async")
    """Run an agent like `stream`, on the running event loop.

    With `contextlib.aclosing`, the run stops as soon as the loop is left. Otherwise it stops when
    Python finalizes the iterator.
    """
    resume = _blocking(_kept, "resume")
    """Continue a run after an approval, a crash or a failure, possibly in another process."""
    resume_async = _awaited(_kept, "resume_async")
    """Continue a run like `resume`, on the running event loop."""
    resume_stream = _iterated(_kept, "resume_stream")
    """Continue a run like `resume`, and yield its parts like `stream`."""
    resume_stream_async = _streamed(_kept, "resume_stream_async")
    """Continue a run like `resume_stream`, on the running event loop."""

    def _engine_of(self, work: Work) -> Engine | nullcontext[Engine]:
        """Return the engine of a run.

        An engine in memory ends with the run. A session without an engine uses the store of the
        directory.
        """
        if self.engine is not None:
            return nullcontext(self.engine)

        return Engine() if work.is_session else Engine(None)

    def _checked(self, work: Work, response: Response) -> Response:
        """Refuse to discard a waiting run together with its engine."""
        if response.waits and not work.is_session and self.engine is None:
            wait = response.waits[0]
            raise UsageError(
                f"the run waits for a decision ({wait.get('title') or wait['type']}), and its "
                "engine in memory ends with it",
                hint="give a durable one: Runner(Engine(…)). Then decide, and call resume()",
            )
        return response


# The interface of AutoAgent: `MetaChain`, and its two helper functions.


class MetaChain(Runner):
    """A `Runner` under the name used by AutoAgent."""

    def get_chat_completion(
        self,
        agent: AgentDefinition,
        history: list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> dict[str, Any]:
        """Call the model of an agent once, with instructions and tools, without running calls.

        Args:
            agent: The agent.
            history: The conversation so far.
            context_variables: Variables for instructions that are a function.
            model: Overrides the model of the agent.

        Returns:
            The assistant message.
        """
        response = self.run(
            agent, history, context_variables, max_turns=1, execute_tools=False, model=model
        )
        return next(message for message in response.messages if message["role"] == "assistant")

    def handle_tool_calls(
        self,
        tool_calls: Sequence[Any],
        functions: Sequence[Any],
        context_variables: dict[str, Any] | None = None,
    ) -> Response:
        """Run tool calls of a model as a run does.

        Args:
            tool_calls: The calls, each as `{"id", "function": {"name", "arguments"}}` or an object
                with such attributes. The arguments are JSON text.
            functions: The tools.
            context_variables: Variables for tools that take them.

        Returns:
            A message for each call, the agent that was handed off to, and the context.
        """
        if not tool_calls:
            return Response(context_variables=dict(context_variables or {}))
        agent = AgentDefinition(name="calls", model="scripted/calls", tools=list(functions))
        script: list[Any] = [
            {"calls": [_scripted(tool_call) for tool_call in tool_calls]},
            {"text": "done"},
        ]
        with using(ScriptedModel(script)):
            response = self.run(agent, [], context_variables, max_turns=2)
        response.messages = [
            message for message in response.messages if message["role"] != "assistant"
        ]
        response.agent = None if response.agent is agent else response.agent
        return response


def _scripted(call: Any) -> dict[str, Any]:
    """Return the scripted form of a call that a model made elsewhere."""
    function = _of(call, "function")
    arguments = _of(function, "arguments")
    return {
        "id": _of(call, "id") or "",
        "name": _of(function, "name"),
        "arguments": "{}" if arguments is None else arguments,
    }


def _of(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def get_chat_completion(*args: Any, **keywords: Any) -> dict[str, Any]:
    """Call the model of an agent once, as `MetaChain.get_chat_completion` does."""
    return MetaChain().get_chat_completion(*args, **keywords)


def handle_tool_calls(*args: Any, **keywords: Any) -> Response:
    """Run tool calls of a model, as `MetaChain.handle_tool_calls` does."""
    return MetaChain().handle_tool_calls(*args, **keywords)


# Streaming of a run: the parts of each reply as they arrive, then the response.
#
# Leaving the iteration stops the run. If its engine stores it, it can be resumed.

_Result = TypeVar("_Result")

_READ = frozenset({"part", "missed", "step", "wait"})


async def stream_async(engine: Engine, work: Work) -> AsyncGenerator[StreamPart, None]:
    """Run agents, and yield the parts for `Runner.stream_async`.

    Args:
        engine: The engine that runs them.
        work: The run.
    """
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    backlog = UpdateBacklog(lambda: loop.call_soon_threadsafe(arrived.set))
    events, concerns = work.events(engine), work.gate()

    def put(update: Update) -> None:
        if update.execution != work.id or update.kind not in _READ:
            return
        if concerns(update):
            backlog.put(update)
        else:  # about another message of the session, which may have handed off
            deque(events.of(update), maxlen=0)

    end = engine.subscribe(put, output=True)
    run = asyncio.ensure_future(work.run(engine))
    run.add_done_callback(lambda _: arrived.set())
    try:
        while not run.done():
            await arrived.wait()
            arrived.clear()
            for part in _arrived(backlog, events):
                yield part
        end(None)
        for part in _arrived(backlog, events):
            yield part
    finally:
        run.cancel()
        await asyncio.wait([run])
        end(None)
        backlog.close()
    response = run.result()
    agent = response.agent.name if response.agent else ""
    yield ResponsePart(response, agent=agent, execution=response.execution)


def _arrived(backlog: UpdateBacklog, events: AgentEvents) -> Iterator[StreamPart]:
    """Yield the parts that have arrived, without secrets."""
    while (update := backlog.take()) is not None:
        for part in events.of(update):
            if isinstance(part, ModelReplied | ModelFailed | ToolEnded | AgentEnded):
                continue
            if isinstance(part, ToolCallPart) and not part.call:
                continue  # of a check
            fields = ("arguments", "result", "value", "error", "to", "wait")
            shown = {name: value for name in fields if (value := getattr(part, name, None))}
            yield replace(part, **mask_known(shown)) if shown else part


def iterated_on_thread(
    parts: AsyncGenerator[StreamPart, None],
) -> Generator[StreamPart, None, None]:
    """Yield the parts of a run whose event loop is on a thread, and which continues between them.

    Args:
        parts: The parts.
    """
    loop, taking, over = new_event_loop(), asyncio.Lock(), asyncio.Event()

    def drive() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(over.wait())

    async def take() -> StreamPart | None:
        async with taking:
            return await anext(parts, None)

    async def close() -> None:
        async with taking:
            await parts.aclose()

    def wait(work: Coroutine[Any, Any, _Result]) -> _Result:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        finally:
            future.cancel()

    thread = threading.Thread(target=drive, name="flowengine-stream", daemon=True)
    thread.start()
    try:
        while (part := wait(take())) is not None:
            yield part
    finally:
        wait(close())
        loop.call_soon_threadsafe(over.set)
        thread.join()
