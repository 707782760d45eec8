"""One turn of an agent: a model is called, and its reply becomes calls, an answer, or an end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, cast

from flowengine.agents import generated_calls, termination, tool_search
from flowengine.agents.agent_declarations import converter
from flowengine.agents.context_window import RequestSize, left_out, size_of
from flowengine.agents.model_calls import ask_model, model_needs
from flowengine.agents.models.conversations import KnownConversations, RequestMessages
from flowengine.agents.models.failures import ContextWindowExceeded
from flowengine.agents.models.port import (
    CallFault,
    Message,
    ModelCall,
    ModelReply,
    ModelRequest,
    ReplyPart,
    Usage,
)
from flowengine.agents.skills import listing
from flowengine.agents.termination import GOING_ON, AgentEnd
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.errors import FlowEngineError
from flowengine.sdk import Need, Plain, StepContext
from flowengine.sdk.call_answers import ERROR, tool_message
from flowengine.sdk.exception_text import describe
from flowengine.sdk.read_only import plain
from flowengine.sdk.received import received_json
from flowengine.sdk.validation import Validator

HANDOFF = "transfer_to_"
_CONVERSATIONS = KnownConversations()
LAST = "This is your last turn: answer now, from what you know. No tool can be called any more."


class TurnTool(NamedTuple):
    """A tool on offer in a turn."""

    offer: ToolOffer
    step: str
    """The step that runs a call of it. Empty: the turn answers the call itself."""
    handoff: str = ""
    """The agent to which it hands off."""


class AgentTurn:
    """One turn.

    Args:
        agent: Constants of the agent from the generated flow.
        state: The state of the flow.
        instructions: Instructions of the agent.
        settings: Settings for the provider.
        saves: Whether to call the last of its models, because a budget is nearly used up.
        conversation: Name of the conversation in this process.
    """

    def __init__(
        self,
        agent: Mapping[str, Any],
        state: Mapping[str, Any],
        instructions: str,
        settings: Mapping[str, Plain],
        *,
        saves: bool = False,
        conversation: str = "",
    ) -> None:
        self.agent = agent
        self.saves = saves
        self.name: str = agent["name"]
        self.called: str = agent.get("called", self.name)
        """Name for display."""
        self.state = state
        self.conversation = conversation
        # The list itself: in a long conversation, a copy would take longer than all other work.
        self.messages: list[Message] = dict.__getitem__(cast("dict[str, Any]", state), "messages")
        skills = listing(agent.get("skills", ()))
        self.instructions = "\n\n".join(filter(None, (instructions, skills)))
        self.settings = settings
        self.number: int = state["turns"] - state["begun"] + 1
        self.answers = self.number >= agent["max_turns"] and agent["last"] == "answer"
        """Whether the model must answer, because no turn follows."""
        self.choice: Mapping[str, Any] = state.get("choice", {}) if "hooked" in agent else {}
        """What a hook has chosen for this turn: `model`, `tools`, `tool_choice`."""
        self.tools = {one.offer.name: one for one in self._offered() if self._chosen(one)}
        self.convert: Callable[[Plain], object] | None = None
        """Converts an answer to the type that the agent returns, or raises."""

    async def ask(self, context: StepContext) -> ModelReply:
        """Call the model. If the attempt is followed, pass the reply on in parts.

        Args:
            context: The attempt. Script files are resolved in its working directory.
        """
        request = self._checked_request()
        listen = partial(_pass_on, context, self.called) if context.followed else None
        try:
            return await ask_model(context, request, self._last, listen)
        except ContextWindowExceeded as error:
            reduces = self.agent["context"] is not None
            raise self.size(request).refused(error, reduces=reduces) from error

    async def needs(self, context: StepContext) -> Mapping[str, Need]:
        """Return the possible use of budgets by the model call."""
        return await model_needs(context, self._checked_request(), self._last)

    def _checked_request(self) -> ModelRequest:
        """Return the request.

        Raises:
            ContextWindowExceeded: The request does not fit, and the conversation can be reduced.
        """
        request = self.request(self.model)
        if self.agent["context"] is not None:
            self.size(request).check()
        return request

    @property
    def _last(self) -> Mapping[str, Any]:
        """The provider's report about the last request."""
        last: Mapping[str, Any] = self.state.get("last", {})
        return last

    def size(self, request: ModelRequest) -> RequestSize:
        """Return the size of a request, with its limit."""
        settings = self.agent["context"] or {}
        bound = settings.get("max_tokens")
        if bound is None:
            bound = self.state["offer"].get("bounds", {}).get(request.model)
        return size_of(request, self.state, bound)

    @property
    def model(self) -> str:
        """The model to call: the agent's model, or one of its fallbacks."""
        return model_of(self.state, self.name, saves=self.saves)

    def request(self, model: str) -> ModelRequest:
        """Return the request to a model."""
        agent = self.agent
        # The last turn offers the tools as well, and new messages come last. Providers cache
        # prefixes.
        offers = tuple(tool.offer for tool in self.tools.values())
        choice = "none" if self.answers else self.choice.get("tool_choice", agent["tool_choice"])
        known = _CONVERSATIONS.of(self.conversation, self.messages)
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        first = [*system, *left_out(self.messages, self.state)]
        added = [{"role": "user", "content": LAST}] if self.answers else []
        return ModelRequest(
            model=model,
            messages=RequestMessages(first, self.messages, known, self.state["mark"], added),
            tools=offers,
            tool_choice=choice if offers else None,
            parallel_tool_calls=agent["parallel_tool_calls"],
            function_calling=agent["function_calling"],
            returns=agent["returns"],
            settings=self.settings,
            agent=self.name,
            call_ids=known.call_ids,
            earlier_replies=self.state["earlier_replies"],
            conversation=self.conversation,
        )

    def _chosen(self, tool: TurnTool) -> bool:
        """Return whether a hook leaves a tool on offer. The tools that end the work always stay."""
        globs = self.choice.get("tools")
        if globs is None or not (tool.step or tool.handoff):
            return True
        return any(fnmatchcase(tool.offer.name, glob) for glob in globs)

    def _offered(self) -> list[TurnTool]:
        """Return the tools on offer, those that were found last."""
        tools = self._tools()
        globs = self.agent.get("defer", ())
        self.deferred = [
            one.offer
            for one in tools
            if one.step and any(fnmatchcase(one.offer.name, glob) for glob in globs)
        ]
        if not self.deferred:
            return tools
        by_name = {one.offer.name: one for one in tools}
        hidden = {offer.name for offer in self.deferred}
        now = [by_name[name] for name in dict.fromkeys(self.state["found"]) if name in hidden]
        find = TurnTool(tool_search.finder(self.deferred), "")
        return [*(one for one in tools if one.offer.name not in hidden), find, *now]

    def _tools(self) -> list[TurnTool]:
        """Return all tools of the agent."""
        offers = [
            TurnTool(ToolOffer(tool["name"], tool["description"], tool["parameters"]), tool["step"])
            for tool in plain(self.agent["tools"])
        ]
        served = self.state["offer"].get("agents", {}).get(self.name, {})
        for name, value in plain(served).items():
            offer = ToolOffer(name, value["description"], value["parameters"])
            offers.append(TurnTool(offer, value["step"]))
        for name, what in self.agent["handoffs"].items():
            offer = ToolOffer(HANDOFF + name, _hand_over(name, what), _NOTHING)
            offers.append(TurnTool(offer, "", handoff=name))
        if self.agent["finish"] == "tools":
            offers += [TurnTool(case_offer, "") for case_offer in termination.case_offers()]
        return offers

    def output(self, reply: ModelReply) -> dict[str, Plain]:
        """Return the output of the step for a reply."""
        return _Reading(self, reply).output()


