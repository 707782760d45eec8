"""The steps of a generated flow in which tools stand around an agent's turns and calls.

    ─► AGENT.before_turn.TOOL ─► AGENT ─► AGENT.after_turn.TOOL ─► AGENT.before_calls ─► AGENT.calls
                                                    for each call: before_call.TOOL      │
                                                    tool ─► after_call.TOOL ◄────────────┘

A hook returns nothing, or the changes, as `flowengine.sdk.tools.hook_results` reads it. Its
output is in the journal, so a resume does not run it again. The arguments it
changed are those that rules and approvers see, because they are consulted later, in the step of the
tool. A hook that fails is taken as a refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Literal

from flowengine.agents import generated_checks
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.tools.hook_results import NO_END

When = Literal["before_turn", "after_turn", "before_call", "after_call"]
STATE: Mapping[str, Plain] = {"choice": {"type": "object", "default": {}}}
"""The choices of hooks for the next turn: `model`, `tools` and `tool_choice`."""
_TURN = {
    "agent": "",  # its name, set below
    "turn": "${{ state.turns - state.begun + 1 }}",
    "prompt": generated_checks.GIVEN["prompt"],
}
GIVEN: Mapping[str, Mapping[str, str]] = {
    "before_turn": {
        **_TURN,
        "messages": "${{ state.messages }}",
        "tokens": "${{ default(state.last.tokens, 0) }}",
    },
    "after_turn": {
        **_TURN,
        "turn": "${{ state.turns - state.begun }}",
        "text": "${{ default(steps[AGENT].output.message.content, '') }}",
        "calls": "${{ calls_seen(state.calls) }}",
        "tokens": "${{ default(state.last.tokens, 0) }}",
    },
    "before_call": {**_TURN, "turn": "${{ state.turns - state.begun }}"},
    "after_call": {**_TURN, "turn": "${{ state.turns - state.begun }}"},
}
"""When → the arguments that a hook can take, besides those about a call."""
OF_CALL: Mapping[str, Sequence[str]] = {
    "before_call": ("tool", "arguments"),
    "after_call": ("tool", "arguments", "result", "error"),
}
"""When → the arguments about a call."""


@dataclass(frozen=True)
class AgentHook:
    """A tool that stands around the turns or the calls of an agent."""

    tool: ToolStep
    when: When
    arguments: Sequence[str]
    """The arguments that it takes, of those in `GIVEN` and `OF_CALL`."""
    tools: Sequence[str] = ()
    """Globs for the names of the called tools. Empty: all."""


def of(hooks: Iterable[AgentHook], when: When) -> list[AgentHook]:
    """Return the hooks of a kind in the order in which they run, the outermost declared first."""
    found = [hook for hook in hooks if hook.when == when]
    return found if when.startswith("before") else found[::-1]


def ids(agent: str, hooks: Sequence[AgentHook]) -> list[str]:
    """Return the ids of the steps of an agent's hooks."""
    around = [before_calls(agent), taken(agent)] if of(hooks, "before_call") else []
    around += [leads(agent)] if of(hooks, "after_turn") else []
    return [*(_id(agent, hook) for hook in hooks), *around]


def before_calls(agent: str) -> str:
    """Return the id of the step in which hooks see the calls of a reply, one after the other."""
    return f"{agent}.before_calls"


def taken(agent: str) -> str:
    """Return the id of the step that writes the calls as the hooks have left them."""
    return f"{agent}.hooked_calls"


def leads(agent: str) -> str:
    """Return the id of the step after the hooks of a turn, which goes where the turn leads."""
    return f"{agent}.leads"


def first(agent: str, hooks: Sequence[AgentHook], when: When, then: str) -> str:
    """Return the first hook, or the following step if there is none."""
    due = of(hooks, when)
    return _id(agent, due[0]) if due else then


@dataclass(frozen=True)
class HookedFlow:
    """The parts of the surrounding flow that hooks refer to."""

    agent: str
    called: str
    """The name of the agent for functions."""
    answered: str
    """The step after an answer."""
    end: str
    """The step after the agent's work."""
    refused: str
    """The step that stands for an invalid call."""
    spent: Plain
    """The handler of an exhausted budget."""


