"""Replies that a test gives in place of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowengine.agents.models.registry import using
from flowengine.agents.models.scripted import Answering, ScriptedModel, ScriptedReply
from flowengine.errors import FlowEngineError


@contextmanager
def scripted(*replies: ScriptedReply | Answering) -> Iterator[ScriptedModel]:
    """Reply to all model calls in a block with a script, in place of every named model.

        with scripted(call("find_order", number=7), "You get 80 EUR.") as model:
            response = agent.run("Order 7 broke.")
        assert model.requests[0].messages[-1]["content"] == "Order 7 broke."

    Args:
        *replies: In the order of the model calls: a text, a call, an entry of a script
            as data, an exception to raise, or a function of the request that returns one of these.

    Yields:
        The model. Its `requests` are what agents have sent.

    Raises:
        AssertionError: The block has ended, and some replies were not used.
        FlowEngineError: The block raised it, such as `AgentRunFailed`. If a function of the script
            raised an exception by mistake, that is its cause.
    """
    model = ScriptedModel(replies)
    try:
        with using(model):
            yield model
    except FlowEngineError as failed:
        if model.fault is None or failed.__cause__ is not None:
            raise
        raise failed from model.fault
    if model.left:
        used = len(replies) - model.left
        raise AssertionError(
            f"{model.left} of {len(replies)} scripted replies were not used: the agents called a "
            f"model {len(model.requests)} times, so the next reply was {replies[used]!r}"
        )


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a scripted reply that calls a tool.

    Args:
        tool: Its name.
        **arguments: Arguments of the call.
    """
    return {"calls": [{"name": tool, "arguments": arguments}]}
