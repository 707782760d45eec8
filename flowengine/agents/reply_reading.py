"""The interpretation of a reply: its calls, an answer, or an end of the work."""

from __future__ import annotations

import json
from typing import Any, cast

from flowengine.agents import programs, termination, tool_search
from flowengine.agents.call_answers import ERROR, tool_message
from flowengine.agents.context_window import READ_RESULT, result_of
from flowengine.agents.models.port import Message, ModelReply
from flowengine.agents.termination import NO_END, ended
from flowengine.agents.text_calls.marked_form import CallFault, ModelCall, ToolOffer
from flowengine.agents.turns import AgentTurn
from flowengine.errors import FlowEngineError
from flowengine.sdk import Plain
from flowengine.sdk.python.conversions import Misfit
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.received import received_json
from flowengine.sdk.values.read_only import plain
from flowengine.sdk.values.validation import Validator

_LONGEST_NAME = 64
"""Maximum characters of the displayed name of a nonexistent tool."""


class ReplyReading:
    """The interpretation of one reply.

    Args:
        turn: The turn in which the model replied.
        reply: Its reply.
    """

    def __init__(self, turn: AgentTurn, reply: ModelReply) -> None:
        self.turn = turn
        self.reply = reply
        content = reply.message.get("content")
        self.text = content if isinstance(content, str) else ""
        self.calls: list[dict[str, Plain]] = []
        self.reported: list[Message] = []
        """Messages for the model that need no calls."""
        self.end: dict[str, Plain] = NO_END
        self.idle = 0
        self.handed = ""
        self.found: list[str] = []

    def output(self) -> dict[str, Plain]:
        """Return the output of the turn's step."""
        if self.reply.calls or self.reply.faults:
            self._read_calls()
        else:
            self._read_text()
        output: dict[str, Plain] = {
            "told": self.reported,
            "idle": self.idle,
            "found": self.found,
            "events": [dict(event) for event in self.reply.events],
        }
        first = self.turn.choice.get("model") or self.turn.models[0]
        if self.reply.model != first:
            output["instead_of"] = first
        if self.end["outcome"]:
            said = self.reply.message.get("content")  # not repeated as the value of the end
            is_said = isinstance(said, str) and said and self.end["value"] == said
            output["end"] = {k: v for k, v in self.end.items() if k != "value" or not is_said}
        return {
            "message": self.reply.message,
            "calls": self.calls,
            "model": self.reply.model,
            "usage": self.reply.usage.data(),
            # Empty entries are omitted, because a journal stores many turns.
            **{name: value for name, value in output.items() if value},
        }

    # Calls

    def _read_calls(self) -> None:
        """Process calls and faults in the order of the message. Faults without a place come last.

        A call that ends the work is answered after the others, so that the conversation ends with
        it.
        """
        ends: list[tuple[ModelCall, dict[str, Plain]]] = []
        by_id: dict[str | None, ModelCall | CallFault] = {
            call.id: call for call in self.reply.calls
        }
        by_id |= {fault.id: fault for fault in self.reply.faults if fault.id is not None}
        for sent in self.reply.message.get("tool_calls") or []:
            told_call = by_id.get(sent["id"])
            if isinstance(told_call, ModelCall) and (end := self._end_by(told_call)) is not None:
                ends.append((told_call, end))
            elif isinstance(told_call, ModelCall):
                self._read_call(told_call, sent["function"]["arguments"])
            elif told_call is not None:
                self._refuse(told_call.id, told_call.name or "", told_call.message)
        unread = any(fault.id is None for fault in self.reply.faults)
        for call, end in ends:
            if unread and end["outcome"] == "resolved":
                self._refuse(
                    call.id, call.name, "not ended, as your reply has a call that was not made."
                )
                continue
            self.end = self.end if self.end["outcome"] else end
            said = str(end["value"] or end["reason"] or "Noted.")
            self._add("", messages=[tool_message(call.id, call.name, said)], ends=True)
        for fault in self.reply.faults:
            if fault.id is None:
                message: Message = {"role": "user", "content": fault.message}
                self._add_refused(fault.name, fault.message, message)
        if not self.reply.calls:
            self._idle("its calls could not be read", most=termination.FAULTS)

    def _end_by(self, call: ModelCall) -> dict[str, Plain] | None:
        """Return the end that a call declares, or None."""
        if self.turn.answers or self.turn.tools[call.name].step:
            return None
        return termination.ended_by_call(call.name, call.arguments)

    def _read_call(self, call: ModelCall, sent: str) -> None:
        offered = self.turn.tools[call.name]
        if self.turn.answers:
            self._refuse(call.id, call.name, "no tool can be called any more.")
        elif offered.handoff:
            self._hand_over(call, offered.handoff)
        elif call.name == tool_search.FIND and not offered.step:
            names = tool_search.found(str(call.arguments["query"]), self.turn.deferred)
            self.found += names
            self._answer_only(call.id, call.name, tool_search.told(names))
        elif call.name == READ_RESULT and not offered.step:
            content = result_of(self.turn.messages, self.turn.state, call.arguments["id"])
            self._answer_only(call.id, call.name, content)
        else:
            self._run(call, offered, sent)

    def _hand_over(self, call: ModelCall, to: str) -> None:
        if self.handed:
            self._refuse(call.id, call.name, f"not taken, as {self.handed} is active now.")
            return
        self.handed = to
        given: dict[str, Plain] = {}
        if to in self.turn.agent.get("handoff_arguments", {}):
            given = {"id": call.id, "name": call.name, "args": call.arguments}
        content = f"Handed over to {to}."
        self._add("", to, **given, messages=[tool_message(call.id, call.name, content)])

    def _run(self, call: ModelCall, offered: ToolOffer, sent: str) -> None:
        program = programs.step_of(self.turn.name)
        if offered.step == program and any(call["step"] == program for call in self.calls):
            self._refuse(call.id, call.name, "a reply can run one program: put both into one.")
            return
        most = self.turn.agent["repeats"]
        if not most:
            self._add(offered.step, id=call.id, name=call.name, args=call.arguments)
            return
        fails, was_told = termination.repeated(self.turn.messages, call.name, sent)
        if fails >= most:
            if was_told:
                self.end = ended(
                    "not_resolved", None, f"{call.name} failed again and again", no_progress=True
                )
            self._refuse(call.id, call.name, termination.REPEATED.format(most))
        else:
            self._add(offered.step, id=call.id, name=call.name, args=call.arguments)

    def _answer_only(self, id: str, name: str, content: str) -> None:
        """Answer a call without running anything."""
        self._add("", messages=[tool_message(id, name, content)])

    def _refuse(self, id: str | None, name: str, reason: str) -> None:
        """Answer an invalid call with the reason."""
        self._add_refused(name, reason, tool_message(id, name, f"{ERROR}{reason}"))

    def _add_refused(self, name: str | None, reason: str, message: Message) -> None:
        what = f"{name[:_LONGEST_NAME]!r} was not called" if name else "a call was not made"
        self._add("", messages=[message], refused=f"{what}: {reason}")

    def _add(self, step: str, handoff: str = "", **more: Plain) -> None:
        self.calls.append({"step": step, "handoff": handoff, **more})

    # Text

    def _read_text(self) -> None:
        turn = self.turn
        by_tools = turn.agent["finish"] == "tools"
        by_word = termination.ended_by_word(self.text) if by_tools else None
        if by_word is not None:
            self.end = (
                by_word if by_word["outcome"] != "resolved" else self._answer(by_word["value"])
            )
        elif self.reply.finish == "length":
            self._idle("its replies were cut off", termination.CUT_SHORT)
        elif not self.text.strip():
            self._idle("its replies were empty", termination.EMPTY)
        elif by_tools and not turn.answers:
            self._idle("it did not call a tool or end its work", termination.GO_ON)
        else:
            self.end = self._answer(self.text)

    def _answer(self, value: Plain) -> dict[str, Plain]:
        """Return the end by an answer. One that does not fit is returned to the model."""
        answer, reason = self._fitting(value)
        if reason is None:
            if not self.turn.answers:
                return ended("resolved", answer)
            # An answer forced in the last turn does not count as resolved.
            turns = self.turn.agent["max_turns"]
            return ended("max_turns", answer, f"it had to answer in the last of {turns} turns")
        schema, again = self.turn.agent["returns"], "Answer again."
        if schema is not None:
            form = json.dumps(plain(schema), ensure_ascii=False)
            again = f"Answer with nothing but JSON of this form: {form}"
        self._idle(
            f"its answer does not fit: {reason}", f"Your answer does not fit: {reason}. {again}"
        )
        return self.end

    def _fitting(self, value: Plain) -> tuple[Plain, str | None]:
        """Return an answer as data, and why it does not fit, if it does not."""
        schema = self.turn.agent["returns"]
        if schema is not None:
            try:
                value = _read_answer(_bare(str(value)), plain(schema))
            except ValueError as error:
                return value, f"it is not JSON: {error}"
            except FlowEngineError as error:
                return value, error.message
        if self.turn.convert is not None:
            try:
                self.turn.convert(value)
            except Misfit as misfit:
                return value, str(misfit)
            except Exception as error:  # a validator of the program
                return value, describe(error)
        return value, None

    def _idle(self, reason: str, message: str | None = None, most: int = termination.IDLE) -> None:
        """Count a reply without progress. Too many of them in a row end the work."""
        self.idle = self.turn.state["idle"] + 1
        if self.idle > most:
            reason = f"{reason}, {self.idle} times in a row"
            self.end = ended("not_resolved", None, reason, no_progress=True)
        elif message is not None:
            self.reported.append({"role": "user", "content": message})


def _read_answer(text: str, schema: Any) -> Plain:
    """Return an answer as data. A text need not have quotes.

    Raises:
        ValueError: It is not JSON or a text.
        FlowEngineError: It does not fit.
    """
    validator = Validator(schema)
    try:
        return cast(Plain, validator.check(received_json(text, distinct=True), "the answer"))
    except (ValueError, FlowEngineError) as error:
        if text.startswith(("{", "[")):
            raise
        try:
            return cast(Plain, validator.check(text, "the answer"))
        except FlowEngineError as misfit:
            raise (misfit if isinstance(error, ValueError) else error) from None


def _bare(text: str) -> str:
    """Return the text of an answer without an enclosing code fence."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].partition("\n")[2] if "\n" in text else text[3:-3]
    return text.strip()