def turns(hooks: Sequence[AgentHook], around: HookedFlow) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of the hooks around a turn, and their marks."""
    steps: list[Plain] = []
    marks: dict[str, Mark] = {}
    for when, then in (("before_turn", around.agent), ("after_turn", leads(around.agent))):
        chain = of(hooks, when)  # type: ignore[arg-type]
        ids = [_id(around.agent, hook) for hook in chain]
        for place, (hook, id, to) in enumerate(zip(chain, ids, [*ids[1:], then], strict=False)):
            write = _before_turn if when == "before_turn" else _after_turn
            steps.append({"id": id, "join": {"need": "each"}, **write(hook, to, around, place)})
            marks[id] = _mark(hook, around.agent)
    return steps, marks


def _before_turn(hook: AgentHook, to: str, around: HookedFlow, place: int) -> Plain:
    name = json.dumps(hook.tool.name)
    before = "state.choice" if place else "{}"
    reason = f"{hook.tool.name} refused the turn: ${{{{ call_reason(error) }}}}"
    ends = {**NO_END, "outcome": "not_resolved", "reason": reason}
    return {
        **_action(hook, around, {}),
        "output": f"${{{{ turn_hooked(result, {name}) }}}}",
        "set": {
            "choice": f"${{{{ merge({before}, output.choice) }}}}",
            "messages": "${{ output.messages }}",
            "end": "${{ output.end == null ? state.end : output.end }}",
            "text": "${{ output.text == null ? state.text : output.text }}",
        },
        "on_error": [around.spent, {"set": {"end": ends, "text": ""}, "next": around.end}],
        "next": {
            "first": [
                {"when": "${{ state.end.outcome == 'resolved' }}", "to": around.answered},
                {"when": "${{ state.end.outcome != '' }}", "to": around.end},
                {"else": to},
            ]
        },
    }


def _after_turn(hook: AgentHook, to: str, around: HookedFlow, _place: int) -> Plain:
    name, refused = json.dumps(hook.tool.name), json.dumps(around.refused)
    seen = "state.calls, state.end, state.text"
    failed = f"reply_hooked({{'refuse': call_reason(error)}}, {name}, {seen}, {refused})"
    changes = ("calls", "messages", "end", "text")
    closed = {key: f"${{{{ {failed}.{key} }}}}" for key in changes}
    return {
        **_action(hook, around, {}),
        "output": f"${{{{ reply_hooked(result, {name}, {seen}, {refused}) }}}}",
        "set": {key: f"${{{{ output.{key} }}}}" for key in changes},
        "on_error": [around.spent, {"set": closed, "next": to}],
        "next": {"to": to},
    }


def calls(
    hooks: Sequence[AgentHook], around: HookedFlow, then: str
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps in which hooks see the calls of a reply, and their marks.

    Calls are seen in their order, before the first of them is made.

    Args:
        hooks: The hooks of the agent.
        around: The surrounding flow.
        then: The step that makes the calls.
    """
    chain = of(hooks, "before_call")
    if not chain:
        return [], {}
    steps: list[Plain] = []
    marks = {before_calls(around.agent): Mark(plumbing=True, says="", ways=[""])}
    before = "call"
    same = "call.step == {0}.step && call.handoff == {0}.handoff"
    for hook in chain:
        id, name = _id(around.agent, hook), json.dumps(hook.tool.name)
        given = {
            "tool": f"${{{{ call_name({before}) }}}}",
            "arguments": f"${{{{ default({before}.args, {{}}) }}}}",
        }
        is_call = "(has(call.args) || call.handoff != '')"
        meant = _matches(hook, f"call_name({before})")
        hooked = f"call_hooked({before}, {{}}, {name}, {json.dumps(around.refused)})"
        failed = hooked.replace("{}", "{'refuse': call_reason(error)}", 1)
        steps.append(
            {
                "id": id,
                "when": f"${{{{ {is_call} && {same.format(before)}{meant} }}}}",
                **_action(hook, around, given),
                "output": f"${{{{ {hooked.replace('{}', 'result', 1)} }}}}",
                "on_error": [
                    spent(f"${{{{ {failed} }}}}"),
                    {"output": f"${{{{ {failed} }}}}"},
                ],
            }
        )
        marks[id] = _mark(hook, around.agent)
        outputs = (f"steps[{json.dumps(step['id'])}].output" for step in reversed(steps))
        before = f"default({', '.join([*outputs, 'call'])})"
    step: Plain = {
        "id": before_calls(around.agent),
        "map": {"over": "${{ state.calls }}", "as": "call", "key": "${{ call.place }}",
                "concurrency": 1},
        "group": steps,
        "output": f"${{{{ {before} }}}}",
        "next": {"to": taken(around.agent)},
    }  # fmt: skip
    found = f"${{{{ steps[{json.dumps(before_calls(around.agent))}].output }}}}"
    write: Plain = {"id": taken(around.agent), "set": {"calls": found}, "next": {"to": then}}
    return [step, write], {**marks, taken(around.agent): Mark(plumbing=True, ways=[""])}


