# Shows G9
"""Executions in the background, in random orders of starts, ends, failures and crashes.

The world outside knows which executions exist. Whatever happens, each is heard once or cancelled
once, and none is left over.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from flowengine.kernel import ENDED as OVER
from flowengine.kernel.commands import CANCEL, ENDED, Run, Send
from flowengine.kernel.notation.addresses import separate_id
from flowengine.kernel.view import taken
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Happening, Simulator
from tests.testing.graphs import graph, step, v

ITEM = ["item", "index", "key"]
TOKENS = 10_000


class World:
    """The executions that a flow starts, and what they tell it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.at_once, self.total = chance.randint(1, 4), chance.randint(1, 8)
        bounds = {"at_once": self.at_once, "total": self.total}
        items = {"over": v(list(range(10))), "names": ITEM, "concurrency": v(chance.randint(1, 3))}
        start = step(
            "start",
            map={**items, "on_item_error": "continue"},
            background=bounds,
            effect="idempotent",
        )
        team = {"steps": [start, step("stay")]}
        flow = graph(
            step("work", action="flow", flow="team"),
            step("after"),
            flows={"team": team},
            budget={"tokens": TOKENS, "then": "stop"},
        )
        self.granted: dict[str, int] = {}
        """Id → what it may use, of all that may exist."""
        self.exist: set[str] = set()
        self.used: dict[str, int] = {}
        """Id → what it has used, of those that have ended."""
        script = {"start": self.create}
        self.played = Simulator(flow, script, seed=seed, outside=[self.may]).start()

    def create(self, run: Run) -> dict[str, str]:
        id = separate_id("simulated", run.address)
        if id not in self.exist and self.chance.random() < 0.1:
            del self.granted[id]
            raise Fails("ValidationError")
        self.exist.add(id)
        return {"execution_id": id}

    def may(self, played: Simulator) -> list[Happening]:
        happenings = [Happening(f"{id} ends", partial(self.end, id)) for id in sorted(self.exist)]
        happenings.append(Happening("the process dies", self.crash))
        if self.chance.random() < 0.02:
            happenings.append(Happening("it is cancelled", self.cancel))
        return happenings

    def end(self, id: str) -> None:
        """End an execution, or send its end once more."""
        if id in self.used or id in self.played.state.get("children", {}):
            used = self.used.setdefault(id, self.chance.randint(0, self.granted[id]))
        else:
            used = 0  # what started it has ended
        self.tell(id, id, 0)  # a user of that name
        self.tell("other", "execution:other", 0)
        self.tell(id, f"execution:{id}", used)

    def tell(self, id: str, by: str, used: int) -> None:
        if self.played.status not in OVER:
            data = {"id": id, "outcome": "ok", "used": {"tokens": used}}
            self.played.apply(
                {"type": "message", "at": self.played.now, "signal": ENDED, "key": None,
                 "data": data, "id": f"{by}/1", "by": by}
            )  # fmt: skip

    def crash(self) -> None:
        """Lose the process, at a moment when some of the executions exist already."""
        for run in self.played.running.values():
            if run.child is not None and self.chance.random() < 0.5:
                self.exist.add(separate_id("simulated", run.address))
        self.played.crash()

    def cancel(self) -> None:
        self.played.apply(
            {"type": "cancel", "at": self.played.now, "reason": "", "by": "user:test", "now": False}
        )

    def play(self) -> None:
        """Play to the end, and compare the state with the world after each event."""
        while self.played.status not in OVER:
            for run in self.played.running.values():
                if run.child is not None:
                    part: Any = run.child["part"]
                    self.granted[separate_id("simulated", run.address)] = part["tokens"]
            self.played.step()
            children = self.played.state.get("children", {})
            assert len(children) <= self.total
            assert sum("ended" not in child for child in children.values()) <= self.at_once
            for id in children.keys() & self.used.keys():
                assert "ended" in children[id]
        check_over(self.played)
        assert "children" not in self.played.state
        sent = [one for one in self.played.commands if isinstance(one, Send)]
        cancelled = [one.to for one in sent if one.signal == CANCEL]
        assert len(cancelled) == len(set(cancelled))
        assert self.exist <= self.used.keys() | set(cancelled), "none is left over"
        counted = {**self.granted, **self.used}
        assert sum(counted.values()) == taken(self.played.state["budget"], "tokens") <= TOKENS


@pytest.mark.endurance(sample=4)
@pytest.mark.parametrize("block", range(4))
def test_each_execution_in_the_background_is_heard_or_cancelled_once(block: int) -> None:
    heard = 0
    for seed in range(block, 200, 4):
        world = World(seed)
        try:
            world.play()
        except Exception as error:
            raise AssertionError(f"{seed=}: {error!r}") from error
        heard += len(world.used)
    assert heard
