"""What is checked of an agent in Python before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from flowengine.agents.agent_as_tool import ASKED, AgentAsTool
from flowengine.agents.agent_fields import AgentFields
from flowengine.agents.case_tools import is_case_tool
from flowengine.agents.flow_environments import environment_names
from flowengine.agents.function_schemas import check_name, read_tool
from flowengine.agents.generated_reductions import REDUCTIONS
from flowengine.agents.models.wire_names import clash
from flowengine.agents.skill_tools import TOOLS as SKILL_TOOLS
from flowengine.agents.skills import skills_at
from flowengine.agents.termination import CASE_TOOLS
from flowengine.agents.turn_limit import turn_limit
from flowengine.errors import UsageError
from flowengine.sdk.generated_flows import GLOB

CHOICES = ("auto", "none", "required")
_CHECKED = {"before": "prompt", "after": "answer"}
"""When a check is made, and what it has to take."""


class CheckSaid(NamedTuple):
    """A check of an agent, as its program says it."""

    when: str
    function: Any
    tells: bool
    """Whether the model is told what it raises; else that ends the work."""


class ContextSaid(NamedTuple):
    """What is done about a long conversation, as a program says it."""

    max_tokens: int | None
    reduce: Any
    """`drop`, `summarize` or a function."""


def check_agent(agent: AgentFields) -> None:
    """Check what a run of an agent would fail at.

    Raises:
        UsageError: What is wrong; the message names the agent.
    """
    if not agent.name.strip():
        raise UsageError("an agent has no name", hint="give it one: Agent(name=…)")
    with _naming(agent):
        if not agent.model.strip():
            raise UsageError("no model is named", hint="say 'provider/model'")
        agent.answer_schema()
        tools = _tools(agent)
        skills_at(agent.skills)
        beside = [*_check_checks(agent), *_check_context(agent)]
        _check_names(tools, beside)
        servers = {one.name for one in agent.servers}
        _check_named(agent, {*tools, *servers, *(name for name, _ in beside)})
        _check_choice(agent.tool_choice, {*CHOICES, *tools}, servers)


def checks_of(agent: AgentFields) -> list[CheckSaid]:
    """Return the checks of an agent.

    Raises:
        UsageError: One is none.
    """
    found = []
    for place, one in enumerate(agent.checks):
        said: Mapping[str, Any] = one if isinstance(one, Mapping) else {}
        when = next((name for name in _CHECKED if name in said), "")
        then = said.get("then", "end" if when == "before" else "tell")
        if not when or not set(said) <= {when, "then"} or then not in ("tell", "end"):
            raise UsageError(
                f"checks[{place}] is {one!r}",
                hint="say {'before': function} or {'after': function}, and perhaps 'then': 'end' "
                "or 'tell'",
            )
        found.append(CheckSaid(when, said[when], then == "tell"))
    return found


def context_of(agent: AgentFields) -> ContextSaid | None:
    """Return what an agent does about a long conversation; None: nothing.

    Raises:
        UsageError: It is not said in a way that means something.
    """
    if agent.context is None:
        return None
    said: Any = agent.context if isinstance(agent.context, Mapping) else {"reduce": agent.context}
    found = ContextSaid(said.get("max_tokens"), said.get("reduce", "drop"))
    most = found.max_tokens
    whole = most is None or (type(most) is int and most > 0)
    known = callable(found.reduce) or found.reduce in REDUCTIONS
    if not (set(said) <= {"max_tokens", "reduce"} and whole and known):
        raise UsageError(
            f"context is {agent.context!r}",
            hint="say {'max_tokens': 50_000, 'reduce': 'drop'}, 'summarize' or a function",
        )
    return found


def name_and_arguments(agent: AgentFields, function: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a function or agent that is a tool, and the schema of its arguments.

    Raises:
        UsageError: A model cannot call it.
    """
    if isinstance(function, AgentAsTool):
        check_name(function.name)
        turn_limit(function.max_turns)
        return function.name, ASKED
    name, signature = read_tool(function, environments=environment_names(agent, function))
    return name, signature.args or {}


def arguments_given(
    agent: AgentFields, function: Any, offered: tuple[str, ...], what: str
) -> list[str]:
    """Return what a function takes of what it is offered.

    Args:
        agent: Whose function it is.
        function: It has to take the first of them, and may need no more than all.
        offered: Names of arguments.
        what: The function is for: `check`.

    Raises:
        UsageError: It takes something else.
    """
    name, args = name_and_arguments(agent, function)
    takes = list(args.get("properties", {}))
    hint = f"it is given {' and '.join(map(repr, offered))}"
    if offered[0] not in takes:
        raise UsageError(f"the {what} {name} takes no {offered[0]!r}", hint=hint)
    unknown = [one for one in args.get("required", ()) if one not in offered]
    if unknown:
        raise UsageError(
            f"the {what} {name} needs {unknown[0]!r}, which nothing provides", hint=hint
        )
    return [one for one in offered if one in takes]