def model_of(state: Mapping[str, Any], agent: str, *, saves: bool = False) -> str:
    """Return the model that an agent currently uses.

    Args:
        state: State of the flow.
        agent: Its name.
        saves: Whether to use the last of its models.
    """
    models: list[str] = state["offer"]["models"][agent]
    chosen = state.get("choice", {}).get("model")
    if chosen is not None and not saves and state["model_at"] == 0:
        return str(chosen)
    at: int = len(models) if saves else state["model_at"]
    return models[min(at, len(models) - 1)]


_USAGE = tuple(field.name for field in fields(Usage))
_ALWAYS = ("input_tokens", "output_tokens", "cost_usd")
"""Usage that is reported even if it is zero."""
_LONGEST_NAME = 64
"""Maximum characters of the displayed name of a nonexistent tool."""
_NOTHING: dict[str, Plain] = {"type": "object", "properties": {}, "additionalProperties": False}


def _pass_on(context: StepContext, agent: str, part: ReplyPart) -> None:
    """Pass on a part of a reply to the followers of the attempt."""
    if part.kind in ("text", "reasoning"):
        context.part(part.kind, part.text, agent=agent)
    elif part.kind == "call":
        context.part(part.kind, part.text, agent=agent, call=part.call or "", tool=part.tool or "")
    else:
        context.part(part.kind, agent=agent)


