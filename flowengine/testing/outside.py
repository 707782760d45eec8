"""Actions of users and other systems on a simulated execution, for `Simulator(outside=...)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.view import DECIDABLE
from flowengine.testing.simulator import Happening, Outside, Simulator


def deciding(at: str, *choices: str | Mapping[str, Any]) -> Outside:
    """Return the possible decisions on an approval or a question.

    Args:
        at: Id of the step, or an address.
        choices: Ids of choices, or the parts of a decision: `choice`, and perhaps `form`, `edits`,
            `comment`, `by`, `value`. Each is a possible decision.

    Returns:
        For `Simulator(outside=...)`.
    """
    decisions = [{"choice": c} if isinstance(c, str) else dict(c) for c in choices]

    def may(simulator: Simulator) -> list[Happening]:
        return [
            Happening(
                f"{wait['address']} is decided: {decision['choice']}",
                partial(simulator.decide, wait["address"], **decision),
            )
            for wait in simulator.waits()
            if wait["kind"] in DECIDABLE and at in _names(wait)
            for decision in decisions
        ]

    return may


def sending(signal: str, data: Plain = None, *, key: str | None = None, times: int = 1) -> Outside:
    """Return the action that sends a signal, at any moment.

    Args:
        signal: Its name.
        data: Its data.
        key: Its key.
        times: Maximum number of times that it is sent.

    Returns:
        For `Simulator(outside=...)`.
    """

    def may(simulator: Simulator) -> list[Happening]:
        sent = sum(e["type"] == "message" and e["signal"] == signal for e in simulator.journal)
        if sent >= times:
            return []
        id = f"{signal}-{sent}"
        return [Happening(f"{signal} is sent", lambda: simulator.send(signal, data, key, id))]

    return may


def anything(*, times: int = 2) -> Outside:
    """Return all possible actions of users and other systems, for any flow.

    Every approval is decided in each possible way, and every signal that the flow declares is sent
    at any moment, by its key.

    Args:
        times: Maximum number of times that each signal is sent.

    Returns:
        For `Simulator(outside=...)`.
    """

    def may(simulator: Simulator) -> list[Happening]:
        happenings: list[Happening] = []
        for wait in simulator.waits():
            if wait["kind"] == "approval":
                choices = [choice["id"] for choice in wait["choices"]]
                happenings += deciding(wait["address"], *choices)(simulator)
        for signal in simulator.graph.flow.get("signals", {}):
            key = simulator.state["keys"].get(signal)
            happenings += sending(signal, key=key, times=times)(simulator)
        return happenings

    return may


def _names(wait: Mapping[str, Plain]) -> tuple[str, str]:
    """Return the id of the step of a wait and its address."""
    return wait["step"], wait["address"]
