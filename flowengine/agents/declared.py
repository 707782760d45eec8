"""Generation of the flow that runs an agent, from its declaration in a file or in Python.

A declaration is an entry of `agents` together with everything that the entry names. Declarations of
Python objects come from `agent_declarations.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from flowengine.agents.agent_flow import AgentFlow
from flowengine.agents.agent_specs import (
    CHECK_ARGUMENTS,
    HOOK_ARGUMENTS,
    OF_CALLS,
    RETRY,
    AgentSpec,
    Helper,
)
from flowengine.agents.context_reduction import REDUCTIONS
from flowengine.agents.context_window import READ_RESULT, SUMMARY
from flowengine.agents.first_messages import is_model_named
from flowengine.agents.models.port import MODEL_VARIABLE
from flowengine.agents.models.provider_schemas import clash
from flowengine.agents.programs import RUN
from flowengine.agents.skills import TOOLS as SKILL_TOOLS
from flowengine.agents.skills import offered, place_of, skill_tools, skills_of
from flowengine.agents.termination import CASE_TOOLS, REPEATS, TURNS
from flowengine.agents.tool_search import FIND
from flowengine.agents.tool_steps import ASK, ToolStep, declared_tool, question, tools_of_server
from flowengine.agents.turns import HANDOFF
from flowengine.kernel.graph.compiled import digest
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import (
    GLOB,
    Declarations,
    Declared,
    DeclaredTool,
    GeneratedFlow,
    Given,
    Loc,
)
from flowengine.sdk.texts.flow_texts import literal_text, plain_text
from flowengine.sdk.texts.near_words import did_you_mean

CHOICES = ("auto", "none", "required")

SEES = ("all", "text", "args")
"""The named options of `context` of a handoff. Others: a number of messages, or a tool."""
_ENVIRONMENTS = "_environments"
"""The input for the arguments of environments that contain expressions."""
_CONTEXT = "_context"
"""The input for the context variables of an agent that calls this one as a tool."""
_WHOLE: dict[str, Plain] = {
    "result": "${{ state.agent.output }}",
    "agent": "${{ state.agent.active }}",
    "reason": "${{ state.agent.end.reason }}",
    "no_progress": "${{ state.agent.end.no_progress }}",
    "messages": "${{ state.messages }}",
    "context": "${{ state.context }}",
}
"""The output of a flow that returns the whole conversation."""


def generate(
    name: str,
    declarations: Declarations,
    *,
    chat: bool = False,
    max_turns: Mapping[str, Plain] | None = None,
    execute_tools: bool = True,
    whole: bool = False,
) -> GeneratedFlow | None:
    """Return the flow that runs an agent, or None if the agent does not exist, after reporting it.

    Args:
        name: `agent` or `alias.agent`.
        declarations: Declarations of the file that names it.
        chat: Whether a person is asked for the next message after each answer.
        max_turns: Overrides the agent's limit: its `count`, and `then`, the use of the last turn.
        execute_tools: Whether tool calls are run. Otherwise the first call ends the work.
        whole: Whether the flow takes a whole conversation and returns it with the answer.
    """
    first = declarations.find("agents", name, ())
    if first is None:
        return None
    closure = _closure(first)
    agents = [
        AgentReader(called, agent, closure).spec(execute_tools=execute_tools)
        for called, agent in closure.items()
    ]
    returns: Any = agents[0].constants["returns"]
    if max_turns is not None:
        agents[0] = replace(agents[0], **_turns(max_turns))
    asked = {"args": "${{ inputs._args }}"}
    if not whole:
        asked["variables"] = f"${{{{ inputs.{_CONTEXT} }}}}"
    writer = AgentFlow(
        agents, asked, chat=chat, execute_tools=execute_tools, session=whole and chat
    )
    body = writer.flow()
    texts = {
        called: Given(_instructions(value), (*value.loc, "instructions"), value.home)
        for called, value in closure.items()
    }
    places = {
        called: Given(value.content["environments"], (*value.loc, "environments"), value.home)
        for called, value in closure.items()
        if _is_computed(value.content.get("environments"))
    }
    if places:
        body["inputs"][_ENVIRONMENTS] = {"type": "object"}
    if whole:
        body["outputs"]["output"] = {"value": _WHOLE}
    else:
        body["inputs"][_CONTEXT] = {"type": "object", "default": {}}
    return GeneratedFlow(
        # A session may continue with another agent, as the same subflow.
        id="session" if whole and chat else f"{'chats' if chat else 'agents'}.{first.name}",
        body=body,
        home=first.home,
        loc=first.loc,
        given={"_instructions": texts, **({_ENVIRONMENTS: places} if places else {})},
        marks=writer.marks,
        homes={
            step: closure[owner].home
            for step, owner in writer.owners.items()
            if closure[owner].home != first.home
        },
        returns={} if whole else {"type": "string"} if returns is None else returns,
    )


def _turns(limit: Mapping[str, Plain]) -> dict[str, Any]:
    return {"max_turns": limit.get("count", TURNS), "last": limit.get("then", "fail")}


def _closure(first: Declared) -> dict[str, Declared]:
    """Return an agent and all agents that the conversation can be handed off to.

    Names are relative to the file of the first agent, such as `lib.writer`. The `prefix` of an
    agent is the chain of imports that leads from that file to its own.
    """
    agents = {first.name: first._replace(prefix="")}
    waiting = [*agents.values()]
    for agent in waiting:  # grows during the loop
        for _, known in _led_to(agent):
            if _called(known, agents) is not None:
                continue
            one = known._replace(prefix=agent.prefix + known.prefix)
            agents[one.prefix + one.name] = one
            waiting.append(one)
    return agents


def _led_to(agent: Declared) -> Iterator[tuple[Mapping[str, Any], Declared]]:
    """Yield the handoffs of an agent, each with the other agent."""
    for place, entry in enumerate(agent.content.get("handoffs", [])):
        known = agent.home.find("agents", entry["agent"], (*agent.loc, "handoffs", place))
        if known is not None:
            yield entry, known


def _called(agent: Declared, closure: Mapping[str, Declared]) -> str | None:
    """Return the name of an agent in the flow, or None if the flow does not contain it."""
    same = (
        name
        for name, value in closure.items()
        if (value.home, value.name) == (agent.home, agent.name)
    )
    return next(same, None)


def _targets(agent: Declared, closure: Mapping[str, Declared], *, tool: bool) -> dict[str, str]:
    """Return the targets of handoffs with or without a tool: name in its file → in the flow."""
    named = ((entry, _called(known, closure)) for entry, known in _led_to(agent))
    return {
        entry["agent"]: called
        for entry, called in named
        if called is not None and entry.get("tool", True) == tool
    }


class AgentReader:
    """Reads the declaration of an agent, and reports what is wrong with it.

    Args:
        name: Its name in the flow.
        agent: The declaration.
        closure: All agents of the flow, by their names there.
    """

    def __init__(self, name: str, agent: Declared, closure: Mapping[str, Declared]) -> None:
        self.name = name
        self.agent = agent
        self.entry = agent.content
        self.home = agent.home
        self.handoffs = _targets(agent, closure, tool=True)
        """Name in the agent's file → name in the flow."""
        self.reached = _targets(agent, closure, tool=False)
        """The same of those that only its tools hand off to."""
        self.environments = self._environments()
        """By the names under which its tools look them up."""
        self.adapter: dict[str, Plain] = {
            "agents": {_title(value, called): called for called, value in closure.items()}
        }
        self.helpers: list[Helper] = []

    def spec(self, *, execute_tools: bool) -> AgentSpec:
        """Return the specification of the agent."""
        name, entry = self.name, self.entry
        on_crash: Any = entry.get("on_crash", "retry")
        models = entry.get("model") or self.home.defaults.get("model") or [None]
        if models == [None] and not is_model_named():
            hint = f"set 'model' here, 'defaults.model', the variable {MODEL_VARIABLE}, or --model"
            self._refuse("E408", f"no model is named for the agent {name!r}", self._loc(), hint)
        tools = self._tools()
        skills = skills_of(self.agent)
        tools += skill_tools(skills, place_of(self.agent), self.adapter)
        self._check_wire_names(tools)
        code = self._code()
        self._check_used(tools, code)
        settings = {**entry.get("settings", {})}
        together = settings.pop("parallel_tool_calls", True)
        if not isinstance(together, bool):
            loc = self._loc("settings", "parallel_tool_calls")
            self._refuse("E103", f"{together!r} is not true or false", loc, "write true or false")
        constants: dict[str, Plain] = {
            **self._returns(),
            "tool_choice": self._choice(settings.pop("tool_choice", None), tools),
            "parallel_tool_calls": together,
            "function_calling": entry.get("function_calling"),
            "finish": entry.get("finish", "answer"),
            "repeats": entry.get("repeats", REPEATS),
            "context": None,
        }
        if execute_tools:
            constants |= self._checks() | self._hooks()
            constants["context"] = self._context()
        constants |= self._filters()
        if skills:
            constants["skills"] = offered(skills)
        if code is not None:
            waits = [tool.name for tool in tools if tool.waits]
            constants["code"] = {"direct": [*entry["code"].get("direct", []), *waits]}
        if entry.get("defer"):
            constants["defer"] = self._deferred(tools)
        if "title" in entry:
            constants["called"] = _title(self.agent, name)
        if "python" in entry["instructions"]:
            constants["instructions"] = self._named("instructions", "python")
        return AgentSpec(
            name=name,
            description=plain_text(entry.get("description", "")),
            models=models,
            tools=tools,
            handoffs=[*self.handoffs.values()],
            reaches=[*self.reached.values()],
            **_turns(entry.get("max_turns", {})),
            retry={**RETRY, **entry.get("retry", {})},
            on_crash="" if on_crash == "retry" else on_crash,
            settings=settings,
            helpers=self.helpers,
            call_limit=self._call_limit(),
            code=code if execute_tools else None,
            constants=constants,
        )

    def _loc(self, *path: str | int) -> Loc:
        return (*self.agent.loc, *path)

    def _refuse(self, code: str, message: str, loc: Loc, hint: str) -> None:
        self.home.refuse(code, message, loc, hint)

    def _named(self, *path: str) -> Plain:
        """Return the location of a function or type of the program that it names at a path."""
        named: Any = self.entry
        for key in path:
            named = named[key]
        if not isinstance(named, str):
            return named  # a flow made from Python objects declares more about it
        return {**self.home.function(named, self._loc(*path))}

    def _returns(self) -> dict[str, Plain]:
        """Return the JSON Schema of its answer, and the type of the program that validates it."""
        returns: Mapping[str, Any] | None = self.entry.get("returns")
        if returns is None or "python" not in returns:
            return {"returns": returns}
        schema: Mapping[str, Plain] = {k: part for k, part in returns.items() if k != "python"}
        if schema:
            named = self._named("returns", "python")
        else:
            schema, named = self.home.type(returns["python"], self._loc("returns", "python"))
        return {"returns": {**schema}, "returns_type": named}

    def _call_limit(self) -> tuple[str, int] | None:
        """Return the agent's identity and call limit, or None if its calls are unlimited."""
        most = self.entry.get("limits", {}).get("calls")
        return None if most is None else (f"{self.agent.name} {digest({**self.entry})}", most)

    def _environments(self) -> dict[str, dict[str, Plain]]:
        parts: dict[str, dict[str, Plain]] = {}
        for called, use in self.entry.get("environments", {}).items():
            [(environment, args)] = use.items()
            if self.home.find("environments", environment, self._loc("environments")) is None:
                continue
            path = f"inputs.{_ENVIRONMENTS}" + "".join(
                f"[{json.dumps(key)}]" for key in (self.name, called, environment)
            )
            parts[called] = {
                environment: {
                    key: f"${{{{ {path}[{json.dumps(key)}] }}}}" if _is_computed(value) else value
                    for key, value in args.items()
                }
            }
        return parts

    # Tools that stand around its work

    def _helped(
        self, helper: Helper, tool: DeclaredTool, given: Sequence[str] = ()
    ) -> dict[str, Plain]:
        """Add a tool that stands around the agent's work, and return how a round calls it.

        Args:
            helper: The tool.
            tool: Its declaration.
            given: Arguments that it is offered. Default: all that it takes.
        """
        self.helpers.append(helper)
        names = _arguments(tool)
        arguments = [one for one in given if one in names] if given else names
        return {"step": f"{self.name}.{helper.place}", "arguments": arguments}

    def _context(self) -> Plain:
        """Return how to reduce a conversation that no longer fits its model, if declared.

        `room` is the maximum characters of a summary. `clear` is the number of replies whose
        results stay when older ones are replaced by notes.
        """
        entry = self.entry.get("context")
        if entry is None:
            return None
        most, how = entry.get("tokens"), entry.get("reduce", "drop")
        room = 0 if how == "drop" else SUMMARY if most is None else min(SUMMARY, most)
        about = {"max_tokens": most, "room": room, "clear": entry.get("keep", 0)}
        if how in REDUCTIONS:
            return {**about, "rule": how}
        made = self._summarizer(how, self._loc("context", "reduce"), REDUCTIONS, "reduce", room)
        return None if made is None else {**about, "rule": made["step"], "tool": made}

    def _filters(self) -> dict[str, Plain]:
        """Return the filters of its handoffs, and the schemas of their arguments.

        A filter is the part of the conversation that an agent sees after a handoff, if not all.
        """
        filters: dict[str, Plain] = {}
        arguments: dict[str, Plain] = {}
        targets = {**self.handoffs, **self.reached}
        for place, entry in enumerate(self.entry.get("handoffs", [])):
            called, sees = targets.get(entry["agent"]), entry.get("context")
            args, loc = entry.get("args"), self._loc("handoffs", place)
            if called is None:  # reported already
                continue
            if args is not None and args.get("type") != "object":
                message = "the arguments of a handoff are an object, as those of any tool"
                hint = "use {type: object, properties: …}"
                self._refuse("E103", message, (*loc, "args"), hint)
            if args is not None:
                arguments[called] = args
            if isinstance(sees, int) or sees in SEES[1:]:
                filters[called] = {"sees": sees}
            elif sees is not None and sees not in SEES:
                at = f"handoff.{called}"
                made = self._summarizer(sees, (*loc, "context"), SEES, at, SUMMARY)
                if made is not None:
                    filters[called] = {"sees": "summary", "tool": made}
        return {"filters": filters, **({"handoff_arguments": arguments} if arguments else {})}

    def _summarizer(
        self, name: str, loc: Loc, words: Sequence[str], place: str, room: int
    ) -> dict[str, Plain] | None:
        """Return how a round calls a tool that summarizes, or None after reporting that it cannot.

        Args:
            name: The tool.
            loc: Where it is named.
            words: Words that are accepted in its place.
            place: The beginning of the id of its step.
            room: Maximum characters of a summary.
        """
        tools = self.home.tools(name, loc, self.environments, words)
        if not tools:
            return None
        [tool, *_] = tools
        if "messages" not in _arguments(tool):
            hint = "give it an argument 'messages', a list, and perhaps 'summary', a text"
            message = f"{tool.name!r} takes no 'messages': it cannot summarize a conversation"
            self._refuse("E401", message, loc, hint)
        else:
            self._needs_more(tool, loc, ["messages", "summary"], "tool that summarizes")
        return self._helped(Helper(f"{place}.{tool.name}", _step_of(tool), room=room), tool)

    def _checks(self) -> dict[str, Plain]:
        """Return the tools that check prompts and answers."""
        checks: dict[str, list[Plain]] = {"before": [], "after": [], "arriving": []}
        for place, entry in enumerate(self.entry.get("checks", [])):
            when: Literal["before", "after"] = "before" if "before" in entry else "after"
            loc = self._loc("checks", place, when)
            needed = "prompt" if when == "before" else "answer"
            if when not in entry:  # reported already
                continue
            for tool in self.home.tools(entry[when], loc, self.environments)[:1]:
                if needed not in _arguments(tool):
                    message = f"{tool.name!r} takes no {needed!r}: it cannot check one"
                    self._refuse("E401", message, loc, f"give it an argument {needed!r}")
                    continue
                if any(check["check"] == tool.name for check in checks[when]):
                    self._refuse("E105", f"{tool.name!r} checks this twice", loc, "name it once")
                    continue
                tells = entry.get("then", "end" if when == "before" else "tell") == "tell"
                given = [name for name in CHECK_ARGUMENTS if name in ("prompt", needed)]
                if self._needs_more(tool, loc, given, f"check {when!r}"):
                    continue
                beside, arriving = entry.get("parallel", False), None
                if beside and (why := self._not_beside(tool, when, tells=tells)):
                    self._refuse("E103", why, (*loc[:-1], "parallel"), "leave it out")
                elif beside and when == "after":
                    beside, arriving = False, self._function(tool, loc)
                helper = Helper(f"{when}.{tool.name}", _step_of(tool), f"checks with {tool.name}")
                called = self._helped(helper, tool, given)
                about = {"check": tool.name, "tells": tells, "beside": beside}
                checks[when].append({**about, **called})
                if arriving:
                    function = {"function": arriving, "arguments": called["arguments"]}
                    checks["arriving"].append({"check": tool.name, **function})
        return {when: made for when, made in checks.items() if made}

    def _function(self, tool: DeclaredTool, loc: Loc) -> Plain:
        """Return the location of the Python function that a tool calls, or None."""
        if "agent_function" in tool.declaration:
            return tool.declaration["agent_function"]["function"]
        named = tool.declaration.get("python", {}).get("function")
        return None if named is None else {**self.home.function(named, loc)}

    def _not_beside(self, tool: DeclaredTool, when: str, *, tells: bool) -> str:
        """Return why a check cannot run beside a request, or the empty text."""
        if when == "after":
            more = {"approval", "with", "environments", "in"} & {*tool.declaration, *tool.modifiers}
            if more or not {"python", "agent_function"} & set(tool.declaration):
                return (
                    "only a Python function, without approval and environment, judges arriving text"
                )
            if "returns" in self.entry or self.entry.get("finish") == "tools":
                return "with 'returns' or 'finish: tools', arriving text is not the answer"
            return ""
        if tells:
            return (
                "'then' sends the error to the model, which must know the error before it answers"
            )
        if any(hook.get("before") == "turn" for hook in self.entry.get("hooks", [])):
            return "a hook 'before: turn' decides about the request, after the checks"
        return ""

    def _hooks(self) -> dict[str, Plain]:
        """Return the tools around its turns and calls, the outermost declared first."""
        hooks: list[dict[str, Plain]] = []
        for place, entry in enumerate(self.entry.get("hooks", [])):
            side = "before" if "before" in entry else "after"
            when: Any = f"{side}_{entry.get(side)}"
            if when not in HOOK_ARGUMENTS or "call" not in entry:  # reported already
                continue
            loc, globs = self._loc("hooks", place, "call"), entry.get("tools", [])
            given = [*HOOK_ARGUMENTS[when]]
            if globs and when not in OF_CALLS:
                message = f"'tools' is about calls, and '{side}: turn' about turns"
                self._refuse("E103", message, (*loc[:-1], "tools"), "leave it out")
            for tool in self.home.tools(entry["call"], loc, self.environments)[:1]:
                if self._needs_more(tool, loc, given, f"hook '{side}: {entry[side]}'"):
                    continue
                if any(hook["tool"] == tool.name and hook["when"] == when for hook in hooks):
                    self._refuse("E105", f"{tool.name!r} is there twice", loc, "name it once")
                    continue
                helper = Helper(f"{when}.{tool.name}", _step_of(tool), f"hook {tool.name}")
                called = self._helped(helper, tool, given)
                hooks.append({"tool": tool.name, "when": when, "tools": [*globs], **called})
        before = [hook for hook in hooks if hook["when"].startswith("before")]
        after = [hook for hook in reversed(hooks) if hook["when"].startswith("after")]
        return {"hooks": [*before, *after]} if hooks else {}

    def _needs_more(self, tool: DeclaredTool, loc: Loc, given: Sequence[str], what: str) -> bool:
        """Report a tool that needs other arguments than it is given, and return whether it does."""
        required = (tool.args or {}).get("required", ())
        unknown = next((name for name in required if name not in given), None)
        if unknown is not None:
            message = f"{tool.name!r} needs {unknown!r}, which no {what} is given"
            self._refuse("E401", message, loc, f"take some of {', '.join(given)}")
        return unknown is not None

    # Tools that the model calls

    def _tools(self) -> list[ToolStep]:
        """Return its tools, each once, even if several names or globs match it."""
        steps: dict[str, ToolStep] = {}
        served: dict[str, list[DeclaredTool]] = {}
        """Server → globs for its tools. A single step calls any of them."""
        adapter, prefix = self.adapter, self.agent.prefix
        for place, use in enumerate(self.entry.get("tools", [])):
            pattern, loc = use["tool"], self._loc("tools", place)
            for tool in self.home.tools(pattern, loc, self.environments):
                called = self._name_of_use(use, tool, loc)
                self._check_tool(tool, called, loc)
                one = self._described(tool, loc)
                if one.name == ASK:
                    steps.setdefault(called, question(one, called))
                elif one.server is None:
                    steps.setdefault(called, declared_tool(one, adapter, called))
                elif GLOB.isdisjoint(one.server.pattern):
                    steps.setdefault(one.name, tools_of_server([one], one.name, adapter, prefix))
                else:
                    served.setdefault(one.server.server, []).append(one)
        for server, ones in served.items():
            steps[f"{server}.*"] = tools_of_server(ones, server, adapter, prefix)
        return list(steps.values())

    def _name_of_use(self, use: Mapping[str, Plain], tool: DeclaredTool, loc: Loc) -> str:
        """Return the name by which the model calls a tool."""
        if "as" not in use:
            return tool.name
        if tool.server is not None or not GLOB.isdisjoint(use["tool"]):
            message = f"{use['tool']!r} cannot have another name: the server names its tools"
            if tool.server is None:
                message = f"{use['tool']!r} may be several tools, and 'as' is the name of one"
            self._refuse("E103", message, (*loc, "as"), "leave it out")
        return str(use["as"])

    def _described(self, tool: DeclaredTool, loc: Loc) -> DeclaredTool:
        """Return a tool with a description, which for an agent defaults to that of the agent."""
        asked: Any = tool.declaration.get("agent")
        if tool.description or asked is None:
            return tool
        name = str(asked["name"] if isinstance(asked, dict) else asked)
        if "." in tool.name:  # from an imported file, which names its own agents
            if "." in name:
                return tool
            name = f"{tool.name.rpartition('.')[0]}.{name}"
        known = self.home.find("agents", name, loc)
        about = "" if known is None else plain_text(str(known.content.get("description", "")))
        return tool._replace(description=about)

    def _check_tool(self, tool: DeclaredTool, called: str, loc: Loc) -> None:
        """Reject tools whose commands a model must not choose, and names with another meaning."""
        if tool.by_default_on_host:
            message = (
                f"{tool.name!r} runs commands, and a model would decide about them on the host"
            )
            hint = "declare where it runs: 'shell: {command: […], in: NAME}', or 'in: host'"
            self._refuse("E407", message, loc, hint)
        if tool.has_unread_parameters:
            message = f"the parameters of {tool.name!r} are in no source that can be read"
            hint = "declare its 'args', or name a function ('def') that calls it"
            self._refuse("E402", message, loc, hint)
        hint = "give the tool another name"
        own = {
            "skills": SKILL_TOOLS if "skills" in self.entry else (),
            "code": [RUN] if "code" in self.entry else (),
            "defer": [FIND] if "defer" in self.entry else (),
            "context.keep": [READ_RESULT] if "keep" in (self.entry.get("context") or {}) else (),
            "finish": CASE_TOOLS,
        }
        for key, names in own.items():
            if called in names:
                self._refuse("E103", f"agents get {called!r} from {key!r}", loc, hint)
        named = self.handoffs.items()
        to = next((other for other, known in named if called == HANDOFF + known), None)
        if to is not None:
            message = f"{called!r} is what models call to hand over to {to!r}, by 'handoffs'"
            self._refuse("E103", message, loc, hint)

    def _check_wire_names(self, tools: Sequence[ToolStep]) -> None:
        """Report tools with the same wire name, as far as their names are known."""
        names = [HANDOFF + handoff for handoff in self.handoffs.values()]
        both = clash([*names, *(name for tool in tools for name in tool.names)])
        if both is not None:
            one, other, called = both
            message = (
                f"models allow no dots in names, and would call both {one!r} and {other!r} "
                f"{called!r}"
            )
            self._refuse("E105", message, self._loc("tools"), "give one another name")

    def _code(self) -> Plain | None:
        """Return the environment in which its programs run, or None if it has none."""
        entry = self.entry.get("code")
        if entry is None:
            return None
        loc = self._loc("code", "in")
        use = self.environments.get(entry["in"])
        if use is None:
            hint = did_you_mean(entry["in"], self.environments) or "name one of its 'environments'"
            self._refuse("E401", f"the agent has no environment {entry['in']!r}", loc, hint)
            return None
        [name] = use
        found = self.home.find("environments", name, loc)
        kind = None if found is None else found.content.get("kind")
        if kind != "python":
            message = f"programs run in an environment of kind 'python', and {name!r} is a {kind!r}"
            self._refuse("E103", message, loc, "declare another environment for them")
        return use

    def _check_used(self, tools: Sequence[ToolStep], code: Plain | None) -> None:
        """Warn about environments that none of the tools uses."""
        uses = [
            use
            for tool in tools
            for use in (tool.action.get("in", {}), *tool.action.get("environments", {}).values())
        ]
        for name, use in self.environments.items():
            if use not in uses and use != code:
                message = f"none of its tools works in the environment {name!r}"
                hint = "a function takes it by a parameter of this name, or in 'runtime_resources'"
                self._refuse("W105", message, self._loc("environments"), hint)

    def _deferred(self, tools: Sequence[ToolStep]) -> list[str]:
        """Return names and globs of the tools that the model must find."""
        globs = self.entry["defer"]
        named = [tool.name for tool in tools if tool.served is None]
        servers = [tool.served["server"] for tool in tools if tool.served is not None]
        for place, glob in enumerate(globs):
            of_server = any(glob.startswith(f"{server}.") for server in servers)
            if not of_server and not any(fnmatchcase(name, glob) for name in named):
                hint = did_you_mean(glob, named) or "it has to be among its 'tools'"
                message = f"the agent has no tool {glob!r}"
                self._refuse("E401", message, self._loc("defer", place), hint)
        return list(globs)

    def _choice(self, choice: Plain, tools: Sequence[ToolStep]) -> Plain:
        """Return the tool that the agent must call, by its name in the flow."""
        known = [*(tool.name for tool in tools), *(HANDOFF + handoff for handoff in self.handoffs)]
        known += [FIND] if "defer" in self.entry else []
        known += [RUN] if "code" in self.entry else []
        if choice is not None and choice not in CHOICES and choice not in known:
            hint = f"say {', '.join(CHOICES)}, or one of {', '.join(known) or 'its tools'}"
            message = f"the agent has no tool {choice!r}"
            self._refuse("E401", message, self._loc("settings", "tool_choice"), hint)
        other = str(choice).removeprefix(HANDOFF)
        is_handoff = other != str(choice) and other in self.handoffs
        return HANDOFF + self.handoffs[other] if is_handoff else choice


def _title(agent: Declared, called: str) -> str:
    """Return the name of an agent for display and for functions."""
    return str(plain_text(agent.content.get("title", called)))


def _is_computed(value: Plain) -> bool:
    return "${{" in json.dumps(value)


def _step_of(tool: DeclaredTool) -> ToolStep:
    return declared_tool(tool, {"agents": {}})


def _arguments(tool: DeclaredTool) -> list[str]:
    return list((tool.args or {}).get("properties", {}))


def _instructions(agent: Declared) -> Plain:
    """Return the text of an agent's instructions, including its expressions."""
    entry: Any = agent.content.get("instructions", {})
    if "file" in entry:
        text = agent.home.text(entry["file"], (*agent.loc, "instructions", "file"))
        return literal_text(text)
    return entry.get("text", "")
