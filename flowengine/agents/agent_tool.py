"""A tool of an agent, as the generated flow has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowengine.agents.served import Served
from flowengine.sdk import Plain


@dataclass(frozen=True)
class AgentTool:
    """A tool of an agent, and the step that a call of it is."""

    name: str
    """As the model is offered it."""
    description: str
    parameters: Mapping[str, Plain]
    """JSON Schema of its arguments."""
    action: Mapping[str, Plain]
    """The action of the step, in long form; its arguments are `call.args`."""
    parallel: bool = False
    served: Served | None = None
    """It is, or they are, of a server: what models are told of them is known when it is asked."""
    adapter: Mapping[str, Plain] | None = None
    """What the adapter is told beside what it always is; None: the action is a flow, which gives
    plain data by itself."""
