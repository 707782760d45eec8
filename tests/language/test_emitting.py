"""`emit`: a step sends signals to its own execution (docs/language.md: emit)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage, Text

ITEMS = """
signals: {page: {data: {type: object, properties: {n: {type: integer}}, required: [n]}}}
steps:
  - {id: begin, next: {all: [read, collect]}}
  - id: read
    map: {over: 3, as: n}
    python: "tools:count"
    with: {value: "${{ n }}"}
    emit: {signal: page, data: {n: "${{ output }}"}}
    next: end
  - {id: collect, wait: {signal: page, count: 3}, next: end}
outputs: {n: "${{ steps.collect.output.map(m, m.n) }}"}
"""


def test_each_item_sends_when_it_is_done(stage: Stage) -> None:
    found = set()
    for played in stage.orders(ITEMS):
        outputs = played.state["outputs"]
        assert outputs is not None
        assert sorted(outputs["n"]) == [0, 1, 2]
        found.add(tuple(outputs["n"]))
    assert len(found) > 1, "in the order in which they ended"
    assert sorted((stage.run(ITEMS).outputs or {})["n"]) == [0, 1, 2]


def test_what_is_sent_before_somebody_waits_is_kept_in_order(stage: Stage) -> None:
    """A plain name, a mapping, and a list. Signals of one step keep their order."""
    text = """
signals: {go: {}, item: {}}
steps:
  - {id: a, emit: [go, {signal: item, data: 1}, {signal: item, data: 2}]}
  - {id: b, emit: {signal: item, data: 3}}
  - {id: c, wait: {signal: item, count: 3}}
  - {id: d, wait: {first: [{id: item, signal: item}, {id: go, signal: go}]}}
outputs: {c: "${{ steps.c.output }}", d: "${{ steps.d.outcome }}"}
"""
    assert stage.play(text).outputs == {"c": [1, 2, 3], "d": "go"}


def test_the_oldest_of_several_signals_of_one_step_is_taken_first(stage: Stage) -> None:
    text = """
signals: {x: {}, y: {}}
steps:
  - {id: a, emit: [y, x]}
  - {id: w, wait: {first: [{id: x, signal: x}, {id: y, signal: y}]}}
outputs: {w: "${{ steps.w.outcome }}"}
"""
    assert stage.play(text).outputs == {"w": "y"}


def test_it_is_delivered_before_next_is_followed(stage: Stage) -> None:
    """A transient message is gone before the next step could wait for it (S18)."""
    text = """
signals: {s: {}}
steps:
  - {id: a, emit: s}
  - {id: w, wait: {signal: s, transient: true}, timeout: 1m,
     next: {outcome: {ok: end, timeout: end}}}
outputs: {w: "${{ steps.w.outcome }}"}
"""
    assert stage.play(text).outputs == {"w": "timeout"}


def test_it_sees_the_output_and_the_state_after_set(stage: Stage) -> None:
    text = """
signals: {s: {}}
state: {n: {type: integer, default: 1, reducer: add}}
steps:
  - {id: a, output: 5, set: {n: 2}, emit: {signal: s, data: ["${{ output }}", "${{ state.n }}"]}}
  - {id: w, wait: {signal: s}}
outputs: {w: "${{ steps.w.output.data }}"}
"""
    assert stage.play(text).outputs == {"w": [5, 3]}


def test_it_is_sent_after_success_only_and_a_handler_sends_its_own(stage: Stage) -> None:
    text = """
signals: {done: {}, failed: {}}
steps:
  - id: a
    python: "tools:act"
    emit: done
    on_error: [{emit: {signal: failed, data: "${{ error.type }}"}, next: w}]
    next: w
  - {id: w, wait: {first: [{id: done, signal: done}, {id: failed, signal: failed}]}}
