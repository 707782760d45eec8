"""The rounds of an agent: its model, its tools, and what stands around them.

    start ─► begin ─► checks ─► enter ─► hooks ─► MODEL ─► hooks ─► lead ─► hooks ─► TOOLS ─► hooks
               ▲                  ▲                                   │                         │
               │                  └──────── next turn ◄───────────────┼───────────── settled ◄──┘
               │                                                      ▼                 │
               └── a message of the user ◄── last ◄── end ◄─── checks of the answer     ▼
                                               │                                 another agent
                                               ▼ final

A round goes from stage to stage until something has to be called: the model, once, or tools. Then
its result is stored. The next round continues at the stage that the state names, with the answers.
A stage is a method that returns None to go on, or the result of the round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.call_answers import as_text, value_of
from flowengine.agents.context_reduction import seen_after_handoff
from flowengine.agents.rounds.calls import Calls
from flowengine.agents.rounds.parts import (
    AskModel,
    LastingError,
    Result,
    Summarize,
    output_of,
    shown_cut,
)
from flowengine.agents.termination import NO_END, ended

RETRY = "/retry"
FAILED = f"The model did not answer. Enter {RETRY} to ask again, or enter another message."
"""Text shown to the person below a model's error."""
HELLO = "What can I do for you?"
STOPPED = "I have stopped, because this takes more turns than I am allowed. How should I continue?"


