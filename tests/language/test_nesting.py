# Shows F21
"""The places of nested maps, counted without the kernel's counters (F21)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.stage import Stage


@pytest.mark.endurance
@pytest.mark.parametrize("places", [1, 2, 7])
def test_places_are_kept_in_nested_maps_whatever_waits(stage: Stage, places: int) -> None:
    """At most `places` items are at work at any time, and `busy` counts them at both levels."""
    text = f"""
steps:
  - id: outer
    map: {{over: 4, as: x, concurrency: {places}}}
    group:
      - id: inner
        map: {{over: 3, as: y, concurrency: 2}}
        group:
          - {{id: a, python: "tools:act"}}
          - {{id: w, wait: "${{{{ string(y + 1) + 's' }}}}"}}
          - {{id: b, python: "tools:act"}}
"""
    for seed in range(15):
        simulator = stage.simulator(text, seed=seed).start()
        while simulator.step():
            begun = [run.address for run in simulator.running.values() if "/a" in run.address]
            assert len({address.split("]")[0] for address in begun}) <= max(places, 1)
            for act in simulator.state["acts"].values():
                if "over" in act:
                    working = [n for n in act["units"] if _works(simulator.state, n)]
                    assert act["busy"] == len(working), (seed, simulator.now)
        assert simulator.status == "succeeded"


def _works(state: Any, unit: int) -> bool:
    """Return whether part of a unit is at work, without using the kernel's counters."""
    entry = state["units"][unit]
    if entry["phase"] != "scope":
        return entry["phase"] not in ("wait", "ask")
    scope = state["scopes"][entry["scope"]]
    return any(
        _works(state, inner) for act in scope["live"] for inner in state["acts"][act]["units"]
    )
