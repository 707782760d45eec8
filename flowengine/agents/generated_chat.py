"""The step of a generated flow that talks with a person: a chat asks after each answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from flowengine.agents.generated_state import NOTHING
from flowengine.agents.termination import NO_END
from flowengine.agents.tool_steps import ASK
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Mark

PERSON = "person"
"""The id of the step, if no agent has it; what it is, its mark says."""
HELLO = "What can I do for you?"
STOPPED = "I have stopped, because this takes more turns than I am allowed. How should I continue?"
RETRY = "/retry"
FAILED = f"There is no answer. {RETRY} asks again, or say something else."
"""What a person is told below the error of a model."""
STATE: Mapping[str, Plain] = {
    "failed": {"type": "string", "default": ""},
    "held": {"type": "string", "default": ""},
}
"""Why the last turn has no answer, empty: it has one; what was said and has to pass checks."""
_AGAIN = (
    f"state.failed != '' && (output == {RETRY!r} || state.asked >= 0"
    " && state.asked < size(state.messages) && state.messages[state.asked].content == output)"
)
"""Whether what was asked already is asked again, by the command or in the same words."""


def step(id: str, ways: Sequence[Plain], checking: Sequence[str]) -> tuple[Plain, Mark]:
    """Return the step that shows an answer to a person and takes the next message, and its mark.

    Args:
        id: Of the step.
        ways: The edges to the agent that is active.
        checking: The agents that check what is said before it is part of the conversation.
    """
    held = f" || state.active in {json.dumps(checking)}" if checking else ""
    question = (
        f"state.failed != '' ? state.failed + {chr(10) + FAILED!r} : "
        "state.text != '' ? state.text : state.end.reason != '' ? state.end.reason : "
        f"size(state.messages) == 0 ? {HELLO!r} : {STOPPED!r}"
    )
    ended = json.dumps({**NO_END, "outcome": "resolved"}).replace("null", "state.text")
    made: Plain = {
        "id": id,
        "join": {"need": "each"},
        "call": ASK,
        "with": {"question": f"${{{{ {question} }}}}"},
        "set": {
            "messages": f"${{{{ output == '' || {_AGAIN}{held} ? [] : "
            "[{'role': 'user', 'content': output}] }}",
            "asked": f"${{{{ output == '' || {_AGAIN} ? state.asked : size(state.messages) }}}}",
            "failed": "",
            **({"held": "${{ output }}"} if checking else {}),
            "begun": "${{ state.turns }}",
            "end": f"${{{{ output == '' ? {ended} : {NOTHING} }}}}",
            "text": "${{ output == '' ? state.text : '' }}",
            "idle": 0,
            "refused": 0,
        },
        "next": {"first": [{"when": "${{ state.end.outcome != '' }}", "to": "end"}, *ways]},
    }
    return made, Mark(chat=True, says="asks a person", ways=["nothing more", *("" for _ in ways)])


def failed(person: str, agent: str, more: Mapping[str, Plain] = {}) -> Plain:
    """Return what happens when no model of an agent can answer: the person is told why.

    Args:
        person: The id of the step that asks the person.
        agent: Whose turn it is, also when it is asked again.
        more: What else is set.
    """
    changes: Plain = {
        **more,
        "failed": "${{ error.type + ': ' + error.message }}",
        "active": agent,
        "model_at": "${{ 0 - state.model_at }}",
    }
    return {"set": changes, "next": person}
