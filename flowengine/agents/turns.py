"""One turn of an agent: a model is called, and its reply becomes calls, an answer, or an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

from flowengine.agents import programs, termination, tool_search
from flowengine.agents.actions import Reply, display_name
from flowengine.agents.arriving import ArrivingText, Judges
from flowengine.agents.context_window import (
    READ_RESULT,
    RequestSize,
    result_reader,
    size_of,
    window,
)
from flowengine.agents.first_messages import named_models
from flowengine.agents.model_calls import ask_model, model_needs
from flowengine.agents.models.failures import ContextWindowExceeded
from flowengine.agents.models.port import Listener, Message, ModelReply, ModelRequest, ReplyPart
from flowengine.agents.skills import listing
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.sdk import Need, Plain, StepContext
from flowengine.sdk.values.read_only import Joined, plain

HANDOFF = "transfer_to_"
LAST = "This is your last turn: answer now, from what you know. No tool can be called any more."


class AgentTurn:
    """One turn.

    Args:
        agent: Constants of the agent from the generated flow.
        state: The state of the flow.
        instructions: Instructions of the agent.
        settings: Settings for the provider.
        saves: Whether to call the last of its models, because a budget is nearly used up.
        conversation: Name of the conversation in this process.
        held: Messages that join the conversation only after checks. None: the turn is not taken
            beside checks, so that followers receive its reply as it arrives.
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
        held: Sequence[Message] | None = None,
    ) -> None:
        self.agent = agent
        self.saves = saves
        self.name: str = agent["name"]
        self.called = display_name(agent)
        """Name for display."""
        self.state = state
        self.conversation = conversation
        self.held = held
        # The list itself: in a long conversation, a copy would take longer than all other work.
        self.messages: list[Message] = dict.__getitem__(cast("dict[str, Any]", state), "messages")
        skills = listing(agent.get("skills", ()))
        self.instructions = "\n\n".join(filter(None, (instructions, skills)))
        self.settings = settings
        self.number: int = state["turns"] - state["begun"] + 1
        self.answers = self.number >= agent["max_turns"] and agent["last"] == "answer"
        """Whether the model must answer, because no turn follows."""
        self.choice: Mapping[str, Any] = state["choice"]
        """The choices of a hook for this turn: `model`, `tools`, `tool_choice`."""
        self.deferred: list[ToolOffer] = []
        """Tools that the model has to find before it can call them."""
        self.inner: dict[str, ToolOffer] = {}
        """The tools that programs can call, by the names of their functions."""
        offered = [one for one in self._offered() if self._chosen(one)]
        self.steps = {one.name: one.step for one in offered}
        """The step of each tool, also of those that only programs can call."""
        self.tools = {one.name: one for one in self._with_programs(offered)}
        if (state.get("window") or {}).get("cleared"):
            self.tools.setdefault(READ_RESULT, result_reader())
        self.convert: Callable[[Plain], object] | None = None
        """Converts an answer to the type that the agent returns, or raises."""
        self.judges: Judges | None = None
        """Calls the checks of arriving text."""

    async def ask(self, context: StepContext) -> ModelReply:
        """Call the model. If the attempt is followed, pass the reply on in parts.

        Args:
            context: The attempt. Script files are resolved in its working directory.
        """
        request = self._checked_request()
        listen = None if self.held is not None else self._listener(context)
        try:
            return await ask_model(context, request, self._last, listen)
        except ContextWindowExceeded as error:
            reduces = self.agent["context"] is not None
            raise self.size(request).refused(error, reduces=reduces) from error

    async def show(self, context: StepContext, output: Mapping[str, Any]) -> None:
        """Pass a reply from beside the checks on to the followers of the attempt that takes it.

        Args:
            context: The attempt.
            output: The output of the turn.
        """
        listen = self._listener(context)
        if listen is not None:
            for part in parts_of(output):
                listen(part)
        if isinstance(listen, ArrivingText):
            await listen.show_rest()

    def _listener(self, context: StepContext) -> Listener | ArrivingText | None:
        """Return the receiver of an arriving reply. Checks of its text need it, too."""
        pass_on = partial(_pass_on, context, self.called) if context.followed else None
        if "arriving" not in self.agent:
            return pass_on
        asked = self.state["asked"]
        prompt = "" if asked < 0 else plain(self.messages[asked])["content"]
        assert self.judges is not None
        return ArrivingText(self.agent["arriving"], self.judges, prompt, pass_on)

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

    def sent(self, model: str | None) -> ModelRequest | None:
        """Return the request for users, or None if it was too long to be sent.

        Args:
            model: The model that replied. None: it did not.
        """
        if model is not None:
            return self.request(model)
        try:
            return self._checked_request()
        except ContextWindowExceeded:
            return None

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
        return model_of(self.state, self.agent, saves=self.saves)

    @property
    def models(self) -> list[str]:
        """The agent's model, and its fallbacks."""
        return models_of(self.state, self.agent)

    def request(self, model: str) -> ModelRequest:
        agent = self.agent
        # The last turn offers the tools as well, and new messages come last. Providers cache
        # prefixes.
        offers = tuple(self.tools.values())
        choice = "none" if self.answers else self.choice.get("tool_choice", agent["tool_choice"])
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        shown, start = window(self.messages, self.state)
        added = [{"role": "user", "content": LAST}] if self.answers else []
        added = [*(self.held or ()), *added]
        # The list itself if possible, because copying a long conversation is expensive.
        rest = self.messages[start:] if start else self.messages
        return ModelRequest(
            model=model,
            messages=Joined([*system, *shown], [*rest, *added] if added else rest),
            tools=offers,
            tool_choice=choice if offers else None,
            parallel_tool_calls=agent["parallel_tool_calls"],
            function_calling=agent["function_calling"],
            returns=agent["returns"],
            settings=self.settings,
            agent=self.name,
            earlier_replies=self.state["earlier_replies"],
            conversation=self.conversation,
        )

    def _chosen(self, tool: ToolOffer) -> bool:
        """Return whether a hook leaves a tool on offer. The tools that end the work always stay."""
        globs = self.choice.get("tools")
        if globs is None or not (tool.step or tool.handoff):
            return True
        return any(fnmatchcase(tool.name, glob) for glob in globs)

    def _with_programs(self, tools: list[ToolOffer]) -> list[ToolOffer]:
        """Return the tools on offer. Programs call all of them except for the direct ones."""
        code = self.agent.get("code")
        if code is None:
            return tools
        inner = [
            one
            for one in tools
            if one.step
            and one not in self.deferred
            and not any(fnmatchcase(one.name, glob) for glob in code["direct"])
        ]
        self.inner = programs.functions(inner)
        run = programs.offer(self.inner, programs.step_of(self.name))
        return [run, *(one for one in tools if one not in inner)]

    def _offered(self) -> list[ToolOffer]:
        """Return the tools on offer, those that were found last."""
        tools, globs = self._tools(), self.agent.get("defer")
        if globs is None:
            return tools
        self.deferred = [
            one for one in tools if one.step and any(fnmatchcase(one.name, glob) for glob in globs)
        ]
        if not self.deferred:
            return tools
        hidden = {one.name: one for one in self.deferred}
        now = [hidden[name] for name in dict.fromkeys(self.state["found"]) if name in hidden]
        others = (one for one in tools if one.name not in hidden)
        return [*others, tool_search.finder(self.deferred), *now]

    def _tools(self) -> list[ToolOffer]:
        offers = [ToolOffer(**tool) for tool in plain(self.agent["tools"])]
        served = self.state["offer"].get("agents", {}).get(self.name, {})
        for name, value in plain(served).items():
            offers.append(ToolOffer(name, value["description"], value["parameters"], value["step"]))
        for name, what in self.agent["handoffs"].items():
            schema = plain(self.agent.get("handoff_arguments", {})).get(name, _NOTHING)
            about = f"Hands the conversation over to {name}" + (f": {what}" if what else ".")
            offers.append(ToolOffer(HANDOFF + name, about, schema, handoff=name))
        if self.agent["finish"] == "tools":
            offers += termination.case_offers()
        return offers