def _hand_over(name: str, what: str) -> str:
    return f"Hands the conversation over to {name}" + (f": {what}" if what else ".")


class _Reading:
    """The interpretation of one reply."""

    def __init__(self, turn: AgentTurn, reply: ModelReply) -> None:
        self.turn = turn
        self.reply = reply
        content = reply.message.get("content")
        self.text = content if isinstance(content, str) else ""
        self.calls: list[dict[str, Plain]] = []
        self.reported: list[Message] = []
        """Messages for the model that need no calls."""
        self.end = GOING_ON
        self.idle = 0
        self.handed = ""
        self.found: list[str] = []

    def output(self) -> dict[str, Plain]:
        if self.reply.calls or self.reply.faults:
            self._read_calls()
        else:
            self._read_text()
        output: dict[str, Plain] = {
            "told": self.reported,
            "idle": self.idle,
            "found": self.found,
            "scripted": self.reply.scripted,
            "events": [dict(event) for event in self.reply.events],
        }
        models = self.turn.state["offer"]["models"][self.turn.name]
        first = self.turn.choice.get("model", models[0])
        if self.reply.model != first:
            output["instead_of"] = first
        if self.end.outcome:
            output["end"] = self.end.beside(self.reply.message.get("content"))
        # Empty entries are omitted, because a journal stores many turns.
        counts = ((name, getattr(self.reply.usage, name)) for name in _USAGE)
        usage = {name: one for name, one in counts if one or name in _ALWAYS}
        return {
            "message": self.reply.message,
            "calls": self.calls,
            "model": self.reply.model,
            "usage": usage,
            **{name: value for name, value in output.items() if value},
        }

    # Calls

    def _read_calls(self) -> None:
        """Process calls and faults in the order of the message. Faults without a place come last.

        A call that ends the work is answered after the others, so that the conversation ends with
        it.
        """
        ends: list[tuple[ModelCall, AgentEnd]] = []
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
                self._refuse(told_call.id, told_call.name or "", told_call.reason)
        unread = any(fault.id is None for fault in self.reply.faults)
        for call, end in ends:
            if unread and end.outcome == "resolved":
                self._refuse(
                    call.id, call.name, "not ended, as your reply has a call that was not made."
                )
                continue
            self.end = self.end if self.end.outcome else end
            self._answer_only(call.id, call.name, str(end.value or end.reason or "Noted."))
        for fault in self.reply.faults:
            if fault.id is None:
                message: Message = {"role": "user", "content": fault.reason}
                self._add_refused(fault.name, fault.reason, message)
        if not self.reply.calls:
            self._idle("its calls could not be read", most=termination.FAULTS)

    def _end_by(self, call: ModelCall) -> AgentEnd | None:
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
        else:
            self._run(call, offered, sent)

    def _hand_over(self, call: ModelCall, to: str) -> None:
        if self.handed:
            self._refuse(call.id, call.name, f"not taken, as {self.handed} is active now.")
            return
        self.handed = to
        self._answer_only(call.id, call.name, f"Handed over to {to}.", to)

    def _run(self, call: ModelCall, offered: TurnTool, sent: str) -> None:
        most = self.turn.agent["repeats"]
        if not most:
            self._add(offered.step, id=call.id, name=call.name, args=call.arguments)
            return
        fails, was_told = termination.repeated(self.turn.messages, call.name, sent)
        if fails >= most:
            if was_told:
                self.end = AgentEnd(
                    "not_resolved", None, f"{call.name} failed again and again", no_progress=True
                )
            self._refuse(call.id, call.name, termination.REPEATED.format(most))
        else:
            self._add(offered.step, id=call.id, name=call.name, args=call.arguments)

    def _answer_only(self, id: str, name: str, content: str, handoff: str = "") -> None:
        """Answer a call without running anything."""
        self._add("", handoff, messages=[tool_message(id, name, content)])

    def _refuse(self, id: str | None, name: str, reason: str) -> None:
        """Answer an invalid call with the reason."""
        self._add_refused(name, reason, tool_message(id, name, f"{ERROR}{reason}"))

    def _add_refused(self, name: str | None, reason: str, message: Message) -> None:
        what = f"{name[:_LONGEST_NAME]!r} was not called" if name else "a call was not made"
        step = generated_calls.refused(self.turn.name)
        self._add(step, messages=[message], refused=f"{what}: {reason}")

    def _add(self, step: str, handoff: str = "", **more: Plain) -> None:
        place = str(len(self.calls) + 1)
        self.calls.append({"place": place, "step": step, "handoff": handoff, **more})

    # Text

    def _read_text(self) -> None:
        turn = self.turn
        by_tools = turn.agent["finish"] == "tools"
        by_word = termination.ended_by_word(self.text) if by_tools else None
        if by_word is not None:
            self.end = by_word if by_word.outcome != "resolved" else self._answer(by_word.value)
        elif self.reply.finish == "length":
            self._idle("its replies were cut off", termination.CUT_SHORT)
        elif not self.text.strip():
            self._idle("its replies were empty", termination.EMPTY)
        elif by_tools and not turn.answers:
            self._idle("it neither called a tool nor ended its work", termination.GO_ON)
        else:
            self.end = self._answer(self.text)

    def _answer(self, value: Plain) -> AgentEnd:
        """Return the end by an answer. One that does not fit is returned to the model."""
        answer, reason = self._fitting(value)
        if reason is None:
            return self._answered(answer)
        self._idle(f"its answer does not fit: {reason}", self._wrong_form(reason))
        return self.end

    def _wrong_form(self, reason: str) -> str:
        """Return the message about an answer that does not fit."""
        schema = self.turn.agent["returns"]
        if schema is None:
            return f"Your answer does not fit: {reason}. Answer again."
        form = json.dumps(plain(schema), ensure_ascii=False)
        return (
            f"Your answer does not fit: {reason}. Answer with nothing but JSON of this form: {form}"
        )

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
            from flowengine.sdk.python_functions.conversions import Misfit

            try:
                self.turn.convert(value)
            except Misfit as misfit:
                return value, str(misfit)
            except Exception as error:  # a validator of the program
                return value, describe(error)
        return value, None

    def _answered(self, value: Plain) -> AgentEnd:
        """Return the end by an answer. One forced in the last turn does not count as resolved."""
        if not self.turn.answers:
            return AgentEnd("resolved", value)
        turns = self.turn.agent["max_turns"]
        return AgentEnd("max_turns", value, f"it had to answer in the last of {turns} turns")

    def _idle(self, reason: str, message: str | None = None, most: int = termination.IDLE) -> None:
        """Count a reply without progress. Too many of them in a row end the work."""
        self.idle = self.turn.state["idle"] + 1
        if self.idle > most:
            reason = f"{reason}, {self.idle} times in a row"
            self.end = AgentEnd("not_resolved", None, reason, no_progress=True)
        elif message is not None:
            self.reported.append({"role": "user", "content": message})


