"""Which call of a round a step carries out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.addresses import is_round


class RoundCalls:
    """The calls of the newest rounds, from observations of steps."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, Any]] = {}

    def note(self, seen: Observation) -> None:
        """Note the calls of a round."""
        if isinstance(seen.output, Mapping) and "calls" in seen.output and is_round(seen.address):
            self._made[seen.address.rpartition("@")[0]] = seen.address, seen.output

    def of(self, address: str) -> Mapping[str, Any]:
        """Return the call that the step at an address carries out, or an empty mapping."""
        around = address.rpartition("/")[0]
        made, result = self._made.get(around.rpartition("@")[0], ("", None))
        return call_in(result, address) if made == around else {}


def call_in(result: Any, address: str) -> Mapping[str, Any]:
    """Return a call of a round, or an empty mapping.

    Args:
        result: The result of the round.
        address: Address of the step that carries out the call.
    """
    made = result.get("calls") if isinstance(result, Mapping) else None
    if not isinstance(made, list):  # any step may have such an output
        return {}
    callee, _, number = address.rpartition("/")[2].partition("[")[0].partition("#")
    alike = [call for call in made if isinstance(call, Mapping) and call.get("callee") == callee]
    place = int(number or 1) - 1
    return alike[place] if place < len(alike) else {}
