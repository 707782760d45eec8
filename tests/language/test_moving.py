"""Random edits to flows with open executions: predictions match the actual migration (F75)."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowengine.engines.interventions.obstacles import Obstacle
from flowengine.engines.interventions.upgrading import move_obstacles
from flowengine.kernel import ENDED, Graph
from tests.language.stage import Stage
from tests.language.test_any_order import SCRIPT
from tests.simulation.simulator import Simulator, unpacked
from tests.testing.random_flows import Author

Flow = dict[str, Any]
Step = dict[str, Any]
Edit = Callable[["Editor"], None]


def steps_of(steps: list[Step]) -> Iterator[tuple[list[Step], Step]]:
    """Yield every step of a flow with the list that contains it."""
    for step in list(steps):
        yield steps, step
        for key in ("group", "parallel", "finally"):
            yield from steps_of(step.get(key, []))


class Editor:
    """Makes one random change to a copy of a flow.

    Attributes:
        flow: The changed flow.
        mapping: The mapping that the author of the change would provide.
    """

    def __init__(self, flow: Flow, draw: random.Random) -> None:
        self.flow = copy.deepcopy(flow)
        self.mapping: dict[str, Any] = {}
        self.draw = draw

    def edit(self) -> str:
        """Change the flow, and return a description of the change."""
        edit = self.draw.choice(EDITS)
        edit(self)
        return edit.__name__

    def any_step(self) -> tuple[list[Step], Step]:
        return self.draw.choice(list(steps_of(self.flow["steps"])))

    def rename(self) -> None:
        """Rename a step."""
        _, step = self.any_step()
        old, new = step["id"], f"{step['id']}x"
        self.flow = renamed(self.flow, old, new)
        self.mapping = {"steps": {old: new}}

    def remove(self) -> None:
        """Remove a step. Its predecessors lead to its end."""
        among, step = self.any_step()
        if len(among) > 1:
            among.remove(step)
            self.flow["outputs"].pop(step["id"], None)
            self.flow = renamed(self.flow, step["id"], "end", ids=False)

    def add(self) -> None:
        """Insert a step before the end of a scope."""
        among, step = self.any_step()
        if among and step.get("next") == "end" and "cancel" not in step:
            among.append({"id": "added", "output": 1})
            step["next"] = "added"

    def other_kind(self) -> None:
        """Replace the action of a step."""
        _, step = self.any_step()
        for key in ("python", "with", "compensate", "output", "approval", "wait"):
            step.pop(key, None)
        if not {"group", "parallel", "cancel"} & step.keys():
            step["wait"] = "1s"

    def other_join(self) -> None:
        """Change how tokens meet."""
        _, step = self.any_step()
        step["join"] = self.draw.choice(["all", "active", "each", 1])

    def other_way(self) -> None:
        """Lead a step elsewhere."""
        among, step = self.any_step()
        step["next"] = self.draw.choice([one["id"] for one in among] + ["end"])

    def loop(self) -> None:
        """Add a loop to a step, or remove it."""
        _, step = self.any_step()
        if step.pop("loop", None) is None and "map" not in step and "cancel" not in step:
            step["loop"] = {"until": "${{ round.number == 2 }}", "max": 3}

    def map(self) -> None:
        """Add a map to a step, or remove it."""
        _, step = self.any_step()
        if step.pop("map", None) is None and "loop" not in step and "cancel" not in step:
            step["map"] = {"over": 2}

    def look_back(self) -> None:
        """Refer to the rounds of a step in the outputs."""
        name = self.draw.choice(list(self.flow["outputs"]))
        self.flow["outputs"]["more"] = f"${{{{ default(steps.{name}.attempts, 0) }}}}"

    def lock(self) -> None:
        """Add a lock to a step, or remove it."""
        _, step = self.any_step()
        if step.pop("lock", None) is None and "cancel" not in step:
            step["lock"] = "l9"

    def comment(self) -> None:
        """Make a change that affects no execution."""
        self.flow["title"] = "changed"


EDITS: list[Edit] = [
    Editor.rename, Editor.rename, Editor.rename, Editor.remove, Editor.add, Editor.other_kind,
    Editor.other_join, Editor.other_way, Editor.loop, Editor.map, Editor.look_back, Editor.lock,
    Editor.comment,
]  # fmt: skip


def renamed(data: Any, old: str, new: str, *, ids: bool = True) -> Any:
    """Return a flow with a step renamed everywhere."""
    if isinstance(data, dict):
        return {
            (new if key == old and ids else key): value
            if key == "id" and not ids
            else renamed(value, old, new, ids=ids)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [renamed(one, old, new, ids=ids) for one in data]
    if isinstance(data, str):
        if data == old:
            return new
        return data.replace(f"steps.{old}.", f"steps.{new}.") if ids else data
    return data


def ran(simulator: Simulator) -> set[str]:
    """Return the IDs of steps that have ended."""
    return {
        simulator.graph.node(seen.step).id
        for seen in simulator.observations
        if seen.status in {"succeeded", "skipped", "failed", "cancelled"}
    }


def play_to(simulator: Simulator, moments: int) -> bool:
    """Apply a number of events, and return whether the execution is still open."""
    for _ in range(moments):
        if not simulator.step():
            return False
    return simulator.status not in ENDED


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
# Shows F75
def test_prediction_is_what_happens(stage: Stage, block: int) -> None:
    verdicts: Counter[str] = Counter()
    for seed in range(block * 1000, block * 1000 + 100):
        if seed >= block * 1000 + 15 and verdicts["rename mapped"]:
            break
        flow = Author(seed, wild=bool(seed % 2)).flow()
        old = stage.compiled_if_accepted(flow)
        if old is None:
            continue
        draw = random.Random(seed)
        for _ in range(4):
            editor = Editor(flow, draw)
            what = editor.edit()
            new = stage.compiled_if_accepted(editor.flow)
            if new is None:
                continue
            for order in range(3):
                simulator = stage.simulator(old, SCRIPT, seed=order)
                simulator.start({name: bool(draw.randrange(2)) for name in "pqr"})
                if not play_to(simulator, draw.randint(0, 6)):
                    continue
                graph = stage.simulator(new).graph
                verdict = _try(simulator, graph, editor.mapping, (seed, what, order))
                verdicts[f"{what} {verdict}"] += 1
    total = Counter(key.split()[1] for key in verdicts.elements())
    assert total["continues"] > 10, verdicts
    assert total["cannot"] > 0, verdicts
    assert verdicts["rename mapped"] > 0, verdicts


def _try(simulator: Simulator, new: Graph, mapping: dict[str, Any], where: Any) -> str:
    """Migrate an open execution if the prediction permits it, and return the prediction."""
    before = unpacked(simulator.state)
    old = simulator.graph
    found = move_obstacles(old, new, simulator.state, {}, ran(simulator))
    verdict = "continues"
    if any(one.write is None for one in found):
        verdict = "cannot"
    elif found:
        verdict = "mapping"
        if mapping and not move_obstacles(old, new, simulator.state, mapping, ran(simulator)):
            verdict = "mapped"
    assert unpacked(simulator.state) == before, where
    if verdict in ("cannot", "mapping"):
        for one in found:
            assert one.why, where
            assert one.name, where
            _has_none(old, new, one, where)
        return verdict
    try:
        simulator.upgrade(new, mapping if verdict == "mapped" else {})
        if simulator.status == "running" and simulator.random.random() < 0.5:
            simulator.crash()
        simulator.run(5000)
        assert simulator.status in {"succeeded", "failed"}, simulator.status
        assert unpacked(simulator.replayed()) == unpacked(simulator.state)
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}") from error
    return verdict


def _has_none(old: Graph, new: Graph, obstacle: Obstacle, where: Any) -> None:
    """Check independently that the new flow has no equal step of the same name."""
    if obstacle.what != "step" or ":" in obstacle.name:  # the editor leaves subflows alone
        return
    if old.step_index(obstacle.name) < 0:
        assert new.step_index(obstacle.name) >= 0, (where, obstacle)
        return  # a new step whose result is missing
    before = old.node(old.step_index(obstacle.name))
    index = new.step_index(obstacle.name)
    if index < 0:
        return
    after = new.node(index)
    parts = ("action", "kind", "map", "loop", "lock", "join", "sources", "compensate", "effect",
             "named", "on_error", "split", "wait", "body", "set")  # fmt: skip
    assert any(getattr(before, part) != getattr(after, part) for part in parts), (where, obstacle)
