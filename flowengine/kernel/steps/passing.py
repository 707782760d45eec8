"""Passing: the token of a step that has ended goes straight to the next step, whose attempt begins.

Most events do this and nothing else. Its parts - the token leaves, arrives, activates a step, which
begins its unit and its attempt - otherwise take turns on the agenda. While nothing else is there,
nothing can come between them, so they are done at once: the same records, numbers and commands, in
the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.state import entries
from flowengine.kernel.steps.attempts import attempt
from flowengine.kernel.tokens.activations import count, put_activation
from flowengine.kernel.tokens.units import new_unit

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Activation


def pass_on(m: Machine, act: Activation, output: Plain) -> bool:
    """Pass the token of an activation straight to the next step, if nothing can come between.

    Args:
        m: The advance at work; the caller does nothing after this.
        act: The activation, which is over.
        output: What its step gave.

    Returns:
        Whether it did; else nothing has changed.
    """
    state, graph, source = m.state, m.graph, act["step"]
    node = graph.followers[source]
    if node is None or m.agenda or "hold" in state:
        return False
    scope = state["scopes"][act["scope"]]
    del state["acts"][act["id"]], scope["live"][act["id"]]
    carried = output if graph.nodes[source].carries else None
    following = put_activation(m, scope, node.index, [[source, carried]], act)
    try:
        count(m, scope, following)
    except StepFailure as failure:
        m.agenda.append(entries.act_broken(following["id"], failure))
        return True
    attempt(m, new_unit(m, scope, following, -1))
    return True