def check_arguments(agent: AgentFields, check: CheckSaid) -> list[str]:
    """Return what a check takes of the prompt and the answer."""
    offered = ("prompt",) if check.when == "before" else ("answer", "prompt")
    return arguments_given(agent, check.function, offered, "check")


def reducer_arguments(agent: AgentFields, function: Any) -> list[str]:
    """Return what a function that summarizes takes."""
    return arguments_given(agent, function, ("messages", "summary"), "function")


@contextmanager
def _naming(agent: AgentFields) -> Iterator[None]:
    """Have errors name the agent."""
    try:
        yield
    except UsageError as error:
        message = error.message
        named = f"agent {agent.name!r}"
        if not message.startswith(named):
            message = f"{named}: {message}"
        raise UsageError(message, hint=error.hint) from None


def _tools(agent: AgentFields) -> dict[str, Any]:
    """Return the tools of an agent, those of servers aside: name → function, if it has one."""
    agent.check_tools()
    tools: dict[str, Any] = dict.fromkeys(one.name for one in agent.ready)
    for function in agent.tools:
        name, _ = name_and_arguments(agent, function)
        if name in tools:
            raise UsageError(
                f"agent {agent.name!r} has two functions named {name!r}",
                hint="rename one: a model calls them by their names",
            )
        if name in CASE_TOOLS and not is_case_tool(function):
            raise UsageError(
                f"a function of yours named {name!r} would end nothing",
                hint=f"give it {name} from flowengine.agents, or rename the function",
            )
        if agent.skills and name in SKILL_TOOLS:
            raise UsageError(f"it gets {name!r} from 'skills'", hint="rename the function")
        tools[name] = function
    if agent.skills:
        tools |= dict.fromkeys(SKILL_TOOLS)
    both = clash([*tools, *CASE_TOOLS, *_named_by_servers(agent)])
    if both is not None:
        raise UsageError(
            f"models allow no dots in names, and would call both {both[0]!r} and {both[1]!r} "
            f"{both[2]!r}",
            hint="rename one of them",
        )
    return tools


def _named_by_servers(agent: AgentFields) -> list[str]:
    """Return the tools of servers that are known before these are asked."""
    return [
        f"{one.name}.{tool}"
        for one in agent.servers
        for tool in one.include or ()
        if GLOB.isdisjoint(tool)
    ]


def _check_checks(agent: AgentFields) -> Iterator[tuple[str, Any]]:
    """Check the checks of an agent, and yield their functions with their names."""
    known: set[tuple[str, str]] = set()
    for check in checks_of(agent):
        check_arguments(agent, check)
        name, _ = name_and_arguments(agent, check.function)
        if (check.when, name) in known:
            raise UsageError(f"{name} checks this twice", hint="name it once")
        known.add((check.when, name))
        yield name, check.function


def _check_context(agent: AgentFields) -> Iterator[tuple[str, Any]]:
    """Check how a conversation is shortened, and yield the function that does it."""
    said = context_of(agent)
    if said is not None and callable(said.reduce):
        reducer_arguments(agent, said.reduce)
        yield name_and_arguments(agent, said.reduce)[0], said.reduce


def _check_names(tools: Mapping[str, Any], beside: Sequence[tuple[str, Any]]) -> None:
    """Refuse two functions of one name, of which the model calls one at most."""
    known = {name: one for name, one in tools.items() if one is not None}
    for name, function in beside:
        if known.setdefault(name, function) != function:
            raise UsageError(f"two of its functions have the name {name!r}", hint="rename one")


def _check_named(agent: AgentFields, names: Collection[str]) -> None:
    """Check that approvals and limits are of tools that the agent has."""
    for what, named in (("approvals", agent.approvals), ("limits", agent.limits)):
        known = {*names, *(["calls"] if what == "limits" and agent.call_limit else [])}
        if what == "approvals":  # a rule can be about one tool of a server
            servers = {one.name for one in agent.servers}
            known |= {name for name in named if name.partition(".")[0] in servers}
        wrong = next((name for name in named if name not in known), None)
        if wrong is not None:
            raise UsageError(
                f"{what} names {wrong!r}, which is not one of its functions",
                hint=f"it has {', '.join(sorted(names)) or 'none'}",
            )
    for name in agent.limits:
        agent.limits_of(name)


def _check_choice(choice: str | None, known: Collection[str], servers: Collection[str]) -> None:
    """Check that the tool that must be called is one of the agent's."""
    if choice is None or choice in known or choice.partition(".")[0] in servers:
        return
    raise UsageError(
        f"tool_choice {choice!r} is not one of its tools",
        hint=f"say one of {', '.join(sorted(known))}",
    )