class AgentRound(Calls):
    """One round: all stages. See `RoundParts` for its arguments."""

    def go(self) -> Result | AskModel | Summarize:
        """Go from stage to stage, and return the result of the round, or that a model is asked."""
        while True:
            name, *arguments = self.s["stage"]
            result: Result | AskModel | Summarize | None = getattr(self, name)(*arguments)
            if result is not None:
                return result

    def opened(self, made: Mapping[str, Any]) -> None:
        """Begin with the models on offer and the first messages."""
        self.s.new_offer = dict(made["offer"])
        self.s.add(*made["messages"])
        self.s.changed_context.update(made["context"])
        self._asked(made)

    def _asked(self, made: Mapping[str, Any]) -> None:
        self.s["asked"] = made["asked"]
        self.s["seeded"] = sum(one["role"] == "assistant" for one in made["messages"])
        asks = made["asked"] < 0 or made["asked"] < len(made["messages"]) - 1
        self._to("person" if self.chats and asks else "begin")

    def start(self) -> Result | None:
        """Have the servers list their tools. Without servers, the work has been opened already."""
        answers = self._take()
        if answers is None:
            return self._call(self._own("offer", again=False))
        self._asked(output_of(answers))  # its step has written what it found
        return None

    def renew(self) -> Result | None:
        """Have the servers list their tools again, which have changed."""
        answers = self._take()
        if answers is None:
            return self._call(self._own("offer", again=True))
        output_of(answers)
        self.s["renew"] = False
        self._to("enter")
        return None

    def hand_over(self, to: str) -> Result:
        """Let another agent continue, with the part of the conversation that it sees."""
        s, filter, answers = self.s, self.agent["filters"].get(to), self._take()
        shown: dict[str, Any] = {}
        if answers is not None:
            if "error" in answers[0] and not self._spend(answers[0]["error"]):
                raise LastingError(answers[0]["error"])
            if "error" in answers[0]:
                return self.final()
            s["summary"] = as_text(value_of(answers[0]["output"]))
        elif filter is not None:
            if s.reply is not None:
                return self._call()  # a separate round shows what is left out
            cut, before = seen_after_handoff(s.seen(), filter["sees"]), s["mark"]
            self._move(cut)
            shown = shown_cut(cut)
            if filter.get("tool"):
                call = self._summary_call(filter["tool"], before, cut["mark"])
                return self._call(call, **shown)
            s["summary"] = cut.get("summary", s["summary"])
        s["active"] = to
        self._to("begin")
        return {**s.changes(), **shown, "outcome": to}

    # The end

    def end(self) -> None:
        """End the work on a message of the user."""
        over = self.chats and self.agent["finish"] == "tools"
        self._to("final" if over or not self.agent["executes"] else "last")

    def last(self) -> None:
        """Go on with a message that has come meanwhile, else with the person."""
        s = self.s
        if self._spoken:
            self._to("hear")
        elif self.chats:
            self._to("person")
        elif (
            self.agent["starts"]
            and len(s.all_started) > s["told"]
            and s["end"]["outcome"] == "resolved"
            and not self._over
        ):
            self._to("awaited")
        else:
            self._to("final")

    @property
    def _spoken(self) -> bool:
        """Whether users have sent messages that the agents do not know."""
        s = self.s
        steered = len(s.flow["steered"]) > s["heard"]
        return bool(steered or len(s.flow["queued"]) > s["followed"])

    def hear(self) -> None:
        """Take the messages that users have sent to the running agent."""
        s = self.s
        steered = [*s.flow["steered"][s["heard"] :]]
        if steered:
            text, s["heard"] = "\n\n".join(steered), s["heard"] + len(steered)
        else:
            text, s["followed"] = s.flow["queued"][s["followed"]], s["followed"] + 1
        self._ask(text)
        s["text"] = ""
        self._to("begin")

    def _ask(self, text: str) -> None:
        """Take a message of the user. In a chat, it joins the conversation once it is checked."""
        s = self.s
        s["asked"], s["begun"] = s.size, s.turns
        s["idle"], s["refused"], s["end"] = 0, 0, NO_END
        if self.chats and self.agent.get("before"):
            s["held"] = text
        else:
            s.add({"role": "user", "content": text})

    def awaited(self) -> Result | None:
        """Wait for the agents in the background before the answer counts."""
        if self._take() is None:
            return self._call(self._own("awaited"))
        s = self.s
        s["end"], s["text"], s["idle"] = NO_END, "", 0
        self._to("hear" if self._spoken else "enter")
        return None

    def person(self) -> Result | None:
        """Show the answer to the person, and take the next message."""
        s, answers = self.s, self._take()
        if answers is None:
            greeting = HELLO if s.turns == 0 else STOPPED
            question = s["text"] or s["end"]["reason"] or greeting
            if s["failed"]:
                question = f"{s['failed']}\n{FAILED}"
            return self._call(self._own("person", question=question))
        said = output_of(answers)
        failed, s["failed"] = s["failed"], ""
        asked, messages = s["asked"], s.all
        same = 0 <= asked < len(messages) and messages[asked].get("content") == said
        if said == "":
            s["begun"] = s.turns
            s["end"] = ended("resolved", s["text"])
            self._to("final")
            return None
        s["text"] = ""
        self._to("begin")
        if failed and (said == RETRY or same):
            s["begun"], s["idle"], s["refused"], s["end"] = s.turns, 0, 0, NO_END
            return None
        steered = [*s.flow["steered"][s["heard"] :]]
        s["heard"] += len(steered)
        self._ask("\n\n".join([*steered, said]))
        return None

    def final(self) -> Result:
        """End the step of the agents."""
        s, end, turns = self.s, self.s["end"], self.agent["max_turns"]
        if end["outcome"]:
            s["outcome"], s["reason"] = end["outcome"], end["reason"]
        elif s["spent"]:
            s["outcome"], s["reason"] = "budget", s["spent"]
        elif s["calls"]:
            s["outcome"], s["reason"] = "tools_not_executed", ""
        else:
            why = f"its {turns} turns are used up: give it more with max_turns"
            s["outcome"], s["reason"] = "max_turns", why
        has_answer = end["outcome"] == "resolved" or end["value"] is not None
        s["output"] = end["value"] if has_answer else s["text"]
        self._to("final" if s["spent"] or end["outcome"] == "budget" else "last")
        return s.changes()
