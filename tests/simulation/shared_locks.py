"""Shared locks and budgets, granted as by a store, for one simulated execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowengine.journal.accounts import Answer, answer, charged, is_unlimited
from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.events import Granted
from flowengine.kernel.state.records import State
from flowengine.kernel.view import is_shared


class SharedLocks:
    """The open claims of each lock, which is granted in the order of the claims.

    Attributes:
        claims: Lock → its open claims, in order.
    """

    def __init__(self) -> None:
        self.claims: dict[str, list[Claim]] = {}
        self._told: dict[tuple[str, int], bool] = {}
        """(lock, unit that holds it) → whether the unit has been notified."""
        self._answers: dict[tuple[str, int], Answer] = {}
        """(budget, unit) → the answer to its claim."""
        self.used: dict[str, Mapping[str, int]] = {}
        """Budget → meter → what ended calls have used."""

    def note(self, command: Claim | GiveBack) -> None:
        """Record a claim, or the end of one."""
        queue = self.claims.setdefault(command.lock, [])
        if isinstance(command, Claim):
            queue.append(command)
        else:
            queue[:] = [claim for claim in queue if claim.unit != command.unit]
            self._told.pop((command.lock, command.unit), None)
            found = self._answers.pop((command.lock, command.unit), Answer())
            used = self.used.get(command.lock, {})
            self.used[command.lock] = charged(used, found.amounts, command.used)
        if queue and queue[0].needs is not None:
            self._answer(queue)
        else:
            for claim in queue[: queue[0].permits if queue else 0]:
                self._told.setdefault((claim.lock, claim.unit), False)
        if not queue:
            del self.claims[command.lock]

    def _answer(self, queue: list[Claim]) -> None:
        """Answer the claims on a budget in order, up to one that has to wait."""
        for claim in queue:
            place = claim.lock, claim.unit
            if place in self._answers or claim.needs is None:
                continue
            reserved = [found.amounts for (name, _), found in self._answers.items()
                        if name == claim.lock]  # fmt: skip
            found = answer(claim.needs, self.used.get(claim.lock, {}), reserved)
            if found is None:
                return
            self._answers[place] = found
            self._told[place] = is_unlimited(claim.needs)

    def event(self, lock: str, unit: int, now: int) -> Granted:
        """Return the event that notifies a unit."""
        event: Granted = {"type": "granted", "at": now, "lock": lock, "unit": unit}
        found = self._answers.get((lock, unit))
        if found is not None and found.lacks is not None:
            event["lacks"] = dict(found.lacks)
        elif found is not None:
            event["amounts"] = dict(found.amounts)
        return event

    def untold(self) -> Iterator[tuple[str, int]]:
        """Yield each lock that a unit holds without having been notified."""
        return (held for held, is_reported in self._told.items() if not is_reported)

    def tell(self, lock: str, unit: int) -> None:
        """Record that a unit was notified of its lock, or of the answer to its claim."""
        self._told[lock, unit] = True
        found = self._answers.get((lock, unit))
        if found is not None and found.lacks is not None:
            self.note(GiveBack(lock, unit))

    def claim_again(self, state: State) -> None:
        """Claim the locks of the state, without competitors. Granted parts of budgets stay so."""
        self._told.clear()
        self._answers.clear()
        waiting = state.get("claims", {})
        claims = [Claim(u["lock"], n, 1, "queue") for n, u in state["units"].items()
                  if is_shared(u.get("lock", "0"))]  # fmt: skip
        if "bound" in state:
            claims.append(Claim(state["bound"][0], 0, state["bound"][1], "queue"))
        for number, reservations in state.get("reserved", {}).items():
            for name, held in reservations.items():
                if "granted" in held or waiting.get(number) == name:
                    claims.append(Claim(name, number, 1, "queue", held["needs"]))
                if "granted" in held:
                    self._answers[name, number] = Answer(held["granted"])
        for claim in sorted(claims, key=lambda claim: claim.unit in waiting):
            self.note(claim)
            if claim.unit not in waiting:
                self.tell(claim.lock, claim.unit)
