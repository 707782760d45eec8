"""Writes to state are visible after their scope, however that ends (S23)."""

from __future__ import annotations

import pytest

from tests.language.stage import Stage

HEAD = """
state: {x: {type: integer, default: 0}, log: {type: array, default: [], reducer: append}}
signals: {never: {}, go: {}}
outputs: {x: "${{ state.x }}", log: "${{ state.log }}"}
"""

AFTER = {
    "failed": """
steps:
  - id: g
    group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
    on_error: [{output: caught}]
  - {id: h, set: {x: 2}}
""",
    "failed, and its handler writes": """
steps:
  - id: g
    group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
    on_error: [{set: {x: 2}, output: caught}]
""",
    "failed inside a group that goes on": """
steps:
  - id: outer
    group:
      - id: g
        group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
        on_error: [{next: rest}]
      - {id: never_, set: {x: 9}, next: end}
      - {id: rest, set: {x: "${{ state.x + 1 }}"}}
""",
    "failed, two levels deep": """
steps:
  - id: outer
    group:
      - {id: inner, group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]}
    on_error: continue
  - {id: h, set: {x: 2}}
""",
    "timed out": """
steps:
  - id: g
    timeout: 1m
    group: [{id: a, set: {x: 1}}, {id: b, wait: {signal: never}}]
    on_error: continue
  - {id: h, set: {x: 2}}
""",
    "past its deadline": """
steps:
  - id: g
    deadline: 1m
    group: [{id: a, set: {x: 1}}, {id: b, wait: {signal: never}}]
    on_error: continue
  - {id: h, set: {x: 2}}
""",
    "tried again": """
steps:
  - id: g
    retry: {attempts: 2, only: [Oops]}
    group:
      - {id: a, set: {x: "${{ state.x + 1 }}"}}
      - {id: b, when: "${{ state.x < 2 }}", fail: {type: Oops, message: m, retryable: true}}
""",
    "ended by end_all": """
steps:
  - id: g
    group:
      - {id: s, next: {all: [a, b]}}
      - {id: a, group: [{id: a1, set: {x: 1}}, {id: a2, wait: {signal: never}}], next: end}
      - {id: b, wait: 1m, next: end_all}
  - {id: h, set: {x: 2}}
""",
    "cut by a join that cancels what is late": """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, group: [{id: a1, set: {x: 1}}, {id: a2, wait: {signal: never}}], next: j}
  - {id: b, wait: 1m, next: j}
  - {id: j, join: {need: 1, late: cancel}, set: {x: 2}}
""",
    "held at a join that is cut": """
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, set: {x: 1}, next: k}
  - {id: b, wait: 1m, next: j}
  - {id: c, wait: {signal: never}, next: k}
  - {id: k, join: all, next: j}
  - {id: j, join: {need: 1, late: cancel}, set: {x: 2}}
""",
    "cancelled by a step": """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, group: [{id: a1, set: {x: 1}}, {id: a2, wait: {signal: never}}], next: end}
  - {id: b, wait: 1m}
  - {id: c, cancel: [a], next: h}
  - {id: h, set: {x: 2}}
""",
    "cancelled from inside, as succeeded": """
steps:
  - id: g
    group: [{id: a, set: {x: 1}}, {id: c, cancel: {targets: [g], as: succeeded}}]
  - {id: h, set: {x: 2}}
""",
    "an item that failed": """
steps:
  - id: m
    map: {over: 1, on_item_error: continue}
    group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
  - {id: h, set: {x: 2}}
""",
    "an item that was withdrawn": """
steps:
  - id: m
    map: {over: 2, concurrency: 2, join: {need: 1, late: cancel}}
    group:
      - {id: a, when: "${{ index == 0 }}", set: {x: 1}}
      - {id: b, when: "${{ index == 0 }}", wait: {signal: never}}
  - {id: h, set: {x: 2}}
""",
    "items one after the other": """
steps:
  - {id: m, map: {over: 3, concurrency: 1}, set: {x: "${{ state.x + 1 }}"}}
  - {id: h, set: {x: "${{ state.x - 1 }}"}}
""",
    "groups of items one after the other, one of which failed": """
steps:
  - id: m
    map: {over: 3, concurrency: 1, on_item_error: continue}
    group:
      - {id: a, set: {x: "${{ state.x + 1 }}"}}
      - {id: b, when: "${{ index == 1 }}", fail: {type: Oops, message: m}}
  - {id: h, set: {x: "${{ state.x - 1 }}"}}
""",
    "the finally of a scope that succeeded": """
steps:
  - {id: g, group: [{id: a, set: {x: 1}}], finally: [{id: f, set: {x: "${{ state.x + 2 }}"}}]}
  - {id: h, set: {x: "${{ state.x - 1 }}"}}
""",
    "the finally of a scope that failed": """
steps:
  - id: g
    group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
    finally: [{id: f, set: {x: "${{ state.x + 2 }}"}}]
    on_error: [{set: {x: "${{ state.x - 1 }}"}, output: caught}]
""",
    "finallys inside one another": """
steps:
  - id: outer
    group:
      - id: inner
        group: [{id: a, set: {x: 1}}, {id: b, fail: {type: Oops, message: m}}]
        finally: [{id: f1, set: {x: "${{ state.x * 3 }}"}}]
    finally: [{id: f2, set: {x: "${{ state.x + 1 }}"}}]
    on_error: continue
  - {id: h, set: {x: "${{ state.x - 2 }}"}}
""",
    "the finally of what was cancelled as succeeded": """
steps:
  - id: g
    group: [{id: a, set: {x: 1}}, {id: c, cancel: {targets: [g], as: succeeded}}]
    finally: [{id: f, set: {x: "${{ state.x * 3 }}"}}]
  - {id: h, set: {x: "${{ state.x - 1 }}"}}
""",
    "the flow, which its own handler rescues": """
steps:
  - id: s
    next: {all: [a, b]}
  - {id: a, set: {x: 1}, next: w}
  - {id: w, wait: {signal: never}, next: end}
  - {id: b, wait: 1m}
  - {id: c, fail: {type: Oops, message: m}}
  - {id: rest, set: {x: "${{ state.x - 1 }}"}}
on_error: [{set: {x: "${{ state.x + 2 }}"}, next: rest}]
""",
    "a failed branch that wrote under a lock": """
steps:
  - {id: s, next: {all: [b, c]}}
  - {id: b, wait: 1m, next: b1}
  - {id: b1, lock: l, set: {x: 1}, next: j}
  - {id: c, lock: l, set: {x: 5}, next: j}
  - {id: j, join: all, set: {x: 2}}
""",
}


