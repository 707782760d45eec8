"""The state that agents work with: what each round of an agent reads and changes.

It belongs to the flow that runs the agents. `messages` and `context` only grow. `agent` has
everything small, of which a round writes what it has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from flowengine.agents.conversation import rendered
from flowengine.agents.models.port import Message
from flowengine.agents.termination import NO_END
from flowengine.kernel.commands import CANCEL, ENDED
from flowengine.sdk import Plain
from flowengine.sdk.values.read_only import plain

STEER, FOLLOW_UP, PAUSE = "agent.steer", "agent.follow_up", "agent.pause"
"""Signals with which users reach running agents. Names in a file have no dot."""
SIGNALS: Mapping[str, Plain] = {
    STEER: {"data": {"type": "string"}},
    FOLLOW_UP: {"data": {"type": "string"}},
    PAUSE: {"data": {"type": "boolean"}},
}
BACKGROUND_SIGNALS: Mapping[str, Plain] = {
    ENDED: {"data": {"type": "object"}},
    CANCEL: {"data": {"type": "string"}},
}
_LIST: Mapping[str, Plain] = {"type": "array", "default": [], "reducer": "append"}
_MAP: Mapping[str, Plain] = {"type": "object", "default": {}, "reducer": "merge"}
_TEXTS: Mapping[str, Plain] = {**_LIST, "items": {"type": "string"}}
_MAPS: Mapping[str, Plain] = {**_LIST, "items": {"type": "object"}}
BACKGROUND_STATE: Mapping[str, Plain] = {"started": _MAPS, "ended": {**_MAPS, "signal": ENDED}}
"""Agents in the background, and the ends of those that have ended."""
PROGRAM_STATE: Mapping[str, Plain] = {"program_calls": _LIST, "program_answers": _LIST}
"""The calls of the programs of models, and their answers."""
KEEPS = (
    ("messages", "before"),
    ("messages", "message"),
    ("messages", "told"),
    ("context", "context"),
    ("offer", "offer"),
    ("agent", "state"),
    ("usage", "usage"),
    ("model", "model"),
)
"""State key, and the part of a round's result that is added to it."""
ABOUT = ("user", "model", "hook")
"""What approvers of a call see: the newest message of the user, the text of the model beside the
call, and why a hook asks."""
PAUSED = "${{ !state.paused }}"
"""What a paused agent waits for."""
HEEDS = ("steered", "queued", "paused")
"""State that users write while an agent works."""
BEGUN: Mapping[str, Plain] = {
    "active": "",
    "stage": ["start"],
    "seeded": 0,
    "begun": 0,
    "model_at": 0,
    "idle": 0,
    "refused": 0,
    "asked": -1,
    "mark": 0,
    "window": {},
    "earlier_replies": 0,
    "summary": "",
    "full": {},
    "reduced": "",
    "measured": "",
    "choice": {},
    "found": [],
    "calls": [],
    "end": NO_END,
    "text": "",
    "spent": "",
    "heard": 0,
    "followed": 0,
    "told": 0,
    "failed": "",
    "held": "",
    "program": {},
    "renew": False,
    "output": None,
    "outcome": "",
    "reason": "",
}
"""`agent` at the beginning.

`active`: the agent. `stage`: how it continues, see `rounds`. `seeded`: replies at the beginning.
`begun`: turns before the newest message of the user, whose place is `asked`. `model_at`: which
fallback is called. `idle`: replies without progress. `refused`: answers that checks have refused.
`mark`: where requests begin, `window`: what else they show, `earlier_replies`: those before it,
with their `summary`. `full`: the size of the request that was too long, `reduced`: the turn in
which that was. `measured`: the agent whose last request `usage` of the state is about. `choice`:
those of a hook for this turn. `found`: deferred tools that the model has found. `calls`: those of
the last reply, until they are made. `end`: how the work ended. `text`: the last text. `spent`: why
a budget ended it. `heard`, `followed`, `told`: how many messages of users and ends of background
agents the model knows. `failed`: why a chat has no answer. `held`: a message that is not checked
yet. `program`: of the model. `renew`: whether servers have changed their tools. `output`, `outcome`
and `reason` are those of the agents' step.
"""


STATE: Mapping[str, Plain] = {
    "messages": _LIST,
    "context": _MAP,
    "offer": _MAP,
    "agent": {**_MAP, "default": {**BEGUN}},
    "usage": {"type": "object", "default": {}},
    "model": {"type": "string", "default": ""},
    "steered": {**_TEXTS, "signal": STEER},
    "queued": {**_TEXTS, "signal": FOLLOW_UP},
    "paused": {"type": "boolean", "default": False, "signal": PAUSE},
}
"""The state of the flow of agents."""


