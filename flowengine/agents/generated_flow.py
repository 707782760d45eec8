"""The flow that runs agents, in the flow language. An agent step is compiled to it.

    offer ─► AGENT ─► AGENT.calls ─► AGENT, another agent, or the end
                       each call: dispatch ─► the tool's step, or `told` ─► answer

It has a model step per agent, a step per tool and an edge per handoff. Every decision made during a
run is in the output of one of these steps, and therefore in the journal. The state is derived from
these outputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flowengine.agents import (
    generated_background,
    generated_calls,
    generated_chat,
    generated_checks,
    generated_hooks,
    generated_programs,
    generated_reductions,
    generated_steering,
)
from flowengine.agents.actions import display_name
from flowengine.agents.agent_specs import RETRY, AgentSpec
from flowengine.agents.generated_chat import ANSWER
from flowengine.agents.generated_checks import ANSWERED, Around
from flowengine.agents.generated_hooks import SPENT, HookedFlow
from flowengine.agents.programs import MOST_CALLS, step_of
from flowengine.agents.termination import NOTHING
from flowengine.agents.tool_steps import ToolStep, wanted
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.tools.hook_results import NO_END

OFFER, OFFER_AGAIN = "_offer", "_offer_again"
"""Ids of the steps that determine the models and the tools of servers."""
_USED = (
    "{{'agent': {}, 'model': output.model, "
    "'input': default(output.usage.estimated, false) ? 0 : output.usage.input_tokens, "
    "'tokens': output.usage.input_tokens + output.usage.output_tokens}}"
)
"""Size, agent and model of the last request. The next request is longer by its new messages."""
_END = (
    f"!has(output.end) ? {NOTHING} : has(output.end.value) ? output.end"
    " : merge(output.end, {'value': output.message.content})"
)
"""How a turn ends the work. A value equal to the text of the reply is stored only there."""
TEXT = "default(output.message.content, '')"


class _Way(NamedTuple):
    """An edge that leaves a step."""

    says: str
    """Its label in a diagram."""
    when: str
    """The condition."""
    to: str

    @property
    def edge(self) -> Plain:
        return {"when": f"${{{{ {self.when} }}}}", "to": self.to}


class FlowWriter:
    """Writes the flow that runs agents.

    Args:
        agents: The agents that can become active. The first one starts.
        args: Input of the first step.
        execute_tools: If false, the flow ends before the first calls.
        chat: Each answer is a question to a person, whose reply is the next message.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        args: Plain,
        *,
        execute_tools: bool = True,
        chat: bool = False,
    ) -> None:
        self.starts = execute_tools and any(tool.background for a in agents for tool in a.tools)
        if self.starts:
            agents = [generated_background.equipped(agent) for agent in agents]
        self.agents = agents if execute_tools else agents[:1]  # no calls, so no handoffs
        self.by_name = {agent.name: agent for agent in agents}
        self.execute_tools = execute_tools
        self.args = args
        self.marks: dict[str, Mark] = {}
        self.owners: dict[str, str] = {}
        """Step → the agent that owns it."""
        self._ids = {OFFER, OFFER_AGAIN, *(agent.name for agent in agents)}
        self._held_together_by = {id for agent in agents for id in _around_turns(agent)}
        """Ids of all steps other than those of tools."""
        self.person = self._unique(generated_chat.PERSON) if chat else None
        """The step that asks a person."""
        self.heard, self.paused, self.last = map(self._unique, generated_steering.IDS)
        self.told, self.awaited = map(self._unique, generated_background.IDS)
        guarded = chat and len(self.agents) > 1 and self._begin(agents[0]) != agents[0].name
        self.passed = self._unique(generated_chat.PASSED) if guarded else ""
        """The step after the checks of the first agent, which see every message of a chat."""
        self.over = f"state.turns - state.begun >= {agents[0].max_turns}"
        offered = [tool.name for agent in agents for tool in agent.tools]
        served = [tool.served for agent in agents for tool in agent.tools if tool.served]
        self.servers = list(dict.fromkeys(use.session for use in served))
        """Sessions whose servers are asked to list their tools."""
        self._shared = {name for name in offered if offered.count(name) > 1}

    def flow(self) -> dict[str, Plain]:
        """Return the flow, and set `marks` and `owners`."""
        own = {agent.name: [*self._steps(agent)] for agent in self.agents}
        self.owners = {id: name for name, steps in own.items() for id in _ids(steps)}
        steps = [self._offer(), *(step for parts in own.values() for step in parts)]
        steps += [self._offer_again()] if self.servers else []
        steps += [] if self.person is None else [self._ask_person(self.person)]
        steps += [self._pass_on()] if self.passed else []
        if self.execute_tools:
            steps += self._steering()
        turns = self.agents[0].max_turns
        why = f"'its {turns} turns are used up: give it more with max_turns'"
        reason = self._if_ended("state.end.reason", "state.spent.reason", "''", why)
        outcome = self._if_ended(
            "state.end.outcome", "'budget'", "'tools_not_executed'", "'max_turns'"
        )
        return {
            "inputs": {
                "_args": {"type": "object"},
                "_instructions": {"type": "object"},
            },
            "state": {
                **generated_chat.declared(self.agents[0].name, bool(self.servers or self.person)),
                **(generated_hooks.STATE if any(agent.hooks for agent in self.agents) else {}),
                **(generated_checks.AHEAD if any(map(_runs_beside, self.agents)) else {}),
                **(generated_chat.FOUND if any(map(_defers, self.agents)) else {}),
                **(generated_background.STATE if self.starts else {}),
                **(generated_programs.STATE if any(map(_programs, self.agents)) else {}),
                **(generated_chat.STATE if self.person is not None else {}),
            },
            "outputs": {
                "output": {"value": ANSWER},
                "agent": {"value": "${{ state.active }}"},
                "reason": {"value": reason},
            },
            "outcome": outcome,
            "signals": {
                **generated_steering.SIGNALS,
                **(generated_background.SIGNALS if self.starts else {}),
            },
            "limits": self._limits(turns),
            "steps": steps,
        }

    def _limits(self, turns: int) -> Plain:
        """Return the limits of the flow, which turns and programs reach first."""
        calls = MOST_CALLS if any(map(_programs, self.agents)) else 0
        most = max(1000, 4 * turns, turns * calls)
        return {"activations": most, "steps": max(10_000, 100 * turns, 10 * turns * calls)}

    def _if_ended(self, end: str, spent: str, not_executed: str, turns: str) -> Plain:
        """Return one of four expressions, by how the work ended."""
        left = turns
        if not self.execute_tools:
            left = f"size(state.calls) > 0 ? {not_executed} : {turns}"
        return f"${{{{ state.end.outcome != '' ? {end} : {SPENT} ? {spent} : {left} }}}}"

    def _offer(self) -> Plain:
        """Return the step that determines the offer and opens the conversation."""
        self.marks[OFFER] = Mark(plumbing=True, ahead=True, servers=self.servers)
        asked = {**self._models(), "args": self.args}
        step: dict[str, Plain] = {
            "id": OFFER,
            "agent_offer": asked,
            "effect": "idempotent",
            "set": {
                "messages": "${{ output.messages }}",
                "context": "${{ output.context }}",
                "offer": "${{ output.offer }}",
                "asked": "${{ output.asked }}",
            },
            "next": self._first(),
        }
        if self.servers:
            asked["servers"] = self._served()
            step["retry"] = dict(RETRY)
        return step

    def _offer_again(self) -> Plain:
        """Return the step that updates the offer after tools of a server have changed."""
        self.marks[OFFER_AGAIN] = Mark(plumbing=True, servers=self.servers)
        return {
            "id": OFFER_AGAIN,
            "join": {"need": "each"},
            "agent_offer": {**self._models(), "servers": self._served(), "again": True},
            "effect": "idempotent",
            "retry": dict(RETRY),
            "set": {"offer": "${{ output.offer }}", "renewed": "${{ state.changed }}"},
            "next": {"first": self._to_active(self._enter)},
        }

    def _models(self) -> dict[str, Plain]:
        models: dict[str, Any] = {
            agent.name: {"model": agent.model, "fallbacks": [*agent.fallbacks]}
            for agent in self.agents
        }
        for agent in self.agents:
            if agent.context is not None and agent.context.max_tokens is None:
                models[agent.name]["windows"] = True
        label = "${{ 'model' in execution.labels ? execution.labels.model : '' }}"
        return {"models": models, "model": label}

    def _served(self) -> Plain:
        """Return the tools of servers to offer to each agent."""
        parts: dict[str, Plain] = {}
        for agent in self.agents:
            steps = [
                (tool.served, self._step_id(agent, tool)) for tool in agent.tools if tool.served
            ]
            parts[agent.name] = wanted(steps, [t.name for t in agent.tools if t.served is None])
        return parts

    def _to_active(
        self, begin: Callable[[AgentSpec], str], active: str = "state.active"
    ) -> list[Plain]:
        """Return the edges to the active agent.

        Args:
            begin: Returns the first step of an agent.
            active: An expression for its name.
        """
        ways: list[Plain] = [
            {"when": f"${{{{ {active} == {json.dumps(agent.name)} }}}}", "to": begin(agent)}
            for agent in self.agents[1:]
        ]
        return [*ways, {"else": begin(self.agents[0])}]

    def _first(self) -> Plain:
        """Return the edges to the first agent or, in a chat without a message, to the person.

        The messages of a seeded session end with an answer.
        """
        first = self._begin(self.agents[0])
        if self.person is None:
            return {"to": first}
        asks = "state.asked < 0 || state.asked < size(state.messages) - 1"
        return {"first": [{"when": f"${{{{ {asks} }}}}", "to": self.person},
                          {"else": first}]}  # fmt: skip

    def _ask_person(self, id: str) -> Plain:
        checking = [agent.name for agent in self.agents if self._begin(agent) != agent.name]
        ways, more = self._to_active(self._begin), {}
        if self.passed:
            ways = [{"else": self._begin(self.agents[0])}]
            checking = [agent.name for agent in self.agents]
            more = {"answers": "${{ state.active }}"}
        step, mark = generated_chat.step(id, ways, checking, more)
        self.marks[id] = mark
        return step

    def _pass_on(self) -> Plain:
        """Return the step from the checks of the first agent to the agent that answers."""
        first, *others = self.agents
        checking = [agent.name for agent in others if self._begin(agent) != agent.name]

        def begin(agent: AgentSpec) -> str:
            return first.name if agent is first else self._begin(agent)

        ways = self._to_active(begin, "state.answers")
        self.marks[self.passed] = Mark(plumbing=True, ways=[""] * len(ways))
        return generated_chat.passed(self.passed, ways, checking)

    def _begin(self, agent: AgentSpec) -> str:
        """Return the first step of an agent: its first check of the prompt, or its turn."""
        return generated_checks.first(agent.name, agent.checks, "before", self._enter(agent))

    def _enter(self, agent: AgentSpec) -> str:
        """Return the first step of a turn: its first hook, or the call of the model.

        If agents run in the background, those that have ended are reported first.
        """
        return self.told if self.starts else self._take_turn(agent)

    def _take_turn(self, agent: AgentSpec) -> str:
        return generated_hooks.first(agent.name, agent.hooks, "before_turn", agent.name)

    def _answered(self, agent: AgentSpec) -> list[_Way]:
        """Return the edge from an answer to its first check. Empty without checks."""
        end = self._end(agent)
        to = generated_checks.first(agent.name, agent.checks, "after", end)
        return [] if to == end else [_Way("answers", ANSWERED, to)]

    def _end(self, agent: AgentSpec) -> str:
        """Return the step after an agent's work."""
        if not self.execute_tools or (self.person and agent.constants["finish"] == "tools"):
            return "end"
        return self.last

    def _steering(self) -> list[Plain]:
        """Return the steps in which messages of users reach the active agent."""
        ids = (self.heard, self.paused, self.last)
        ways = len(self.agents)
        self.marks |= {
            self.heard: Mark(plumbing=True, said=True, ways=[""] * ways),
            self.paused: Mark(plumbing=True, ways=[""] * (ways + 1)),
            self.last: Mark(plumbing=True, ways=[None, ""]),
        }
        checking = [agent.name for agent in self.agents if self._begin(agent) != agent.name]
        steps = generated_steering.steps(
            ids,
            self._to_active(self._begin),
            self._to_active(self._enter),
            self.person or "end",
            checking if self.person else [],
        )
        if self.starts:
            self.marks |= {
                self.told: Mark(plumbing=True, ways=[""] * ways),
                self.awaited: Mark(plumbing=True, ways=["", ""]),
            }
            if self.person is None:
                before = generated_background.before_end(self.awaited, self.over)
                steps[-1]["next"]["first"].insert(1, before)
                self.marks[self.last] = Mark(plumbing=True, ways=[None, None, ""])
        is_led_to = any(self._end(agent) == self.last for agent in self.agents)
        steps = steps if is_led_to else steps[:-1]
        if self.starts:
            tells, waits = generated_background.steps(
                (self.told, self.awaited), self._to_active(self._take_turn), self.heard
            )
            steps += [tells, waits] if is_led_to and self.person is None else [tells]
        return steps

    def _goes_on(self, agent: AgentSpec) -> list[Plain]:
        """Return the edges to the next turn of an agent."""
        edges: list[Plain] = [{"else": self._enter(agent)}]
        if self.execute_tools:
            edges = [generated_steering.before_turn(self.paused), *edges]
        return edges

    def _steps(self, agent: AgentSpec) -> Iterable[Plain]:
        calls = then = generated_calls.calls_of(agent.name)
        hooked = self._hooked(agent)
        if _programs(agent):
            then = step_of(agent.name)
        begun, marks = generated_hooks.calls(agent.hooks, hooked, then)
        self.marks |= marks
        first = begun[0]["id"] if begun else then
        yield from self._turn(agent, first)
        yield from begun
        if _programs(agent):
            step, mark = generated_programs.step(
                agent, self._constants(agent), first, self._spent()
            )
            self.marks[step["id"]] = mark
            yield step
        steps, marks = generated_hooks.turns(agent.hooks, hooked)
        self.marks |= marks
        yield from steps
        if self.execute_tools:
            yield self._calls(agent, calls)
        if agent.context is not None:
            handlers, of_tool = [self._spent(), *self._fallbacks(agent)], [self._spent()]
            if self.person is not None:
                undone = generated_reductions.UNDONE
                of_tool.append(generated_chat.failed(self.person, agent.name, undone))
            steps, marks = generated_reductions.steps(agent, handlers, of_tool)
            self.marks |= marks
            yield from steps
        for other, filter in agent.filters.items() if self.execute_tools else ():
            begin = self._begin(self.by_name[other])
            steps, marks = generated_reductions.handoff_steps(
                agent.name, other, filter, begin, [self._spent()]
            )
            self.marks |= marks
            yield from steps
        if agent.checks:
            around = self._around_checks(agent)
            if _runs_beside(agent):
                taken = {"ahead": "${{ output }}", "last": self._used(agent)}
                around = replace(around, ahead=self._ahead(agent), taken=taken)
            steps, marks = generated_checks.steps(agent.checks, around)
            self.marks |= marks
            yield from steps

    def _around_checks(self, agent: AgentSpec) -> Around:
        """Return the parts of the flow that an agent's checks refer to."""
        enters = self._enter(agent)
        begins = self.passed if agent is self.agents[0] and self.passed else enters
        return Around(
            agent.name, self._end(agent), self.over, self._spent(), enters, begins,
            self.person or "end",
        )  # fmt: skip

    def _hooked(self, agent: AgentSpec) -> HookedFlow:
        """Return the parts of the flow that an agent's hooks refer to."""
        end = self._end(agent)
        return HookedFlow(
            agent.name,
            display_name(agent.constants, agent.name),
            generated_checks.first(agent.name, agent.checks, "after", end),
            end,
            generated_calls.refused(agent.name),
            self._spent(),
        )

    def _turn(self, agent: AgentSpec, calls: str) -> Iterable[Plain]:
        """Yield the step of an agent's turn, and the one after its hooks."""
        says = f"model {agent.model}" if agent.model else "model"
        checked = self._answered(agent)
        done = f"state.end.outcome != '' || {self.over}"
        hooked = bool(generated_hooks.of(agent.hooks, "after_turn"))
        made = "state.calls" if hooked else "output.calls"
        leads = [
            _Way("calls", f"size({made}) > 0", calls if self.execute_tools else "end"),
            *checked,
            _Way("ends" if checked else "answers", done, self._end(agent)),
        ]
        onward = self._goes_on(agent)
        names = [*(lead.says for lead in leads), *(None for _ in onward[1:]), "goes on"]
        ways: list[Plain] = [*(lead.edge for lead in leads), *onward]
        following: Plain = {"first": ways}
        if hooked:
            then = generated_hooks.leads(agent.name)
            self.marks[then] = Mark(plumbing=True, ways=names)
            yield {"id": then, "join": {"need": "each"}, "next": following}
            first = generated_hooks.first(agent.name, agent.hooks, "after_turn", then)
            following, names = {"to": first}, [""]
        mark = Mark(told=True, says=says, ways=names, anew=_anew(agent), on_crash=agent.on_crash)
        self.marks[agent.name] = mark
        step: dict[str, Plain] = {
            "id": agent.name,
            "join": {"need": "each"},
            "agent_turn": self._asked(agent),
            "effect": "idempotent",
            "retry": dict(agent.retry),
            "set": {
                "messages": "${{ has(output.told) ? [output.message] + output.told"
                " : [output.message] }}",
                "calls": "${{ output.calls }}",
                "end": f"${{{{ {_END} }}}}",
                "idle": "${{ default(output.idle, 0) }}",
                "text": f"${{{{ {TEXT} == '' ? state.text : {TEXT} }}}}",
                "active": agent.name,
                "turns": 1,
                "last": self._used(agent),
            },
            "next": following,
        }
        if _runs_beside(agent):
            step["set"]["ahead"] = {}
        if _defers(agent):
            step["set"]["found"] = "${{ default(output.found, []) }}"
        reduces = [] if agent.context is None else [generated_reductions.handler(agent.name)]
        if self.passed:
            step["set"]["answers"] = ""  # a handoff to the first agent stays with it
        if checked:
            step["set"]["text"] = ""  # output no text that has not passed the checks
        closed = generated_checks.closed(agent.checks, self._around_checks(agent))
        step["on_error"] = [self._spent(), *closed, *reduces, *self._fallbacks(agent)]
        yield step

    def _asked(self, agent: AgentSpec) -> Plain:
        """Return the configuration of a request to the model."""
        return {"agent": self._constants(agent), "settings": dict(agent.settings)}

    def _used(self, agent: AgentSpec) -> str:
        """Return the expression for the last request, after a turn or a request beside checks."""
        used = _USED.format(json.dumps(agent.name))
        if _runs_beside(agent):
            used = f"has(output.usage) ? {used} : state.last"
        return f"${{{{ {used} }}}}"

    def _ahead(self, agent: AgentSpec) -> Plain:
        """Return the step of a request beside checks. If it fails, the turn repeats it."""
        id = generated_checks.ahead(agent.name)
        mark = Mark(plumbing=True, says="", anew=_anew(agent), on_crash=agent.on_crash)
        self.marks[id] = mark
        lasting = ["Stopped", "Uncertain"] if agent.on_crash else ["Stopped"]
        step: dict[str, Plain] = {
            "id": id,
            "agent_ahead": {
                **self._asked(agent),
                "held": [] if self.person is None else f"${{{{ {generated_checks.HELD} }}}}",
            },
            "effect": "idempotent",
            "on_error": [{"type": lasting, "fail": "${{ error }}"}, {"output": {}}],
        }
        if agent is self.agents[0] and self.passed:
            step["when"] = f"${{{{ state.answers == {json.dumps(agent.name)} }}}}"
        return step

    def _spent(self) -> Plain:
        """Return the handler of an exhausted budget."""
        end = {**NO_END, "outcome": "budget", "reason": "${{ error.message }}"}
        return {"type": ["BudgetExceeded"], "set": {"end": end}, "next": "end"}

    def _fallbacks(self, agent: AgentSpec) -> list[Plain]:
        """Return the handlers of a failed model: call the next fallback, or ask the person."""
        sent: list[Plain] = []
        if agent.fallbacks:
            sent.append(
                {
                    "type": ["ModelError", "RateLimited", "Timeout", "ContextWindowExceeded"],
                    "when": f"${{{{ state.model_at < {len(agent.fallbacks)} }}}}",
                    "set": {"model_at": 1},
                    "next": agent.name,
                }
            )
        if self.person is not None:
            sent.append(generated_chat.failed(self.person, agent.name))
        return sent

    def _constants(self, agent: AgentSpec) -> Plain:
        """Return the constants of an agent's turns."""
        tools: list[Plain] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters,
             "step": self._step_id(agent, tool)}
            for tool in agent.tools
            if tool.served is None
        ]  # fmt: skip
        arriving = generated_checks.arriving(agent.checks)
        others = {
            other.name: other.description for other in self.agents if other.name in agent.handoffs
        }
        return {
            "name": agent.name,
            "models": agent.models,
            "tools": tools,
            "handoffs": others,
            "max_turns": self.agents[0].max_turns,
            "last": self.agents[0].last,
            "context": None if agent.context is None else {"max_tokens": agent.context.max_tokens},
            **agent.constants,
            **({"beside": True} if _runs_beside(agent) else {}),
            **({"arriving": arriving} if arriving else {}),
            **({"hooked": True} if generated_hooks.of(agent.hooks, "before_turn") else {}),
        }

    # Calls

    def _calls(self, agent: AgentSpec, calls: str) -> Plain:
        done, spent = f"state.end.outcome != '' || {self.over}", SPENT
        to = self._end(agent)
        ends = self._answered(agent)
        if self.person is None:
            ends += [_Way("ends", f"{done} || {spent}", to)]
        else:
            ends += [_Way("ends", spent, "end"), _Way("answers", done, to)]
        if _programs(agent):
            ends.insert(0, _Way("ends", spent, "end"))
            ends.insert(1, _Way("program", generated_programs.RUNS, step_of(agent.name)))
        ways: list[Plain] = [end.edge for end in ends]
        handoffs: list[Plain] = [
            {
                "when": f"${{{{ output.exists(e, e.handoff == {json.dumps(other)}) }}}}",
                "to": self._handed_to(agent, other),
            }
            for other in self._targets(agent)
            if other != agent.name
        ]
        says: list[str | None] = [*(end.says for end in ends), *("hands over" for _ in handoffs)]
        if self.servers:
            handoffs += [{"when": "${{ state.changed > state.renewed }}", "to": OFFER_AGAIN}]
            says.append("")
        onward = self._goes_on(agent)
        says += [*(None for _ in onward[1:]), "next turn"]
        tools = [(tool, self._step_id(agent, tool)) for tool in agent.tools]
        group, marks, output = generated_calls.group(agent, tools, self._hooked(agent))
        self.marks |= {calls: Mark(plumbing=True, says="", ways=says), **marks}
        return {
            "id": calls,
            "map": {
                "over": "${{ state.calls }}",
                "as": "call",
                "key": "${{ call.place }}",
                "concurrency": generated_programs.CONCURRENCY
                if _programs(agent)
                else "${{ size(state.calls) }}",
            },
            "group": group,
            "output": output,
            "set": {
                "messages": "${{ output.messages }}",
                "context": "${{ output.context }}",
                **(generated_programs.ANSWERED if _programs(agent) else {}),
            },
            "next": {"first": [*ways, *handoffs, *onward]},
        }

    def _handed_to(self, agent: AgentSpec, other: str) -> str:
        """Return the first step after a handoff."""
        if (filter := agent.filters.get(other)) is not None:
            return generated_reductions.handoff_ids(agent.name, other, filter)[0]
        return self._begin(self.by_name[other])

    def _targets(self, agent: AgentSpec) -> list[str]:
        known = [agent.name for agent in self.agents]
        return [name for name in dict.fromkeys([*agent.handoffs, *agent.reaches]) if name in known]

    def _step_id(self, agent: AgentSpec, tool: ToolStep) -> str:
        """Return the id of a tool's step: the tool's name, if it is unique and not an agent's."""
        name = tool.name
        taken = name in self._shared or any(name == agent.name for agent in self.agents)
        id = f"{agent.name}.{name}" if taken else name
        while id in self._held_together_by:
            id += "_"
        return id

    def _unique(self, id: str) -> str:
        while id in self._ids:
            id += "_"
        self._ids.add(id)
        return id