@pytest.mark.parametrize("how", AFTER)
def test_the_next_write_is_no_conflict(stage: Stage, how: str) -> None:
    for seed in range(4):
        played = stage.simulate(HEAD + AFTER[how], seed=seed)
        assert (played.status, played.error) == ("succeeded", None)
        assert (played.outputs or {})["x"] == 2
    outputs = stage.run(HEAD + AFTER[how]).outputs
    assert outputs is not None
    assert outputs["x"] == 2


def test_the_finally_of_a_flow_writes_what_a_withdrawn_branch_wrote(stage: Stage) -> None:
    text = """
state: {x: {type: integer, default: 0}}
signals: {never: {}}
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, set: {x: 1}, next: w}
  - {id: w, wait: {signal: never}, next: end}
  - {id: b, wait: 1m}
  - {id: c, fail: {type: Oops, message: m}}
finally: [{id: f, set: {x: "${{ state.x + 1 }}"}}]
"""
    played = stage.simulate(text)
    assert played.error is not None
    assert played.error["type"] == "Oops"
    assert played.state["vars"]["x"][0] == 2


PARALLEL = {
    "a branch that ended before": """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, set: {x: 1}, next: end}
  - {id: b, wait: 1m}
  - {id: h, set: {x: 2}}
""",
    "a branch beside a race": """
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, set: {x: 1}, next: end}
  - {id: b, wait: 1m, next: j}
  - {id: c, wait: {signal: never}, next: j}
  - {id: j, join: {need: 1, late: cancel}, set: {x: 2}}
""",
    "a branch beside what is cancelled": """
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, set: {x: 1}, next: end}
  - {id: b, wait: {signal: never}, next: end}
  - {id: c, wait: 1m}
  - {id: d, cancel: [b]}
  - {id: e, set: {x: 2}}
""",
    "a branch beside a group that failed": """
steps:
  - {id: s, next: {all: [a, g]}}
  - {id: a, set: {x: 1}, next: end}
  - id: g
    group: [{id: g1, wait: 1m}, {id: g2, fail: {type: Oops, message: m}}]
    on_error: continue
  - {id: h, set: {x: 2}}
""",
    "another item at work": """
steps:
  - id: m
    map: {over: 3, concurrency: 2}
    group:
      - {id: a, when: "${{ index != 1 }}", set: {x: 1}}
      - {id: b, when: "${{ index == 0 }}", wait: 1m}
""",
    "a map that has gone on": """
steps:
  - id: m
    map: {over: 2, concurrency: 2, join: {need: 1, late: ignore}}
    group:
      - {id: a, when: "${{ index == 0 }}", wait: 1m}
      - {id: b, when: "${{ index == 0 }}", set: {x: 1}}
  - {id: w, wait: 2m}
  - {id: h, set: {x: 2}}
""",
}


@pytest.mark.parametrize("how", PARALLEL)
def test_what_runs_at_the_same_time_still_conflicts(stage: Stage, how: str) -> None:
    """This includes steps that have ended: conflicts between writes do not depend on timing."""
    for seed in range(4):
        error = stage.simulate(HEAD + PARALLEL[how], seed=seed).error
        assert error is not None, how
        errors = [error, *((one["error"]) for one in (error.get("data") or {}).get("failed", ()))]
        assert "StateConflict" in [one["type"] for one in errors]