def after(
    hooks: Sequence[AgentHook], around: HookedFlow, answer: str
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps in which hooks see the answer to a call, and their marks.

    Args:
        hooks: The hooks of the agent.
        around: The surrounding flow.
        answer: The expression for the answer of the tool's step.
    """
    chain = of(hooks, "after_call")
    steps: list[Plain] = []
    marks: dict[str, Mark] = {}
    ids = [_id(around.agent, hook) for hook in chain]
    for hook, id, to in zip(chain, ids, [*ids[1:], "end"], strict=False):
        name = json.dumps(hook.tool.name)
        given = {
            "tool": "${{ call.name }}",
            "arguments": "${{ call.args }}",
            "result": f"${{{{ call_seen({answer}).result }}}}",
            "error": f"${{{{ call_seen({answer}).error }}}}",
        }
        meant = _matches(hook, "call.name")
        failed = (
            f"${{{{ answer_hooked(call, {answer}, {{'refuse': call_reason(error)}}, {name}) }}}}"
        )
        steps.append(
            {
                "id": id,
                "join": {"need": "each"},
                **({"when": f"${{{{ {meant.removeprefix(' && ')} }}}}"} if meant else {}),
                **_action(hook, around, given),
                "output": f"${{{{ answer_hooked(call, {answer}, result, {name}) }}}}",
                "on_error": [spent(failed), {"output": failed}],
                "next": {"to": to},
            }
        )
        marks[id] = _mark(hook, around.agent)
        answer = f"default(steps[{json.dumps(id)}].output, {answer})"
    return steps, marks


SPENT = "has(state.spent.reason)"
"""Whether a call exhausted a budget, as `spent` records it."""


def spent(output: Plain) -> Plain:
    """Return the handler of an exhausted budget in a call or a hook around it.

    Args:
        output: The answer to the call.
    """
    spent = {"spent": {"reason": "${{ error.message }}"}}
    return {"type": ["BudgetExceeded"], "set": spent, "output": output}


def _action(hook: AgentHook, around: HookedFlow, given: Mapping[str, str]) -> Plain:
    """Return the action of a hook's step, with the arguments that the hook takes."""
    agent = json.dumps(around.agent)
    known = {name: text.replace("AGENT", agent) for name, text in GIVEN[hook.when].items()}
    known |= {"agent": around.called, **given}
    return {**hook.tool.action, "with": {name: known[name] for name in hook.arguments}}


def _matches(hook: AgentHook, name: str) -> str:
    """Return the condition that a hook is meant for a tool, to be appended. Empty: for all."""
    if not hook.tools:
        return ""
    globs = (f"(?:{_pattern(glob)})" for glob in hook.tools)
    return f" && {name}.matches({json.dumps('^(?:' + '|'.join(globs) + ')$')})"


def _pattern(glob: str) -> str:
    """Return a glob as a regular expression in the syntax that expressions take."""
    return re.sub(r"^\(\?s:(.*)\)\\Z$", r"\1", translate(glob))


def _mark(hook: AgentHook, agent: str) -> Mark:
    says = f"hook {hook.tool.name}"
    return Mark(
        reads=("context",),
        inputs=hook.tool.inputs,
        tool=hook.tool.name,
        caller=agent,
        says=says,
    )


def _id(agent: str, hook: AgentHook) -> str:
    return f"{agent}.{hook.when}.{hook.tool.name}"