def _defers(agent: AgentSpec) -> bool:
    """Return whether an agent has tools that it must find."""
    return "defer" in agent.constants


def _programs(agent: AgentSpec) -> bool:
    """Return whether a model writes programs that call the agent's tools."""
    return agent.code is not None


def _runs_beside(agent: AgentSpec) -> bool:
    """Return whether checks run beside a request of an agent."""
    return generated_checks.run_beside(agent.checks)


def _anew(agent: AgentSpec) -> dict[str, Sequence[str]]:
    """Return the input of a request that is evaluated each time."""
    return {"instructions": ("_instructions", agent.name)}


def _around_turns(agent: AgentSpec) -> Iterable[str]:
    """Yield the ids of an agent's steps, except those of its turns and tools."""
    yield generated_calls.calls_of(agent.name)
    yield from generated_calls.ids(agent.name)
    if agent.context is not None:
        yield from generated_reductions.ids(agent.name, agent.context)
    for other, filter in agent.filters.items():
        yield from generated_reductions.handoff_ids(agent.name, other, filter)
    if _programs(agent):
        yield step_of(agent.name)
    yield from generated_checks.ids(agent.name, agent.checks)
    yield from generated_hooks.ids(agent.name, agent.hooks)


def _ids(steps: Iterable[Plain]) -> Iterable[str]:
    """Yield the ids of steps, including nested ones."""
    for step in steps:
        yield step["id"]
        yield from _ids(step.get("group", step.get("parallel", ())))
