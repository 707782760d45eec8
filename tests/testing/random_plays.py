"""Plays any flow at random, favoring progress: tasks succeed, questions are answered, time waits.

    played = random_play(random_graph(random.Random(7)), seed=1, crashes=True)
    check_over(played)

In addition, all other happenings occur from time to time: tasks fail, environments are lost,
processes die (mostly during an attempt), the execution is cancelled, and failures are retried.
"""

from __future__ import annotations

import random
from typing import Any

from flowengine.errors import Conflict, NotFound
from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import Run
from tests.simulation.simulator import Asks, Fails, Happening, Simulator

LONGEST = 120
"""Maximum number of happenings of a play."""
TIME = "time passes"


def random_play(
    graph: Graph, seed: object, *, crashes: bool = False, leaves: bool = False
) -> Simulator:
    """Play a flow until nothing can happen, or for `LONGEST` happenings.

    Args:
        graph: Any flow.
        seed: Decides the play.
        crashes: Whether the process sometimes dies.
        leaves: Whether attempts are sometimes left to a worker that offers what they need.

    Returns:
        The execution that was played.
    """
    return _Play(graph, seed, crashes, leaves).play()


class _Play:
    def __init__(self, graph: Graph, seed: object, crashes: bool, leaves: bool) -> None:
        self.random = random.Random(str(seed))
        self.crashes = crashes
        self.leaves = leaves
        self.fails = self.random.choice([0.0, 0.03, 0.05, 0.15])
        script: dict[str, Any] = {}
        for step in graph.flow["steps"]:
            asks = self.random.random() < 0.03
            script[step["id"]] = Asks("drawn", self.task) if asks else self.task
        self.played = Simulator(graph, script)

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def task(self, _run: Run) -> Any:
        if self.chance(self.fails):
            raise Fails("Drawn", retryable=self.chance(0.5))
        return self.random.randrange(10)

    def play(self) -> Simulator:
        """Play it."""
        played = self.played.start()
        for _ in range(LONGEST):
            if played.status in ENDED:
                if not self.begins_again():
                    break
            elif not self.happens():
                break
        return played

    def happens(self) -> bool:
        """Let one thing happen, and return whether anything could."""
        played = self.played
        if self.crashes and self.chance(0.1 if played.running else 0.01):
            played.crash()
        elif self.leaves and played.running and self.chance(0.2):
            self.leave(self.random.choice(list(played.running.values())))
        elif self.leaves and self.chance(0.2) and self.offers():
            pass
        elif played.running and self.chance(0.01):
            self.lose(self.random.choice(list(played.running.values())))
        elif self.chance(0.01 if len(played.journal) == 1 else 0.003):
            self.cancel()
        elif self.chance(0.4) and self.answers():
            pass
        elif self.chance(0.1 if self.is_waited_for() else 0.01):
            self.send()
        else:
            return self.moves()
        return True

    def moves(self) -> bool:
        """Let something happen by itself. Time passes rarely, or if nothing else can happen."""
        can = self.played.possible()
        now = [move for move in can if move.name != TIME]
        if now and (len(now) == len(can) or not self.chance(0.02)):
            self.let(now)
        elif self.answers() or self.offers():
            pass
        elif self.is_waited_for() and (not can or self.chance(0.7)):
            self.send()
        elif can:
            self.let([move for move in can if move.name == TIME])
        else:
            return False
        return True

    def let(self, can: list[Happening]) -> None:
        self.played.let(self.random.choice(can))

    # From outside

    def answers(self) -> bool:
        """Decide one question, mostly with an approval, and return whether one was open."""
        asked = [wait for wait in self.played.waits() if wait["kind"] in ("approval", "question")]
        if not asked:
            return False
        wait = self.random.choice(asked)
        choices = [choice["id"] for choice in wait["choices"]]
        choice = choices[0] if self.chance(0.8) else self.random.choice(choices)
        more: dict[str, Any] = {"value": 1}
        if wait["step"] == "budget":
            form = {"tool_calls": 99} if self.chance(0.7) else {"wall_time": "20s", "tokens": 500}
            more = {"form": form}
        self.played.decide(wait["address"], choice, **more)
        return True

    def is_waited_for(self) -> bool:
        """Return whether something listens for a signal now."""
        return bool(self.played.state["listening"])

    def send(self) -> None:
        """Send a signal, mostly one that something waits for."""
        listening = list(self.played.state["listening"])
        waited = listening and self.chance(0.8)
        signal = self.random.choice(listening) if waited else self.random.choice(["s", "t"])
        name, _, key = signal.partition("\n")
        data = self.random.randrange(9)
        self.played.send(name, data, key or None, id=str(len(self.played.journal)))

    def cancel(self) -> None:
        """Cancel the execution, sometimes without cleanup."""
        self.played.apply({"type": "cancel", "at": self.played.now, "reason": "drawn",
                           "by": "user:test", "now": self.chance(0.3)})  # fmt: skip

    def lose(self, run: Run) -> None:
        """Lose the environment of an attempt, perhaps before it began."""
        self.played.apply(
            {"type": "lost", "at": self.played.now, "unit": run.unit, "attempt": run.attempt,
             "ran": self.random.choice(["no", "maybe"]),
             "error": {"type": "EnvironmentLost", "message": "gone"}}
        )  # fmt: skip

    def leave(self, run: Run) -> None:
        """Leave an attempt to a worker."""
        unit, attempt = run.unit, run.attempt
        self.played.apply(
            {"type": "unoffered", "at": self.played.now, "unit": unit, "attempt": attempt}
        )

    def offers(self) -> bool:
        """Let a worker take all attempts that were left, and return whether there were any."""
        waiting = [wait["id"] for wait in self.played.waits() if wait["kind"] == "worker"]
        for wait in waiting:
            self.played.apply({"type": "offered", "at": self.played.now, "wait": wait})
        return bool(waiting)

    def begins_again(self) -> bool:
        """Retry all failures or one step, and return whether that was possible."""
        played = self.played
        if played.status != "failed" or played.retries > 1 or not self.chance(0.5):
            return False
        for run in list(played.stopped.values()):
            if self.chance(0.5):
                played.end_late(run, 1)
        failed = [
            observation.address
            for observation in played.observations
            if observation.status == "failed"
        ]
        step = self.random.choice(failed) if failed and self.chance(0.3) else None
        try:
            played.retry(step)
        except (Conflict, NotFound):
            return False
        return True
