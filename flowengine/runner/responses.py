"""Responses of runs, from results of executions and from unfinished conversations in a store."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from json import dumps
from typing import Any, NamedTuple

from flowengine.agents.actions import UsageTotals, outputs_in, usage_of
from flowengine.agents.agent import AgentDefinition, Response, turn_limit
from flowengine.agents.agent_declarations import declarations
from flowengine.agents.conversation import rendered
from flowengine.agents.first_messages import unmarked_message
from flowengine.agents.termination import CASE_TOOLS, TURNS, ended_by_word, is_case_tool
from flowengine.agents.tool_answers import with_data
from flowengine.engines.agent_events import Conversation, conversations
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.host import KeptFiles
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowEngineError, FlowFileError, UsageError
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.serialization import folder_of, reference
from flowengine.flow.models.types import in_generated
from flowengine.flow.source.diagnostics import Loc, Position
from flowengine.kernel.graph.compiled import Plain
from flowengine.runner.session_places import SESSIONS, STEP, Place
from flowengine.sdk.python.argument_checks import check_kind
from flowengine.sdk.python.imported_modules import MAIN, import_function
from flowengine.sdk.python.live_signature import Signature
from flowengine.sdk.texts.flow_texts import literal_text, plain_text

OUTCOMES = ("resolved", "not_resolved", "max_turns", "budget", "tools_not_executed")


@dataclass(frozen=True)
class AgentsFlow:
    """The flow that runs agents, and the Python objects that it refers to."""

    flow: LoadedFlow
    agents: Mapping[str, AgentDefinition]
    """Id in the flow → agent."""
    live: Mapping[str, Any]
    """Key → function, for functions that other processes cannot find."""


def described(
    agents: Sequence[AgentDefinition],
    *,
    model: str | None = None,
    max_turns: int | Mapping[str, Any] = TURNS,
    execute_tools: bool = True,
    chat: bool = False,
    budget: Mapping[str, Any] | None = None,
    rules: Sequence[Mapping[str, Any]] = (),
) -> AgentsFlow:
    """Return the flow that runs agents, with the functions that exist only in this process.

    Args:
        agents: The agents. The first one starts. Handoff targets are found in their functions.
        model: Overrides the model of every agent.
        max_turns: Maximum model calls: a number, or `{"count": 10, "then": "answer"}`.
        execute_tools: Whether calls are run.
        chat: Whether the user is asked for the next message after each answer.
        budget: As in a flow.
        rules: As in a flow.

    Raises:
        UsageError: The flow has errors.
    """
    check_kind("agents", agents, list)
    check_kind("rules", rules, list)
    if not agents:
        raise UsageError("no agent was given", hint="give at least one")
    references = _References(model)
    declared = declarations(agents, references)
    runs = {
        "name": declared.first,
        "max_turns": turn_limit(max_turns),
        "execute_tools": execute_tools,
        "chat": chat,
    }
    top: dict[str, Any] = {"rules": [*rules, *declared.rules]}
    if budget is not None:
        top["budget"] = budget
    try:
        # The files of skills may have changed since the flow was compiled.
        has_files = any(agent.skills for agent in declared.agents.values())
        load = _loaded.__wrapped__ if has_files else _loaded
        flow = load(dumps([declared.sections, top, runs]))
    except FlowFileError as error:  # the agents are not in a file
        first, *more = [diagnostic for diagnostic in error.diagnostics if not diagnostic.is_warning]
        if not more:
            raise UsageError(f"{first.file}: {first.message}", hint=first.hint) from error
        problems = [
            f"{item.file}: {item.message}" + (f" ({item.hint})" if item.hint else "")
            for item in (first, *more)
        ]
        raise UsageError("; ".join(problems)) from error
    return AgentsFlow(flow, declared.agents, references.live)


@lru_cache(maxsize=64)
def _loaded(content: str) -> LoadedFlow:
    """Return the compiled flow."""
    from json import loads

    token = in_generated.set(True)
    try:
        return load(_flow(*loads(content)))
    finally:
        in_generated.reset(token)


def _flow(sections: dict[str, Any], top: dict[str, Any], runs: dict[str, Any]) -> Flow:
    agent = runs["name"]
    title = sections["agents"][agent].get("title", agent)
    flow = Flow(
        SESSIONS if runs["chat"] else "agents",
        title=str(plain_text(title)),
        inputs={"messages": {"type": "array"}, "context": {"type": "object"}},
        limits={"activations": 1_000_000, "steps": 1_000_000},
        **top,
    )
    flow.places |= {(key,): _Declared(key) for key in top}
    for section, declared in sections.items():
        for name, declaration in declared.items():
            flow.declare(section, name, declaration)
            called = declaration.get("title", name)
            flow.places[section, name] = _Declared(f"{section.removesuffix('s')} {called!r}: ")
    flow.step(
        STEP,
        action={"python_agents": runs},
        with_={"messages": "${{ inputs.messages }}", "context_variables": "${{ inputs.context }}"},
        next={"outcome": dict.fromkeys(OUTCOMES, "end")},
    )
    flow.output("run", f"${{{{ steps.{STEP}.output }}}}")
    flow.output("outcome", f"${{{{ steps.{STEP}.outcome }}}}")
    return flow


class _Declared(NamedTuple):
    """The place of a declaration outside of files: its agent or tool."""

    owner: str
    """A prefix such as `agent 'Clerk': ` or `rules`."""

    def position(self, path: Loc, *, key: bool = False) -> Position:
        """Return the owner and the field of a declaration."""
        path = () if path[:1] == ("(generated)",) else path
        field = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in path)
        return Position(1, 1, 1, f"{self.owner}{field}".replace(": .", ": ").removesuffix(": "))

    def inside(self, path: Loc, offset: int, length: int) -> Position:
        """Return the field that contains a text."""
        return self.position(path)


class _References:
    """References to objects of the program. Functions that other processes cannot find are live.

    Args:
        instead: Overrides the models of all agents. None: each agent has its own.
    """

    case = True

    def __init__(self, instead: str | None) -> None:
        self.instead = instead
        self.live: dict[str, Any] = {}

    def model(self, agent: AgentDefinition) -> Plain:
        return self.instead or agent.model

    def folder(self, path: str) -> str:
        """Return the path of a directory."""
        return path

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        """Return the declaration of a tool that calls a function."""
        named = self._named(function, key)
        if preview is not None:
            named["preview"] = self._named(preview, f"{key}.preview")
        return {
            "agent_function": {"function": named},
            "args": literal_text(signature.args),
            "description": literal_text(signature.description) or None,
        }

    def type(self, type: Any, key: str) -> dict[str, Plain]:
        return self._named(type, key)

    def instructions(self, function: Any, key: str, more: str) -> dict[str, Plain]:
        """Return the reference to a function that returns instructions."""
        return {**self._named(function, key), "then": more}

    def _named(self, function: Any, key: str) -> dict[str, Plain]:
        name = _refer(function)
        if name is None:
            self.live[key] = function
            return {"live": key}
        return {"name": name[0], "folder": name[1]}


def _refer(function: Any) -> tuple[str, str] | None:
    """Return the name and directory by which other processes can import a function, or None."""
    try:
        name = reference(function)
        module = function.__module__
        is_class = isinstance(function, type)
        file = sys.modules[module].__file__ if is_class else function.__code__.co_filename
        folder = folder_of(module, str(file))
        value = import_function(name, folder)
    except Exception:
        return None  # a lambda, a method, or not from a file, and therefore live
    return (name, folder) if value is function and not name.startswith(f"{MAIN}:") else None


_TOLD = (
    "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_usd", "estimated",
)  # fmt: skip


class AgentRunFailed(FlowEngineError):
    """A run of agents failed, because no model replied or for another reason.

    Args:
        error: Error of the execution: `type`, `message`, `data`, `cause`.
        execution: Id of the execution. `Engine.executions.retry` continues it if its store is kept.
    """

    def __init__(self, error: Mapping[str, Any], execution: str) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.error = dict(error)
        self.execution = execution


_REASONS = {
    "max_turns": "its turns are used up: give it more with max_turns",
    "budget": "its budget is used up: give it a larger one",
    "tools_not_executed": "the model called tools, and execute_tools is false",
}
"""Reasons of ends that the flow of a run does not explain itself."""


def response(
    engine: Engine,
    result: ExecutionResult,
    agents: Mapping[str, AgentDefinition],
    given: int,
    until: int | None = None,
) -> Response:
    """Return the response of a run.

    Args:
        engine: The engine with the execution.
        result: Result of the execution.
        agents: Id in the flow → agent.
        given: Number of messages that the caller supplied.
        until: If the session has continued since the run, the number of its next event.

    Raises:
        AgentRunFailed: The run failed, or the newest message of a session has no answer.
    """
    if until is not None:
        return _so_far(engine, result, agents, given, until)
    if result.status in {"failed", "cancelled"}:
        error = result.error or {"type": "Cancelled", "message": "the run was cancelled"}
        raise AgentRunFailed(error, result.execution)
    if result.outputs is None:
        return _so_far(engine, result, agents, given)
    run: dict[str, Any] = result.outputs["run"]
    ended: Any = "no_progress" if run["no_progress"] else result.outputs["outcome"]
    messages = history(engine, result.execution, run["messages"])
    agent = agents.get(run["agent"])
    reply = Response(
        messages=messages[given:],
        history=messages,
        agent=agent,
        context_variables=run["context"],
        termination=ended,
        output=agent.answer(run["result"]) if agent and ended == "resolved" else run["result"],
        reason=run["reason"] or _REASONS.get(ended, ""),
        execution=result.execution,
        usage=_usage(engine, result.execution),
    )
    _end_with_answer(reply)
    return reply


def _so_far(
    engine: Engine,
    result: ExecutionResult,
    agents: Mapping[str, AgentDefinition],
    given: int,
    until: int | None = None,
) -> Response:
    """Return the progress of a waiting run. A session may only wait for the next message."""
    asks = until is not None or Place.of(result.waits) is not None
    waits = [] if asks else [dict(wait) for wait in result.waits]
    reply = Response(execution=result.execution, waits=waits)
    conversation = conversations(engine, result.execution, until=until).get(STEP)
    if conversation is not None:
        if asks and conversation.failed:  # sending the same message again retries it
            type, _, message = conversation.failed.partition(": ")
            raise AgentRunFailed({"type": type, "message": message}, result.execution)
        reply.history = history(engine, result.execution, conversation.messages)
        reply.messages = reply.history[conversation.asked + 1 if asks else given :]
        reply.agent = agents.get(conversation.active)
        reply.context_variables = conversation.context
        if asks:
            _answer(reply, conversation)
    reply.usage = _usage(engine, result.execution, until)
    return reply


def _answer(reply: Response, conversation: Conversation) -> None:
    """Set how the work on the newest message ended."""
    end: Any = conversation.end
    reply.termination = end["outcome"] or "max_turns"
    reply.reason = end["reason"] or _REASONS.get(reply.termination, "")
    reply.output = conversation.text if end["value"] is None else end["value"]
    if reply.agent is not None and reply.termination == "resolved":
        reply.output = reply.agent.answer(reply.output)
    if end["no_progress"]:
        reply.termination = "no_progress"
    _end_with_answer(reply)


def _end_with_answer(reply: Response) -> None:
    """Reduce the last message to the answer, if the model named the end of its work beside it."""
    last = reply.history[-1] if reply.messages else {}
    content = last.get("content")
    if (
        last.get("role") != "assistant"
        or not isinstance(content, str)
        or reply.termination not in CASE_TOOLS.values()
        or reply.agent is None
        or not any(map(is_case_tool, reply.agent.functions))
    ):
        return
    end = ended_by_word(content)
    if end is not None:
        reply.history[-1] = reply.messages[-1] = {**last, "content": end["reason"]}
        if reply.output == content:  # the last text of a case that was not resolved
            reply.output = end["reason"]


def history(engine: Engine, execution: str, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a conversation without marks, with images that are artifacts of the execution.

    Args:
        engine: The engine with the execution.
        execution: Its full id.
        messages: Its entries in the state, or the messages themselves.
    """
    find = KeptFiles(engine.store, execution).path
    return [with_data(unmarked_message(message), find) for message in rendered(messages)]


def _usage(engine: Engine, execution: str, until: int | None = None) -> dict[str, Any]:
    """Return the usage of all model calls, in total and by model, without unknown costs."""
    total, models = usage_of(outputs_in(islice(engine.executions.events(execution), until)))
    return {**_shown(total), "models": {model: _shown(value) for model, value in models.items()}}


def _shown(usage: UsageTotals) -> dict[str, Any]:
    return {name: asdict(usage)[name] for name in _TOLD}
