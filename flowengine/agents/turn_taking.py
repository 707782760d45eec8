"""Taking a turn of an agent: the model is asked, and its reply is read."""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.agents.arriving import Judges
from flowengine.agents.live_functions import converter
from flowengine.agents.reply_reading import ReplyReading
from flowengine.agents.turns import AgentTurn
from flowengine.sdk import Plain, StepContext
from flowengine.sdk.values.read_only import plain


async def take_turn(
    context: StepContext,
    task: Mapping[str, Plain],
    input: Mapping[str, Plain],
    judges: Judges | None = None,
) -> Plain:
    """Take one turn.

    Args:
        context: The attempt, with the state of the flow.
        task: `agent`, from the generated flow.
        input: `instructions` and `settings`, and `held` beside checks.
        judges: Calls the checks of arriving text.

    Returns:
        The output of the step.
    """
    turn = turn_of(context, task, input)
    turn.judges = judges
    reply = await turn.ask(context)
    if turn.convert is None:
        return ReplyReading(turn, reply).output()
    return await context.on_thread(lambda: ReplyReading(turn, reply).output())


def reply_ahead(context: StepContext, task: Mapping[str, Plain]) -> dict[str, Plain] | None:
    """Return the reply of a request beside checks that have passed, as the output of its turn.

    Its usage is in the output of that request, so it counts once.

    Args:
        context: The attempt of the turn, with the state of the flow.
        task: `agent`, from the generated flow.

    Returns:
        The output, or None if the model is to be asked.
    """
    reply = plain(context.state["ahead"]) if "beside" in task["agent"] else None
    return {name: part for name, part in reply.items() if name != "usage"} if reply else None


def turn_of(
    context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
) -> AgentTurn:
    """Return the turn that an attempt is to take.

    Args:
        context: The attempt, with the state of the flow.
        task: `agent`, from the generated flow.
        input: `instructions` and `settings`, and `held` in a step beside checks.
    """
    settings = input.get("settings") or {}
    instructions, saves = str(input["instructions"]), context.fallback
    held = input.get("held")
    above = context.address.rsplit("/", 1 if held is None else 2)[0]
    turn = AgentTurn(
        task["agent"], context.state, instructions, settings, saves=saves,
        conversation=f"{context.execution.id} {above}", held=held,
    )  # fmt: skip
    if "returns_type" in turn.agent:
        turn.convert = converter(context, turn.agent["returns_type"])
    return turn
