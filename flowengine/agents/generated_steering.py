"""The steps of a generated flow in which messages of users reach running agents.

A message to steer an agent joins the conversation before its next turn, and a follow-up after its
answer. A paused agent takes no turn until it continues. They arrive as signals to the state of the
flow at any time, and each is processed once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from flowengine.agents.generated_hooks import SPENT
from flowengine.sdk import Plain
from flowengine.sdk.tools.hook_results import NO_END

STEER, FOLLOW_UP, PAUSE = "agent.steer", "agent.follow_up", "agent.pause"
"""Signals of the flow. Names in a file have no dot."""
SIGNALS: Mapping[str, Plain] = {
    STEER: {"data": {"type": "string"}},
    FOLLOW_UP: {"data": {"type": "string"}},
    PAUSE: {"data": {"type": "boolean"}},
}
_TEXTS: Mapping[str, Plain] = {
    "type": "array",
    "items": {"type": "string"},
    "default": [],
    "reducer": "append",
}
_COUNT: Mapping[str, Plain] = {"type": "integer", "default": 0, "reducer": "add"}
STATE: Mapping[str, Plain] = {
    "steered": {**_TEXTS, "signal": STEER},
    "heard": _COUNT,
    "queued": {**_TEXTS, "signal": FOLLOW_UP},
    "followed": _COUNT,
    "paused": {"type": "boolean", "default": False, "signal": PAUSE},
}
"""`heard` and `followed` count the messages that have joined the conversation."""
IDS = ("_heard", "_paused", "_last")
"""Preferred ids of the steps."""
STEERED = "size(state.steered) > state.heard"
TAKEN = "size(state.steered) - state.heard"
_TEXT = f"range({TAKEN}).map(i, state.steered[state.heard + i]).join('\\n\\n')"
_SAID = f"{STEERED} ? {_TEXT} : state.queued[state.followed]"
UNHEARD = f"({STEERED} ? {_TEXT} + '\\n\\n' : '')"
"""The text with which the next message of a person begins."""


def before_turn(paused: str) -> Plain:
    """Return the edge that precedes the edge to a next turn.

    Args:
        paused: Id of the step of a paused agent, which does not wait for one that is not.
    """
    return {"when": f"${{{{ state.paused || {STEERED} }}}}", "to": paused}


def steps(
    ids: tuple[str, str, str],
    begin: Sequence[Plain],
    enter: Sequence[Plain],
    end: str,
    checking: Sequence[str],
) -> list[Plain]:
    """Return the steps.

    Args:
        ids: The ids of the step that takes messages, of the one of a paused agent, and of the one
            after an answer.
        begin: The edges to the active agent's checks of a message, or to its turn.
        enter: The edges to its turn.
        end: The step after the work.
        checking: Names of the agents that check a message before it joins the conversation.
    """
    heard, paused, last = ids
    joins = "[{'role': 'user', 'content': output}]"
    more: dict[str, Plain] = {}
    if checking:
        joins = f"state.active in {json.dumps([*checking])} ? [] : {joins}"
        more = {"held": "${{ output }}"}
    takes: dict[str, Plain] = {
        "id": heard,
        "join": {"need": "each"},
        "output": f"${{{{ {_SAID} }}}}",
        "set": {
            "messages": f"${{{{ {joins} }}}}",
            "asked": "${{ size(state.messages) }}",
            "heard": f"${{{{ {TAKEN} }}}}",
            "followed": f"${{{{ {STEERED} ? 0 : 1 }}}}",
            **more,
            "begun": "${{ state.turns }}",
            "end": NO_END,
            "text": "",
            "idle": 0,
            "refused": 0,
        },
        "next": {"first": [*begin]},
    }
    waits: dict[str, Plain] = {
        "id": paused,
        "join": {"need": "each"},
        "wait": {"when": "${{ !state.paused }}"},
        "next": {"first": [{"when": f"${{{{ {STEERED} }}}}", "to": heard}, *enter]},
    }
    goes_on = f"({STEERED} || size(state.queued) > state.followed) && !({SPENT})"
    ends: dict[str, Plain] = {
        "id": last,
        "join": {"need": "each"},
        "next": {"first": [{"when": f"${{{{ {goes_on} }}}}", "to": heard}, {"else": end}]},
    }
    return [takes, waits, ends]