class AgentState:
    """The state of the agents as a round sees and changes it.

    Args:
        state: The state of the flow, as an attempt reads it.

    Attributes:
        agent: Everything small, see `BEGUN`.
        entries: The conversation in the state.
        reply: The reply of the model in this round, if it has one.
        before: Entries that the round adds before the reply.
        told: Entries that it adds after it.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._before: Mapping[str, Any] = plain(state["agent"])
        self.agent: dict[str, Any] = dict(self._before)
        # The list itself: in a long conversation, a copy would take longer than all other work.
        self.entries: list[Any] = dict.__getitem__(cast("dict[str, Any]", state), "messages")
        self._messages: list[Message] = rendered(self.entries)
        self._replies = sum(message["role"] == "assistant" for message in self._messages)
        self.context: Mapping[str, Any] = state["context"]
        self.offer: dict[str, Any] = plain(state["offer"])
        self.flow = state
        self.usage, self.model = state["usage"], state["model"]
        self.reply: Message | None = None
        self.before: list[Any] = []
        self.told: list[Any] = []
        self.changed_context: dict[str, Plain] = {}
        self.new_offer: dict[str, Plain] = {}
        self.started: list[Plain] = []
        """Agents that were started in the background."""
        self.program_calls: Sequence[Any] = ()
        """The calls of a program."""
        self.of_program: list[Any] = []
        """Answers to them besides those that the state has."""

    def __getitem__(self, key: str) -> Any:
        return self.agent[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.agent[key] = value

    def add(self, *messages: Message) -> None:
        """Add messages to the conversation."""
        (self.before if self.reply is None else self.told).extend(messages)

    def answer(self, *entries: Mapping[str, Any], of_program: bool = False) -> None:
        """Add an answer to a call of the model, or of its program."""
        if of_program:
            self.of_program += entries
        else:
            self.add(*(dict(entry) for entry in entries))

    @property
    def _added(self) -> list[Any]:
        return [*self.before, *([] if self.reply is None else [self.reply]), *self.told]

    @property
    def all(self) -> Sequence[Message]:
        """The conversation, with the messages that the round adds."""
        added = self._added
        if not added:
            return self._messages
        if any("hooked" in one or one.get("role") == "tool" for one in added):
            return rendered([*self.entries, *added])
        return [*self._messages, *added]

    @property
    def turns(self) -> int:
        """The number of turns that were taken."""
        added = sum(one.get("role") == "assistant" for one in self._added)
        return int(self._replies + added - self["seeded"])

    @property
    def last(self) -> Mapping[str, Any]:
        """The size of the last request, which the next one exceeds by its new messages."""
        if not self["measured"]:
            return {}
        usage = self.usage
        size = 0 if usage.get("estimated") else usage["input_tokens"]
        tokens = usage["input_tokens"] + usage["output_tokens"]
        about = {"agent": self["measured"], "model": self.model}
        return {**about, "input": size, "tokens": tokens}

    @property
    def size(self) -> int:
        """The number of messages of the conversation."""
        return len(self.all)

    @property
    def last_reply(self) -> Message:
        """The newest reply of the model, or an empty message."""
        if self.reply is not None:
            return self.reply
        replies = (one for one in reversed(self.entries) if one.get("role") == "assistant")
        return next(replies, {})

    def place_of(self, message: Message) -> int:
        """Return the place of a message among the entries, which is not that among the messages."""
        entries = [*self.entries, *self._added]
        return next(n for n in range(len(entries) - 1, -1, -1) if entries[n] is message)

    @property
    def since_reply(self) -> list[Any]:
        """The entries after the newest reply."""
        if self.reply is not None:
            return self.told
        after: list[Any] = []
        for entry in reversed(self.entries):
            if entry.get("role") == "assistant":
                break
            after.append(entry)
        return [*after[::-1], *self.before]

    @property
    def all_started(self) -> list[Any]:
        """The agents in the background that were started."""
        return [*self.flow["started"], *self.started]

    def seen(self) -> dict[str, Any]:
        """Return the state as turns and reductions read it."""
        offer = {**self.offer, **self.new_offer}
        return {
            **self.agent,
            "turns": self.turns,
            "last": self.last,
            "messages": self.all,
            "context": self.context,
            "offer": offer,
        }

    def changes(self) -> dict[str, Plain]:
        """Return what the round has changed, as parts of its result."""
        changed = {key: value for key, value in self.agent.items() if value != self._before[key]}
        parts: dict[str, Any] = {
            "before": self.before,
            "told": self.told,
            "context": self.changed_context,
            "offer": self.new_offer,
            "state": changed,
            "started": self.started,
            "program_calls": [*self.program_calls],
            "program_answers": self.of_program,
        }
        return {key: part for key, part in parts.items() if part}
