"""The steps of a generated flow in which tools check what an agent is asked, and what it answers.

    ─► AGENT.before.TOOL ─► … ─► AGENT ─► … ─► AGENT.after.TOOL ─► … ─► the end
                                   ▲                  │
                                   └── what it raises ┘

A check passes by returning. What it raises is told to the model, or ends the step.
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
"""How many answers checks have refused."""
ANSWERED = "state.end.outcome == 'resolved' || state.end.value != null"
"""Whether there is an answer."""
GIVEN: Mapping[str, str] = {
    "prompt": "${{ state.asked < 0 ? '' : state.messages[state.asked].content }}",
    "answer": "${{ state.end.value }}",
}
"""What a check may take."""
_HELD = "state.asked >= size(state.messages) ? [{'role': 'user', 'content': state.held}] : []"
"""The message that is checked before it is part of the conversation, if it is not yet."""
_AS_TEXT = "${{ type(state.end.value) == string ? state.end.value : json(state.end.value) }}"


@dataclass(frozen=True)
class Check:
    """A tool that checks."""

    tool: ToolStep
    when: Literal["before", "after"]
    tells: bool
    """Whether the model is told what the check raises; else that ends the step."""
    arguments: Sequence[str]
    """What it takes of `GIVEN`."""


@dataclass(frozen=True)
class Around:
    """What a check needs to know of the flow around it."""

    agent: str
    end: str
    """Where the agent's work leads when it is done."""
    over: str
    """The condition that no turn is left."""
    spent: Plain
    """The handler of a budget that has nothing left."""
    refused: str = "end"
    """Where a check leads that ends the work: in a chat, to the person."""

    @property
    def holds(self) -> bool:
        """Whether a message is held back until the checks of it have passed."""
        return self.refused != "end"


def first(agent: str, checks: Sequence[Check], when: str, then: str) -> str:
    """Return the step that comes first: the first check, or what follows if there is none."""
    found = [one for one in checks if one.when == when]
    return _id(agent, found[0]) if found else then


def ids(agent: str, checks: Sequence[Check]) -> list[str]:
    """Return the ids of the steps of an agent's checks."""
    return [_id(agent, one) for one in checks]


def steps(checks: Sequence[Check], around: Around) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of an agent's checks, and their marks.

    Args:
        checks: In the order in which they are made.
        around: The flow around them.
    """
    found: list[Plain] = []
    marks: dict[str, Mark] = {}
    for when, then in (("before", around.agent), ("after", around.end)):
        chain = [one for one in checks if one.when == when]
        ids = [_id(around.agent, one) for one in chain]
        for check, id, to in zip(chain, ids, [*ids[1:], then], strict=False):
            found.append(_step(check, id, to, around))
            says = f"checks with {check.tool.name}"
            marks[id] = Mark(
                reads=("context",),
                inputs=check.tool.inputs,
                tool=check.tool.name,
                caller=around.agent,
                says=says,
            )
    return found, marks


def _step(check: Check, id: str, to: str, around: Around) -> Plain:
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
    elif to == around.agent and around.holds:
        step["set"] = {"messages": f"${{{{ {_HELD} }}}}"}
    return step


def _before(check: Check, to: str, around: Around) -> list[Plain]:
    """Return what happens when a check of the prompt raises."""
    if not check.tells:
        return [_ends(around, _reason(check, "what was asked"))]
    told = "'A check of what was asked says: ' + error.type + ': ' + error.message"
    held = f"({_HELD}) + " if around.holds else ""
    return [{"set": {"messages": _message(told, held)}, "next": to}]


def _after(check: Check, to: str, around: Around) -> list[Plain]:
    """Return what happens when a check of the answer raises.

    The reason stands behind the refused answer in any case: the model may see both later, in a
    chat for example, and must not believe that the user has read that answer.
    """
    reason = _reason(check, "the answer")
    why = "'A check refused your answer: ' + error.type + ': ' + error.message"
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
        {"when": f"${{{{ state.refused < {IDLE} }}}}", "set": again, "next": around.agent},
        _ends(around, reason, refused, no_progress=True),
    ]


def _ends(
    around: Around, reason: str, more: Mapping[str, Plain] = {}, *, no_progress: bool = False
) -> Plain:
    end = {**NO_END, "outcome": "not_resolved", "reason": reason, "no_progress": no_progress}
    return {"set": {**more, "end": end, "text": ""}, "next": around.refused}


def _reason(check: Check, what: str) -> str:
    return f"{check.tool.name} refused {what}: ${{{{ error.type }}}}: ${{{{ error.message }}}}"


def _message(told: str, before: str = "") -> str:
    return f"${{{{ {before}[{{'role': 'user', 'content': {told}}}] }}}}"


def _id(agent: str, check: Check) -> str:
    return f"{agent}.{check.when}.{check.tool.name}"
