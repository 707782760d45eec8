"""The step of a generated flow that talks with a person: a chat asks after each answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flowengine.agents.agent_tool import ASK
from flowengine.agents.generated_state import NO_END, NOTHING
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Mark

PERSON = "person"
"""The id of the step, if nothing else has it."""
HELLO = "What can I do for you?"
STOPPED = "I have stopped, because this takes more turns than I am allowed. How should I continue?"


def step(id: str, ways: Sequence[Plain]) -> tuple[Plain, Mark]:
    """Return the step that shows an answer to a person and takes the next message, and its mark.

    Args:
        id: Of the step.
        ways: The edges to the agent that is active.
    """
    question = (
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
            "messages": "${{ output == '' ? [] : [{'role': 'user', 'content': output}] }}",
            "asked": "${{ output == '' ? state.asked : size(state.messages) }}",
            "begun": "${{ state.turns }}",
            "end": f"${{{{ output == '' ? {ended} : {NOTHING} }}}}",
            "text": "${{ output == '' ? state.text : '' }}",
            "idle": 0,
            "refused": 0,
        },
        "next": {"first": [{"when": "${{ state.end.outcome != '' }}", "to": "end"}, *ways]},
    }
    return made, Mark(says="asks a person", ways=["nothing more", *("" for _ in ways)])
