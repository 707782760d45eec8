"""The step of a generated flow in which a chat asks a person, and the state of the flow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from flowengine.agents import generated_checks, generated_reductions, generated_steering
from flowengine.agents.generated_checks import HELD
from flowengine.agents.generated_steering import TAKEN, UNHEARD
from flowengine.agents.termination import NOTHING
from flowengine.agents.tool_steps import ASK
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.tools.hook_results import NO_END

# The state of a generated flow, which is derived from the outputs of its steps.

DERIVED = (
    *("messages", "context", "offer", "turns", "begun", "idle", "model_at"),
    *("mark", "window", "summary", "asked", "earlier_replies", "last"),
)
"""State that a turn reads."""
FOUND: Mapping[str, Plain] = {"found": {"type": "array", "default": [], "reducer": "append"}}
"""Names of the deferred tools that a model has found."""
ANSWER = (
    "${{ state.end.outcome == 'resolved' || state.end.value != null ? state.end.value : state.text"
    " }}"
)
"""The output: the answer, otherwise the last text."""


def declared(active: str, served: bool) -> Mapping[str, Plain]:
    """Return the declaration of the state.

    Args:
        active: The agent that starts.
        served: Whether agents have tools of servers.
    """
    renewed: dict[str, Plain] = {}
    if served:
        renewed = {
            "changed": {"type": "integer", "default": 0, "reducer": "add"},
            "renewed": {"type": "integer", "default": 0},
        }
    return {
        "messages": {"type": "array", "default": [], "reducer": "append"},
        "context": {"type": "object", "default": {}, "reducer": "merge"},
        "offer": {"type": "object", "default": {}},
        "turns": {"type": "integer", "default": 0, "reducer": "add"},
        "begun": {"type": "integer", "default": 0},
        "model_at": {"type": "integer", "default": 0, "reducer": "add"},
        "idle": {"type": "integer", "default": 0},
        "spent": {"type": "object", "default": {}, "reducer": "merge"},
        "calls": {"type": "array", "default": []},
        "active": {"type": "string", "default": active},
        "text": {"type": "string", "default": ""},
        "end": {"type": "object", "default": NO_END},
        "handed": {"type": "object", "default": {}, "reducer": "merge"},
        "last": {"type": "object", "default": {}},
        **generated_reductions.STATE,
        **renewed,
        **generated_checks.STATE,
        **generated_steering.STATE,
    }


# The step of a generated flow in which a chat asks a person for the next message.

PERSON = "person"
"""Preferred id of the step. Its mark identifies it even under another id."""
HELLO = "What can I do for you?"
STOPPED = "I have stopped, because this takes more turns than I am allowed. How should I continue?"
RETRY = "/retry"
FAILED = f"The model did not answer. Enter {RETRY} to ask again, or enter another message."
"""Text shown to the person below a model's error."""
STATE: Mapping[str, Plain] = {
    "failed": {"type": "string", "default": ""},
    "held": {"type": "string", "default": ""},
    "answers": {"type": "string", "default": ""},
}
"""`failed`: why the last turn has no answer, empty if it has one. `held`: a message that has to
pass checks. `answers`: the agent that will answer it, while the checks of the first agent see it.
"""
PASSED = "passed"
"""Preferred id of the step after these checks."""
_AGAIN = (
    f"state.failed != '' && (output == {RETRY!r} || state.asked >= 0"
    " && state.asked < size(state.messages) && state.messages[state.asked].content == output)"
)
"""Whether the last message is to be answered again, requested by the command or by the same words.
"""


def step(
    id: str, ways: Sequence[Plain], checking: Sequence[str], more: Mapping[str, Plain] = {}
) -> tuple[Plain, Mark]:
    """Return the step that shows an answer to a person and takes the next message, and its mark.

    Args:
        id: Id of the step.
        ways: The edges to the active agent.
        checking: The agents that check a message before it joins the conversation.
        more: Further state to set.
    """
    held = f" || state.active in {json.dumps(checking)}" if checking else ""
    question = (
        f"state.failed != '' ? state.failed + {chr(10) + FAILED!r} : "
        "state.text != '' ? state.text : state.end.reason != '' ? state.end.reason : "
        f"state.turns == 0 ? {HELLO!r} : {STOPPED!r}"
    )
    ended = json.dumps({**NO_END, "outcome": "resolved"}).replace("null", "state.text")
    made: Plain = {
        "id": id,
        "join": {"need": "each"},
        "call": ASK,
        "with": {"question": f"${{{{ {question} }}}}"},
        "set": {
            "messages": f"${{{{ output == '' || {_AGAIN}{held} ? [] : "
            f"[{{'role': 'user', 'content': {UNHEARD} + output}}] }}}}",
            "heard": f"${{{{ output == '' || {_AGAIN} ? 0 : {TAKEN} }}}}",
            "asked": f"${{{{ output == '' || {_AGAIN} ? state.asked : size(state.messages) }}}}",
            "failed": "",
            **({"held": f"${{{{ {UNHEARD} + output }}}}"} if checking else {}),
            **more,
            "begun": "${{ state.turns }}",
            "end": f"${{{{ output == '' ? {ended} : {NOTHING} }}}}",
            "text": "${{ output == '' ? state.text : '' }}",
            "idle": 0,
            "refused": 0,
        },
        "next": {"first": [{"when": "${{ state.end.outcome != '' }}", "to": "end"}, *ways]},
    }
    return made, Mark(chat=True, says="asks a person", ways=["nothing more", *("" for _ in ways)])


def passed(id: str, ways: Sequence[Plain], checking: Sequence[str]) -> Plain:
    """Return the step between the checks of the first agent and the agent that answers.

    Args:
        id: Id of the step.
        ways: The edges to the agent that answers.
        checking: The other agents that check a message before it joins the conversation.
    """
    joins = f"state.answers in {json.dumps(checking)} ? [] : {HELD}"
    return {
        "id": id,
        "join": {"need": "each"},
        "set": {"messages": f"${{{{ {joins} }}}}"},
        "next": {"first": [*ways]},
    }


def failed(person: str, agent: str, more: Mapping[str, Plain] = {}) -> Plain:
    """Return the handler for a failure of all models, which shows the error to the person.

    Args:
        person: The id of the step that asks the person.
        agent: The agent whose turn failed and is repeated on request.
        more: Further state to set.
    """
    changes: Plain = {
        **more,
        "failed": "${{ error.type + ': ' + error.message }}",
        "active": agent,
        "model_at": "${{ 0 - state.model_at }}",
    }
    return {"set": changes, "next": person}