def _read_answer(text: str, schema: Any) -> Plain:
    """Return an answer as data. A text need not have quotes.

    Raises:
        ValueError: It is neither JSON nor a text.
        FlowEngineError: It does not fit.
    """
    validator = Validator(schema)
    try:
        return cast(Plain, validator.check(received_json(text), "the answer"))
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


async def take_turn(
    context: StepContext,
    task: Mapping[str, Plain],
    input: Mapping[str, Plain],
    ask: Callable[[AgentTurn], Any] | None = None,
) -> Plain:
    """Take one turn.

    Args:
        context: The attempt, with the state of the flow.
        task: `agent`, from the generated flow.
        input: `instructions` and `settings`.
        ask: Replaces the model call.

    Returns:
        The output of the step.
    """
    turn = turn_of(context, task, input)
    reply = await (turn.ask(context) if ask is None else ask(turn))
    if turn.convert is None:
        return turn.output(reply)
    return await context.on_thread(lambda: turn.output(reply))


def turn_of(
    context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
) -> AgentTurn:
    """Return the turn that an attempt is to take.

    Args:
        context: The attempt, with the state of the flow.
        task: `agent`, from the generated flow.
        input: `instructions` and `settings`.
    """
    settings = input.get("settings") or {}
    instructions, saves = str(input["instructions"]), context.fallback
    conversation = f"{context.execution.id} {context.address.rpartition('/')[0]}"
    turn = AgentTurn(
        task["agent"], context.state, instructions, settings, saves=saves, conversation=conversation
    )
    if "returns_type" in turn.agent:
        turn.convert = converter(context, turn.agent["returns_type"])
    return turn
