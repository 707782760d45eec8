"""Taking a round of an agent: the model is called where the round needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from flowengine.agents.agent_state import AgentState
from flowengine.agents.arriving import Judges
from flowengine.agents.context_reduction import summarized, summary_request
from flowengine.agents.first_messages import asked, models_on_offer, opened, opened_with
from flowengine.agents.live_functions import converter
from flowengine.agents.model_calls import ask_model, model_needs
from flowengine.agents.models.port import ModelReply, ModelRequest
from flowengine.agents.reply_reading import ReplyReading
from flowengine.agents.rounds.agent_round import AgentRound
from flowengine.agents.rounds.parts import AskModel, LastingError, Result, Summarize
from flowengine.agents.tool_answers import with_kept
from flowengine.agents.turns import AgentTurn
from flowengine.sdk import Need, Plain, StepContext
from flowengine.sdk.values.read_only import plain

Instructions = Callable[[], Awaitable[str]]


class TakenRound:
    """A round of an agent, up to the point where it calls the model.

    Args:
        context: The attempt.
        task: `agent`, the constants of the agent.
        input: `instructions` and `settings`.
    """

    def __init__(
        self, context: StepContext, task: Mapping[str, Any], input: Mapping[str, Plain]
    ) -> None:
        self.context = context
        self.agent: Mapping[str, Any] = task["agent"]
        self.input = input
        self.settings: Mapping[str, Any] = input.get("settings") or {}
        self.state = AgentState(context.state)
        answers = context.answers
        self.round = AgentRound(
            self.agent, self.state, None if answers is None else plain(answers), context.caught
        )

    @property
    def opens(self) -> bool:
        """Whether it begins the conversation itself, as it needs no tools of servers."""
        return self.state["stage"] == ["start"] and not self.agent.get("servers")

    async def begin(self) -> Result | AskModel | Summarize:
        """Go as far as possible without the model."""
        if self.opens:
            files = self.context.execution.artifacts
            made = await opened(self.agent["offers"], *self.asked)
            made["messages"] = [with_kept(message, files) for message in made["messages"]]
            self.round.opened(made)
        return self.go()

    @property
    def changed_context(self) -> Mapping[str, Plain]:
        """The context variables that the round has changed."""
        return self.state.changed_context

    @property
    def asked(self) -> tuple[str, Mapping[str, Plain]]:
        """The model for all agents, or the empty text, and the arguments of the agent."""
        return asked(self.input)

    def go(self) -> Result | AskModel | Summarize:
        """Go as far as possible without the model, once the conversation has begun."""
        try:
            return self.round.go()
        except LastingError as lasting:
            return {"error": plain(lasting.error)}

    def made_again(self) -> Result | AskModel | Summarize:
        """Go as far as possible without the model, for display or in a test case."""
        if self.opens:
            instead, args = self.asked
            self.round.opened(opened_with(models_on_offer(self.agent["offers"], instead), args))
        return self.go()

    def turn(self, instructions: str) -> AgentTurn:
        """Return the turn in which the model is called."""
        above = self.context.address.rsplit("/", 1)[0]
        turn = AgentTurn(
            self.agent, self.state.seen(), instructions, self.settings,
            saves=self.context.fallback, conversation=f"{self.context.execution.id} {above}",
        )  # fmt: skip
        if "returns_type" in self.agent:
            turn.convert = converter(self.context, self.agent["returns_type"])
        return turn

    def summary(self, made: Summarize) -> ModelRequest:
        """Return the request for a summary."""
        saves = self.context.fallback
        return summary_request(self.state.seen(), self.agent, made.cut, self.settings, saves=saves)

    def replied(self, output: Mapping[str, Any]) -> Result:
        """Return the result of the round with a reply.

        Args:
            output: The reply, as `ReplyReading` reads it.
        """
        made = self.round.replied(output)
        if self.round.ahead is not None:
            made.pop("usage", None)  # it is in the output of that request, so it counts once
        return made

    def summarized(self, made: Summarize, reply: ModelReply) -> Result:
        """Return the result of the round with a summary."""
        cut = summarized(self.state.seen(), self.agent["context"], made.cut, reply)
        return self.round.cut(cut, made.turn)

    async def result(self, instructions: Instructions, judges: Judges) -> Result:
        """Take the round, and return its result.

        Args:
            instructions: Returns those of the agent.
            judges: Calls the checks of arriving text.
        """
        made = await self.begin()
        if isinstance(made, Summarize):
            return self.summarized(made, await ask_model(self.context, self.summary(made), {}))
        if isinstance(made, AskModel):
            ahead = self.round.ahead
            turn = self.turn("" if ahead is not None else await instructions())
            turn.judges = judges
            if ahead is not None:
                await turn.show(self.context, ahead)
                return self.replied(ahead)
            return self.replied(await read(turn, self.context))
        return made

    async def needs(self, instructions: Instructions) -> Mapping[str, Need]:
        """Return the possible use of budgets by the call of the model."""
        made = await self.begin()
        if isinstance(made, Summarize):
            return await model_needs(self.context, self.summary(made), {})
        if isinstance(made, AskModel) and self.round.ahead is None:
            return await self.turn(await instructions()).needs(self.context)
        return {}


async def read(turn: AgentTurn, context: StepContext) -> dict[str, Plain]:
    """Call the model, and return its reply as `ReplyReading` reads it."""
    reply = await turn.ask(context)
    if turn.convert is None:
        return ReplyReading(turn, reply).output()
    return await context.on_thread(lambda: ReplyReading(turn, reply).output())


def ahead_of(
    context: StepContext, task: Mapping[str, Any], input: Mapping[str, Any], instructions: str
) -> AgentTurn:
    """Return the turn of a request beside checks, to which followers do not listen."""
    held = input.get("held") or []
    above = context.address.rsplit("/", 2)[0]
    return AgentTurn(
        task["agent"], AgentState(context.state).seen(), instructions, input.get("settings") or {},
        saves=context.fallback, conversation=f"{context.execution.id} {above}", held=held,
    )  # fmt: skip


def sent(taken: TakenRound, output: Mapping[str, Any]) -> Mapping[str, Plain] | None:
    """Return what a model was sent in a round, or None if it was not called.

    Args:
        taken: The round, with the state at its beginning.
        output: Its result.
    """
    made = taken.made_again()
    if isinstance(made, Summarize):
        return taken.summary(made).as_data() if "summary" in output else None
    if not isinstance(made, AskModel):
        return None
    # Those that a function returned are recorded.
    turn = taken.turn(str(output.get("instructions", taken.input.get("instructions"))))
    request = turn.sent(output.get("model"))
    return None if request is None else request.as_data()
