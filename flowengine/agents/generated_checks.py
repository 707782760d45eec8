"""The steps of a generated flow in which tools check the prompts and answers of an agent.

    ─► AGENT.before.TOOL ─► … ─► AGENT ─► … ─► AGENT.after.TOOL ─► … ─► the end
                                   ▲                  │
                                   └── its error ─────┘

A check passes by returning. Its error is sent to the model, or ends the step. Checks of a prompt
can run beside the first request to the model:

    ─► AGENT.beside ─► AGENT, which takes the reply of AGENT.ahead
         AGENT.before.TOOL, … and AGENT.ahead, at the same time
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from flowengine.agents.termination import IDLE
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.tools.hook_results import NO_END

STATE: Mapping[str, Plain] = {"refused": {"type": "integer", "default": 0}}
"""Number of answers that checks have refused."""
AHEAD: Mapping[str, Plain] = {"ahead": {"type": "object", "default": {}}}
"""The reply to a request beside the checks, until the turn takes it."""
ANSWERED = "state.end.outcome == 'resolved' || state.end.value != null"
"""Whether there is an answer."""
GIVEN: Mapping[str, str] = {
    "prompt": "${{ state.asked < 0 ? '' : state.messages[state.asked].content }}",
    "answer": "${{ state.end.value }}",
}
"""Arguments that a check can take."""
HELD = "state.asked >= size(state.messages) ? [{'role': 'user', 'content': state.held}] : []"
"""The message under check, unless it is part of the conversation already."""
_AS_TEXT = "${{ type(state.end.value) == string ? state.end.value : json(state.end.value) }}"


@dataclass(frozen=True)
class AgentCheck:
    """A tool that checks a prompt or an answer."""

    tool: ToolStep
    when: Literal["before", "after"]
    tells: bool
    """Whether the model receives the error of the check. Otherwise the error ends the step."""
    arguments: Sequence[str]
    """The arguments that it takes, from `GIVEN`."""
    beside: bool = False
    """Whether it checks a prompt beside the request to the model."""
    arriving: Plain = None
    """The function that also checks an answer while it arrives."""


@dataclass(frozen=True)
class Around:
    """The parts of the surrounding flow that a check refers to."""

    agent: str
    end: str
    """The step after the agent's work."""
    over: str
    """The condition that no turn is left."""
    spent: Plain
    """The handler of an exhausted budget."""
    enters: str
    """The first step of a turn."""
    begins: str
    """The step after the checks of a prompt."""
    refused: str = "end"
    """The step after a failed check that ends the work. In a chat, it is the question to the
    person."""
    ahead: Plain = None
    """The step of the request beside checks. None: no check runs beside it."""
    taken: Mapping[str, Plain] = field(default_factory=dict)
    """State to set with its reply."""

    @property
    def holds(self) -> bool:
        """Whether a message joins the conversation only after its checks have passed."""
        return self.refused != "end"


def first(agent: str, checks: Sequence[AgentCheck], when: str, then: str) -> str:
    """Return the first check, or the following step if there is none."""
    due = [check for check in checks if check.when == when]
    alone = [check for check in due if not check.beside]
    return _id(agent, alone[0]) if alone else beside(agent) if due else then


def beside(agent: str) -> str:
    """Return the id of the step in which checks run beside the request to the model."""
    return f"{agent}.beside"


def ahead(agent: str) -> str:
    """Return the id of the step of that request."""
    return f"{agent}.ahead"


def run_beside(checks: Sequence[AgentCheck]) -> bool:
    """Return whether checks run beside the request to the model."""
    return any(check.beside for check in checks)


def arriving(checks: Sequence[AgentCheck]) -> list[Plain]:
    """Return the checks of text that arrives, as a constant of the turn."""
    return [
        {"check": check.tool.name, "function": check.arriving, "arguments": [*check.arguments]}
        for check in checks
        if check.arriving
    ]


def closed(checks: Sequence[AgentCheck], around: Around) -> list[Plain]:
    """Return the error handlers of a turn whose request a check of arriving text has closed.

    They act as after a whole answer. The turn counts, and the next request is measured anew.
    """
    # The turn has failed, so it is not yet counted when it is decided whether one is left.
    around = replace(around, over=around.over.replace("state.turns", "state.turns + 1"))
    said = "[{'role': 'assistant', 'content': error.data.text}] + "
    handlers: list[Plain] = []
    for check in checks:
        stopped = f"default(error.data.check, '') == {json.dumps(check.tool.name)}"
        for handler in _after(check, around.end, around, said) if check.arriving else ():
            when = handler.get("when", "${{ true }}")[4:-3]
            turn = {"active": around.agent, "turns": 1, "last": {}}
            handlers.append(
                {
                    **handler,
                    "when": f"${{{{ {stopped} && ({when}) }}}}",
                    "set": {**handler["set"], **turn},
                }
            )
    return handlers


def ids(agent: str, checks: Sequence[AgentCheck]) -> list[str]:
    """Return the ids of the steps of an agent's checks."""
    around = [beside(agent), ahead(agent)] if run_beside(checks) else []
    return [*around, *(_id(agent, check) for check in checks)]


