# Shows F24
"""Properties of random flows, drawn by Hypothesis and minimized when they fail (F24).

A failing flow is written to `kept/`. All flows there are run again in every test run, in many
orders and with crashes.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.errors import FlowFileError
from flowengine.flow.check import net as nets
from flowengine.flow.check import token_game
from flowengine.flow.compile import compile_text
from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.specs import CompiledFlow
from scripts.mutate.forks import MUTANT
from tests.flow.verdicts import compiled_if_accepted
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Simulator
from tests.sliced_examples import sliced
from tests.testing.disturbed import check
from tests.testing.random_tangles import tangled_flow
from tests.testing.stalls import find_stall, play_example, play_stall, refused
from tests.testing.strategies import flows, graphs, schedules, tangled_flows

KEPT = Path(__file__).parent / "kept"
FILES = sorted(KEPT.glob("*.yaml"))
BROKEN = Path(__file__).parents[1] / "flow" / "broken"
STUCK = sorted(BROKEN.glob("e207_*.yaml"))


def keep(flow: dict[str, Any], holds: Callable[[], object]) -> None:
    """Check a property, and store the flow if it fails."""
    try:
        holds()
    except AssertionError:
        if MUTANT not in os.environ:
            text = json.dumps(flow, indent=1)
            (KEPT / f"{sha256(text.encode()).hexdigest()[:8]}.yaml").write_text(f"{text}\n")
        raise


def compiled(flow: dict[str, Any] | str) -> CompiledFlow | None:
    text = flow if isinstance(flow, str) else json.dumps(flow)
    accepted = compiled_if_accepted(text, Path(__file__).parent)  # `tools` is in that folder
    return accepted.flow if accepted else None


@sliced(examples=20)
@given(st.booleans().flatmap(lambda wild: flows(wild=wild)), schedules())
def test_accepted_flows_end_and_keep_all_properties(
    flow: dict[str, Any], chance: random.Random
) -> None:
    accepted = compiled(flow)
    if accepted is not None:
        keep(flow, lambda: check(accepted, chance))


@sliced(examples=20)
@given(tangled_flows(), schedules())
def test_what_the_checker_accepts_of_tangled_flows_never_stalls(
    flow: dict[str, Any], chance: random.Random
) -> None:
    accepted = compiled(flow)
    if accepted is not None and not is_warned_of(flow):
        keep(flow, lambda: check(accepted, chance))


def is_warned_of(flow: dict[str, Any]) -> bool:
    """Return whether a warning predicts that a token may wait forever for a write to state."""
    if not any("state" in step.get("trigger", {}) for step in flow["steps"]):
        return False
    return any(one.code == "W412" for one in compile_text(json.dumps(flow)).diagnostics)


@sliced(examples=20)
@given(graphs(), schedules())
def test_the_kernel_keeps_its_properties_on_any_graph(graph: Graph, chance: random.Random) -> None:
    def task(_run: Run) -> Any:
        if chance.random() < 0.15:
            raise Fails("Drawn", retryable=chance.random() < 0.5)
        return chance.randrange(10)

    script = {step["id"]: task for step in graph.flow["steps"]}
    played = Simulator(graph, script).start()
    for number in range(300):
        can = played.possible()
        draw = chance.random()
        if played.status in ENDED:
            break
        if draw < 0.1:
            played.crash()
        elif draw < 0.2 or not can:
            played.send("s", chance.randrange(9), id=str(number))
        else:
            played.let(can[chance.randrange(len(can))])
    check_over(played)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_flows_that_once_failed_keep_all_properties(path: Path) -> None:
    flow = compiled(path.read_text())
    if flow is None:
        return  # the checker now rejects it
    for seed in range(30):
        check(flow, random.Random(seed))


# Flows rejected as stuck


def is_exact(flow: CompiledFlow) -> bool:
    """Return whether the checker's analysis was complete in all scopes."""
    cancels = nets.cancellations(flow)
    bodies = range(len(flow["bodies"]))
    return all(
        token_game.play(nets.compress(nets.build(flow, b, cancels))).complete for b in bodies
    )


def runs_all_flows(drawn: dict[str, Any]) -> bool:
    """Return whether a flow runs all flows of its file as subflows."""
    flows = drawn.get("flows", {})
    found: set[str] = set()
    pending = [drawn["steps"]]
    while pending:
        called = set(_called(pending.pop())) - found
        found |= called
        pending += [flows[name]["steps"] for name in called]
    return found == set(flows)


def _called(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "flow" in node and not node.get("background"):
            yield node["flow"]
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            yield from _called(one)


@pytest.mark.parametrize("path", STUCK, ids=lambda path: path.stem)
def test_the_kernel_gets_stuck_where_the_checker_says_so(path: Path) -> None:
    flow, codes = refused(path.read_text())

    assert flow is not None
    assert set(codes) == {"E207"}
    stall = find_stall(flow)
    assert stall.run is not None, stall.told()
    assert play_stall(flow, stall).status == "stalled"


def examples(text: str) -> list[str]:
    """Return the example runs in the errors of a flow."""
    with pytest.raises(FlowFileError) as refusal:
        compile_text(text)
    told = [one.message for one in refusal.value.diagnostics if one.code == "E207"]
    return [message.split("; for example: ")[1] for message in told if "for example" in message]


@pytest.mark.parametrize("path", STUCK, ids=lambda path: path.stem)
def test_the_example_of_an_error_can_be_played(path: Path) -> None:
    flow, _ = refused(path.read_text())

    assert flow is not None
    for example in examples(path.read_text()):
        played = play_example(flow, example)
        assert played is not None, example
        assert played.status == "stalled"


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_examples_of_random_flows_can_be_played(block: int) -> None:
    """For the checker, maps have any number of items, and cancellation is possible at any time."""
    played = 0
    for seed in range(block, 4000, 10):
        if played:
            break
        text = json.dumps(_tangled(seed, topics=0))
        if '"map"' in text or '"cancel"' in text:
            continue
        flow, codes = refused(text)
        if flow is None or set(codes) != {"E207"}:
            continue
        for example in examples(text):
            assert play_example(flow, example) is not None, (seed, example)
            played += 1
    assert played


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_the_stuck_run_of_refused_flows_is_found(block: int) -> None:
    """If the checker's analysis is complete. Beyond its limits, it rejects as a precaution."""
    exact = 0
    for seed in range(block, 600, 10):
        drawn = _tangled(seed)
        if not runs_all_flows(drawn):
            continue  # the error may be in a flow that is never run
        flow, codes = refused(json.dumps(drawn))
        if flow is None or set(codes) != {"E207"} or not is_exact(flow):
            continue
        exact += 1
        stall = find_stall(flow)
        assert stall.run is not None, (seed, stall.told())
        assert play_stall(flow, stall).status == "stalled"
    assert exact


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_no_stuck_run_is_found_in_what_the_checker_accepts(block: int) -> None:
    for seed in range(block, 60, 10):
        flow = compiled(_tangled(seed))
        if flow is not None:
            assert find_stall(flow, limit=30).run is None, seed


def _tangled(seed: int, topics: int = 3) -> dict[str, Any]:
    return tangled_flow(random.Random(seed), most=5, topics=topics)