outputs: {w: "${{ steps.w.outcome }}", data: "${{ steps.w.output.data }}"}
"""
    assert stage.play(text).outputs == {"w": "done", "data": None}
    failing = stage.play(text, {"a": Fails("Broken")})
    assert failing.outputs == {"w": "failed", "data": "Broken"}


def test_every_round_sends(stage: Stage) -> None:
    text = """
signals: {s: {}}
steps:
  - {id: a, loop: {until: "${{ round.number == 3 }}", max: 5}, output: "${{ round.number }}",
     emit: {signal: s, data: "${{ output }}"}}
  - {id: w, wait: {signal: s, count: 3}}
outputs: {w: "${{ steps.w.output }}"}
"""
    assert stage.play(text).outputs == {"w": [1, 2, 3]}


def test_the_id_of_a_message_is_the_same_on_every_replay(stage: Stage) -> None:
    text = """
signals: {s: {}}
steps:
  - {id: a, python: "tools:act", emit: s}
  - {id: b, emit: s}
  - id: w
    wait: {first: [{id: one, signal: s, match: "${{ signal.id == '' }}"}, {id: on, for: 1s}]}
"""
    ids = set()
    for _ in range(2):
        simulator = stage.simulator(text).start()
        simulator.finish("a")
        kept: Any = simulator.state["kept"]["s"]
        assert [one["sent_by"] for one in kept] == ["execution:simulated"] * 2
        ids.add(tuple(one["id"] for one in kept))
    [(first, second)] = ids
    assert first != second


def test_data_that_does_not_fit_fails_the_step_and_nothing_is_sent(stage: Stage) -> None:
    text = """
inputs: {n: {}}
signals: {s: {data: {type: integer}}}
steps:
  - {id: a, emit: [{signal: s, data: 1}, {signal: s, data: "${{ inputs.n }}"}]}
  - {id: w, wait: {signal: s, count: 2}}
outputs: {w: "${{ steps.w.output }}"}
"""
    assert stage.run(text, {"n": 7}).outputs == {"w": [1, 7]}
    result = stage.run(text, {"n": "seven"})
    assert result.error is not None
    assert (result.error["type"], result.error["step"]) == ("ValidationError", "a")
    assert "signal 's'" in result.error["message"]


def test_a_map_can_add_items_to_itself_but_not_for_ever_at_once(stage: Stage) -> None:
    """A crawler ends with its last page. An endless one is stopped by `limits.steps`."""
    text = """
signals: {page: {data: {type: integer}}}
limits: {steps: 40}
state: {seen: {type: integer, default: 0, reducer: add}}
steps:
  - id: crawl
    map: {over: [1], as: n, more: page}
    group:
      - {id: read, next: {first: [{when: "${{ n LIMIT }}", to: link}, {else: end}]}}
      - {id: link, emit: {signal: page, data: "${{ n + 1 }}"}, next: end}
    output: "${{ n }}"
outputs: {pages: "${{ steps.crawl.output }}"}
"""
    assert stage.play(text.replace("LIMIT", "< 5")).outputs == {"pages": [1, 2, 3, 4, 5]}
    error = stage.play(text.replace("LIMIT", "> 0")).error
    assert error is not None
    assert error["data"]["failed"][0]["error"]["type"] == "LimitExceeded"


@pytest.mark.parametrize(
    ("emit", "code"),
    [
        ("nobody", "E401"),
        ("{signal: s, data: text}", "E103"),
        ("s", "E103"),
        ('{signal: s, data: "${{ outputs }}"}', "E301"),
        ("{signal: s, data: 1, to: all}", "E103"),
    ],
)
def test_what_is_wrong_is_refused_before_it_runs(stage: Stage, emit: str, code: str) -> None:
    text: Text = f"""
signals: {{s: {{data: {{type: integer}}}}}}
steps:
  - {{id: a, emit: {emit}}}
  - {{id: w, wait: {{signal: s}}}}
"""
    with pytest.raises(FlowFileError) as refused:
        stage.compile(text)
    assert [one.code for one in refused.value.diagnostics] == [code]
