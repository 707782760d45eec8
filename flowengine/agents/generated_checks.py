"""The steps of a generated flow in which tools check the prompts and answers of an agent.

    ─► AGENT.before.TOOL ─► … ─► AGENT ─► … ─► AGENT.after.TOOL ─► … ─► the end
                                   ▲                  │
                                   └── its error ─────┘

A check passes by returning. Its error is sent to the model, or ends the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flowengine.agents.termination import IDLE, NO_END
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Mark

STATE: Mapping[str, Plain] = {"refused": {"type": "integer", "default": 0}}
"""Number of answers that checks have refused."""
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

    @property
    def holds(self) -> bool:
        """Whether a message joins the conversation only after its checks have passed."""
        return self.refused != "end"


def first(agent: str, checks: Sequence[AgentCheck], when: str, then: str) -> str:
    """Return the first check, or the following step if there is none."""
    due = [check for check in checks if check.when == when]
    return _id(agent, due[0]) if due else then


def ids(agent: str, checks: Sequence[AgentCheck]) -> list[str]:
    """Return the ids of the steps of an agent's checks."""
    return [_id(agent, check) for check in checks]


def steps(checks: Sequence[AgentCheck], around: Around) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of an agent's checks, and their marks.

    Args:
        checks: The checks, in order of execution.
        around: The surrounding flow.
    """
    results: list[Plain] = []
    marks: dict[str, Mark] = {}
    for when, then in (("before", around.begins), ("after", around.end)):
        chain = [check for check in checks if check.when == when]
        ids = [_id(around.agent, agent) for agent in chain]
        for check, id, to in zip(chain, ids, [*ids[1:], then], strict=False):
            results.append(_step(check, id, to, around))
            says = f"checks with {check.tool.name}"
            marks[id] = Mark(
                reads=("context",),
                inputs=check.tool.inputs,
                tool=check.tool.name,
                caller=around.agent,
                says=says,
            )
    return results, marks


def _step(check: AgentCheck, id: str, to: str, around: Around) -> Plain:
    before = check.when == "before"
    given = {**GIVEN}
    if around.holds:
        given["prompt"] = GIVEN["prompt"].replace(
            "state.messages[", "state.asked >= size(state.messages) ? state.held : state.messages["
        )
    step: dict[str, Plain] = {
        "id": id,
        "join": {"need": "each"},
        **check.tool.action,
        "with": {name: given[name] for name in check.arguments},
        "on_error": [around.spent, *(_before if before else _after)(check, to, around)],
        "next": {"to": to},
    }
    if not before and to == around.end:
        step["set"] = {"text": _AS_TEXT}
    elif to == around.enters and around.holds:
        step["set"] = {"messages": f"${{{{ {HELD} }}}}"}
    return step


def _before(check: AgentCheck, to: str, around: Around) -> list[Plain]:
    """Return the error handlers of a check of the prompt."""
    if not check.tells:
        return [_ends(around, _reason(check, "what was asked"))]
    text = "'A check of what was asked says: ' + call_reason(error)"
    held = f"({HELD}) + " if around.holds else ""
    return [{"set": {"messages": _message(text, held)}, "next": to}]


def _after(check: AgentCheck, to: str, around: Around) -> list[Plain]:
    """Return the error handlers of a check of the answer.

    The refused answer is always followed by the reason. In a chat, for example, the model can see
    both later, and must not assume that the user has read that answer.
    """
    reason = _reason(check, "the answer")
    why = "'A check refused your answer: ' + call_reason(error)"
    refused = {"messages": _message(why)}
    if not check.tells:
        return [_ends(around, reason, refused)]
    over = {**refused, "end": {**NO_END, "reason": reason}, "text": ""}
    again: Plain = {
        "messages": _message(f"{why} + '\\nAnswer again.'"),
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


def _id(agent: str, check: AgentCheck) -> str:
    return f"{agent}.{check.when}.{check.tool.name}"