def steps(checks: Sequence[AgentCheck], around: Around) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of an agent's checks, and their marks.

    Args:
        checks: The checks, in order of execution.
        around: The surrounding flow.
    """
    results: list[Plain] = []
    marks = {
        _id(around.agent, check): Mark(
            reads=("context",),
            inputs=check.tool.inputs,
            tool=check.tool.name,
            caller=around.agent,
            says=f"checks with {check.tool.name}",
        )
        for check in checks
    }
    alongside = [check for check in checks if check.beside]
    begins = beside(around.agent) if alongside else around.begins
    for when, then in (("before", begins), ("after", around.end)):
        chain = [check for check in checks if check.when == when and not check.beside]
        ids = [_id(around.agent, check) for check in chain]
        for check, id, to in zip(chain, ids, [*ids[1:], then], strict=False):
            results.append(_step(check, id, to, around))
    if alongside:
        results.append(_beside(alongside, around))
        marks[beside(around.agent)] = Mark(plumbing=True, says="", ways=[""])
    return results, marks


def _beside(checks: Sequence[AgentCheck], around: Around) -> Plain:
    """Return the step in which checks run beside the request to the model.

    An error of a check fails it, and thereby ends the request.
    """
    return {
        "id": beside(around.agent),
        "join": {"need": "each"},
        "parallel": [*(_alongside(check, around) for check in checks), around.ahead],
        "output": f"${{{{ default(steps[{json.dumps(ahead(around.agent))}].output, {{}}) }}}}",
        "set": {**around.taken, **_joined(around.begins, around)},
        "on_error": [
            {"when": "${{ state.end.outcome == 'budget' }}", "next": "end"},
            {"when": "${{ state.end.outcome != '' }}", "next": around.refused},
        ],
        "next": {"to": around.begins},
    }


def _alongside(check: AgentCheck, around: Around) -> Plain:
    """Return the step of a check in `_beside`, whose errors end it."""
    raised = [
        {**{key: value for key, value in handler.items() if key != "next"}, "fail": "${{ error }}"}
        for handler in (around.spent, *_before(check, "end", around))
    ]
    return {"id": _id(around.agent, check), **_call(check, around), "on_error": raised}


def _step(check: AgentCheck, id: str, to: str, around: Around) -> Plain:
    before = check.when == "before"
    step: dict[str, Plain] = {
        "id": id,
        "join": {"need": "each"},
        **_call(check, around),
        "on_error": [around.spent, *(_before if before else _after)(check, to, around)],
        "next": {"to": to},
    }
    if not before and to == around.end:
        step["set"] = {"text": _AS_TEXT}
    elif before and (joined := _joined(to, around)):
        step["set"] = joined
    return step


def _call(check: AgentCheck, around: Around) -> dict[str, Plain]:
    """Return the call of the tool that checks."""
    given = {**GIVEN}
    if around.holds:
        given["prompt"] = GIVEN["prompt"].replace(
            "state.messages[", "state.asked >= size(state.messages) ? state.held : state.messages["
        )
    return {**check.tool.action, "with": {name: given[name] for name in check.arguments}}


def _joined(to: str, around: Around) -> dict[str, Plain]:
    """Return the state after the last check: a message that was held joins the conversation."""
    return {"messages": f"${{{{ {HELD} }}}}"} if around.holds and to == around.enters else {}


def _before(check: AgentCheck, to: str, around: Around) -> list[Plain]:
    """Return the error handlers of a check of the prompt."""
    if not check.tells:
        return [_ends(around, _reason(check, "what was asked"))]
    text = "'A check of what was asked says: ' + call_reason(error)"
    held = f"({HELD}) + " if around.holds else ""
    return [{"set": {"messages": _message(text, held)}, "next": to}]


def _after(check: AgentCheck, to: str, around: Around, said: str = "") -> list[Plain]:
    """Return the error handlers of a check of the answer.

    `said` adds the answer to the conversation, if it is not part of it.

    The refused answer is always followed by the reason. In a chat, for example, the model can see
    both later, and must not assume that the user has read that answer.
    """
    reason = _reason(check, "the answer")
    why = "'A check refused your answer: ' + call_reason(error)"
    refused = {"messages": _message(why, said)}
    if not check.tells:
        return [_ends(around, reason, refused)]
    over = {**refused, "end": {**NO_END, "reason": reason}, "text": ""}
    again: Plain = {
        "messages": _message(f"{why} + '\\nAnswer again.'", said),
        "end": NO_END,
        "text": "",
        "refused": "${{ state.refused + 1 }}",
    }
    reason = f"{IDLE + 1} times, the last time as {reason}"
    return [
        {"when": f"${{{{ {around.over} }}}}", "set": over, "next": around.end},
        {"when": f"${{{{ state.refused < {IDLE} }}}}", "set": again, "next": around.enters},
        _ends(around, reason, refused, no_progress=True),
    ]


def _ends(
    around: Around, reason: str, more: Mapping[str, Plain] = {}, *, no_progress: bool = False
) -> Plain:
    end = {**NO_END, "outcome": "not_resolved", "reason": reason, "no_progress": no_progress}
    return {"set": {**more, "end": end, "text": ""}, "next": around.refused}


def _reason(check: AgentCheck, what: str) -> str:
    return f"{check.tool.name} refused {what}: ${{{{ error.type }}}}: ${{{{ error.message }}}}"


def _message(text: str, before: str = "") -> str:
    return f"${{{{ {before}[{{'role': 'user', 'content': {text}}}] }}}}"


def answer_check(agent: str, tool: str) -> str:
    """Return the id of the step in which a tool checks an agent's answers."""
    return f"{agent}.after.{tool}"


def _id(agent: str, check: AgentCheck) -> str:
    if check.when == "after":
        return answer_check(agent, check.tool.name)
    return f"{agent}.{check.when}.{check.tool.name}"