def model_of(state: Mapping[str, Any], agent: Mapping[str, Any], *, saves: bool = False) -> str:
    """Return the model that an agent currently uses.

    Args:
        state: State of the flow.
        agent: As for `models_of`.
        saves: Whether to use the last of its models.
    """
    models = models_of(state, agent)
    chosen = state.get("choice", {}).get("model")
    if chosen is not None and not saves and state["model_at"] == 0:
        return str(chosen)
    at: int = len(models) if saves else state["model_at"]
    return models[min(at, len(models) - 1)]


def models_of(state: Mapping[str, Any], agent: Mapping[str, Any]) -> list[str]:
    """Return the models of an agent.

    Those of the offer count, unless the execution has moved to a flow in which the agent is new or
    has other models.

    Args:
        state: State of the flow.
        agent: Constants of the agent: its `name`, and its `models` as the flow declares them.
    """
    offer, name = state["offer"], agent["name"]
    if "instead" in offer:
        return [offer["instead"]]
    if offer["declared"].get(name) != agent["models"]:
        return named_models(*agent["models"])
    offered: list[str] = offer["models"][name]
    return offered


_NOTHING: dict[str, Plain] = {"type": "object", "properties": {}, "additionalProperties": False}


def _pass_on(context: StepContext, agent: str, part: ReplyPart) -> None:
    """Pass on a part of a reply to the followers of the attempt."""
    if part.kind in ("text", "reasoning"):
        context.part(part.kind, part.text, agent=agent)
    elif part.kind == "call":
        context.part(part.kind, part.text, agent=agent, call=part.call or "", tool=part.tool or "")
    else:
        context.part(part.kind, agent=agent)


def parts_of(output: Mapping[str, Any]) -> Iterator[ReplyPart]:
    """Yield the parts of a reply, as if it arrived.

    Args:
        output: The output of the turn.
    """
    reply = Reply.of(output)
    yield ReplyPart("start")
    if reply.reasoning:
        yield ReplyPart("reasoning", reply.reasoning)
    if reply.text:
        yield ReplyPart("text", reply.text)
    for call in reply.calls:
        yield ReplyPart("call", call.sent, call.id, call.tool)
    yield ReplyPart("end")
