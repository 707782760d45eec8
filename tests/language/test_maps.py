"""Maps: one run per item, bounded concurrency, order, failures (F21, F85, F89, F22)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Call, Stage, statuses

SQUARES = """
inputs: {numbers: {type: array, items: {type: integer}}}
steps:
  - id: square
    map: {over: "${{ inputs.numbers }}", as: n, concurrency: 3}
    python: "tools:count"
    with: {value: "${{ n * n }}"}
outputs: {squares: "${{ steps.square.output }}"}
"""


@pytest.mark.parametrize("numbers", [[], [7], [3, 1, 2], list(range(20))])
def test_outputs_are_in_the_order_of_the_items_however_they_end(
    stage: Stage, numbers: list[int]
) -> None:
    stage.world.order = [f"square[{i}]" for i in range(len(numbers) - 1, -1, -1)][-3:]
    outcome = stage.play(SQUARES, inputs={"numbers": numbers})
    assert outcome.outputs == {"squares": [n * n for n in numbers]}
    if len(numbers) == 3:
        assert stage.world.ended == ["square[2]", "square[1]", "square[0]"]


@pytest.mark.parametrize("over", ["0", '"${{ 0 }}"', '"${{ [] }}"', "[]"])
def test_map_over_nothing_gives_an_empty_list_and_goes_on(stage: Stage, over: str) -> None:
    text = f"""
steps:
  - {{id: m, map: {over}, python: "tools:act", next: after}}
  - {{id: after, output: "${{{{ steps.m.items }}}}"}}
outputs: {{m: "${{{{ steps.m.output }}}}", items: "${{{{ steps.after.output }}}}"}}
"""
    assert stage.play(text).outputs == {"m": [], "items": []}
    assert stage.world.started == []


def test_number_n_goes_over_0_to_n_minus_1(stage: Stage) -> None:
    text = """
steps:
  - {id: m, map: 4, output: ["${{ item }}", "${{ index }}", "${{ key }}"]}
outputs: {m: "${{ steps.m.output }}"}
"""
    assert stage.play(text).outputs == {"m": [[n, n, str(n)] for n in range(4)]}


@pytest.mark.parametrize("over", [3.0, -1, True, {"a": 1}, "abc", None])
def test_what_is_no_list_and_no_number_of_items_is_refused(stage: Stage, over: Any) -> None:
    text = """
inputs: {over: {}}
steps:
  - {id: m, map: "${{ inputs.over }}", python: "tools:act"}
"""
    outcome = stage.play(text, inputs={"over": over})
    assert outcome.error is not None
    assert outcome.error["type"] == "ValidationError"
    assert "'map.over' of 'm' is" in outcome.error["message"]


# Concurrency, by events


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (100, 10)])
def test_at_most_so_many_items_run_at_once(stage: Stage, concurrency: int, most: int) -> None:
    text = f"""
steps:
  - {{id: m, map: {{over: 10, concurrency: {concurrency}}}, python: "tools:act"}}
"""
    stage.run(text)
    assert stage.world.most == most
    for seed in range(5):
        simulator = stage.simulator(text, seed=seed).start()
        counts = [len(simulator.running)]
        while simulator.step():
            counts.append(len(simulator.running))
        assert max(counts) == most


def test_an_item_that_takes_long_holds_one_place_only(stage: Stage) -> None:
    text = """
steps:
  - {id: m, map: {over: 6, concurrency: 2}, python: "tools:act", with: {value: "${{ item }}"}}
outputs: {m: "${{ steps.m.output }}"}
"""
    stage.world.order = [*[f"m[{i}]" for i in range(1, 6)], "m[0]"]
    assert stage.run(text).outputs == {"m": list(range(6))}
    assert stage.world.ended == stage.world.order


def test_concurrency_is_computed_and_has_a_default(stage: Stage) -> None:
    text = """
inputs: {c: {type: integer}}
defaults: {map_concurrency: 2}
steps:
  - {id: a, map: {over: 9, concurrency: "${{ inputs.c }}"}, python: "tools:act"}
  - {id: b, map: 9, python: "tools:act"}
"""
    simulator = stage.simulator(text).start({"c": 5})
    assert len(simulator.running) == 5
    while simulator.started[-1].startswith("a"):
        simulator.step()
    assert len(simulator.running) == 2
    assert stage.play(text, inputs={"c": 0}).error_type == "ValidationError"


# Failures

FAILING = """
inputs: {{policy: {{}}}}
steps:
  - id: m
    map: {{over: 5, concurrency: {concurrency}, on_item_error: {policy}{more}}}
    python: "tools:act"
    with: {{value: "${{{{ item }}}}"}}
    next: after
    on_error: [{{type: MapFailed, next: after}}]
  - {{id: after, output: "${{{{ steps.m.items }}}}"}}
outputs:
  m: ${{{{ steps.m.output }}}}
  items: ${{{{ steps.after.output }}}}
  status: ${{{{ steps.m.status }}}}
  error: ${{{{ steps.m.error }}}}
"""


def _fails_at(*positions: int) -> dict[str, Any]:
    return {f"m[{i}]": Fails("Broken", f"no {i}", retryable=False) for i in positions}


def _failing(policy: str, concurrency: int, more: str = "") -> str:
    return FAILING.format(policy=policy, concurrency=concurrency, more=more)


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("concurrency", [1, 5])
def test_failing_item_lets_the_others_end_where_the_map_waits_or_continues(
    stage: Stage, position: int, concurrency: int
) -> None:
    for policy, status in (("wait", "failed"), ("continue", "succeeded")):
        outcome = stage.play(_failing(policy, concurrency), _fails_at(position), {"policy": policy})
        rest = [i for i in range(5) if i != position]
        items = outcome.outputs["items"]
        assert outcome.outputs["status"] == status
        assert [row["output"] for row in items] == [i if i in rest else None for i in range(5)]
        assert [row["status"] for row in items] == [
            "succeeded" if i in rest else "failed" for i in range(5)
        ]
        assert items[position]["error"]["message"] == f"no {position}"
        assert items[position]["key"] == str(position)
        if policy == "continue":
            assert outcome.outputs["m"] == [row["output"] for row in items]
        else:
            error = outcome.outputs["error"]
            assert (error["type"], error["step"]) == ("MapFailed", "m")
            assert error["data"]["succeeded"] == 4
            [failed] = error["data"]["failed"]
            assert (failed["key"], failed["index"]) == (str(position), position)
            assert failed["error"]["type"] == "Broken"


@pytest.mark.parametrize("position", range(5))
def test_failing_item_stops_the_others_at_once(stage: Stage, position: int) -> None:
    text = _failing("stop", 5)
    stage.world.script = _fails_at(position)
    stage.world.held = {f"m[{i}]" for i in range(5) if i != position}
    result = stage.run(text, {"policy": None})
    assert result.outputs is not None
    assert sorted(stage.world.withdrawn) == sorted(stage.world.held)
    assert result.outputs["status"] == "failed"
    assert [row["status"] for row in result.outputs["items"]] == [
        "failed" if i == position else "cancelled" for i in range(5)
    ]
    for played in stage.orders(text, _fails_at(position), {"policy": None}):
        state = played.state
        assert state["outputs"] is not None
        data = state["outputs"]["error"]["data"]
        assert [one["index"] for one in data["failed"]] == [position]
        done = [row for row in state["outputs"]["items"] if row["status"] == "succeeded"]
        assert data["succeeded"] == len(done)


def test_with_one_place_the_items_behind_a_failing_one_never_begin(stage: Stage) -> None:
    simulator = stage.simulate(_failing("stop", 1), _fails_at(2), {"policy": None})
    assert simulator.started == ["m[0]", "m[1]", "m[2]"]
    assert simulator.state["outputs"] is not None
    assert [row["status"] for row in simulator.state["outputs"]["items"]] == [
        *["succeeded"] * 2, "failed", "none", "none",
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["wait", "continue"])
@pytest.mark.parametrize(("bears", "failing", "fails"), [(2, 2, False), (2, 3, True)])
@pytest.mark.parametrize("unit", ["", "%"])
def test_one_failure_more_than_the_map_bears_stops_it(
    stage: Stage, policy: str, bears: int, failing: int, fails: bool, unit: str
) -> None:
    given = f'"{bears * 20}%"' if unit else str(bears)
    text = _failing(policy, 1, f", max_failures: {given}")
    outcome = stage.play(text, _fails_at(*range(failing)), {"policy": None})
    failed = fails or policy == "wait"
    assert outcome.outputs["status"] == ("failed" if failed else "succeeded")
    begun = [row for row in outcome.outputs["items"] if row["status"] != "none"]
    assert len(begun) == (failing if fails else 5)


def test_no_failure_is_borne_where_max_failures_is_0(stage: Stage) -> None:
    text = _failing("continue", 1, ", max_failures: 0")
    assert stage.play(text, _fails_at(4), {"policy": None}).outputs["status"] == "failed"


def test_failed_map_can_be_gone_on_from_without_its_output(stage: Stage) -> None:
    text = """
steps:
  - {id: m, map: 2, python: "tools:act", on_error: continue, next: after}
  - {id: after, output: "${{ [steps.m.status, string(steps.m.output == null)] }}"}
outputs: {after: "${{ steps.after.output }}"}
"""
    assert stage.play(text, _fails_at(1)).outputs == {"after": ["failed", "true"]}


def test_handler_for_an_error_of_an_item_on_the_mapped_step_is_an_error(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: 2
    http: {url: "https://example.com"}
    on_error: [{type: HttpError, output: none}]
"""
    with pytest.raises(FlowFileError, match=r"E210.*'HttpError' cannot occur at 'm'"):
        stage.compile(text)


def test_error_of_one_item_is_handled_inside_a_group(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: 3
    group:
      - id: get
        python: "tools:act"
        with: {value: "${{ item }}"}
        on_error: [{type: Broken, output: "${{ 'none for ' + key }}"}]
outputs: {m: "${{ steps.m.output }}"}
"""
    script = {"m[1]/get": Fails("Broken", retryable=False)}
    assert stage.play(text, script).outputs == {"m": [0, "none for 1", 2]}


# Errors in the expressions of an item


@pytest.mark.parametrize(
    "where",
    [
        'output: "${{ 10 / item }}"',
        'set: {total: "${{ 10 / item }}"}',
        'python: "tools:act"\n    with: {value: "${{ 10 / item }}"}',
        'timeout: "${{ string(10 / item) + \'s\' }}"\n    python: "tools:act"',
        'loop: {until: "${{ 10 / item > 0 }}", max: 2}',
        'loop: {while: "${{ 10 / item < 0 }}", max: 2}',
        'loop: {until: "${{ true }}", max: "${{ 10 / item }}"}',
        "wait: {for: \"${{ string(10 / item) + 'ms' }}\"}",
    ],
)
def test_expression_that_fails_for_one_item_fails_that_item_only(stage: Stage, where: str) -> None:
    text = f"""
state: {{total: {{type: integer, default: 0, reducer: add}}}}
steps:
  - id: m
    map: {{over: "${{{{ [5, 0, 2] }}}}", on_item_error: continue}}
    {where}
    next: after
  - {{id: after, output: "${{{{ steps.m.items }}}}"}}
outputs: {{items: "${{{{ steps.after.output }}}}", total: "${{{{ state.total }}}}"}}
"""
    simulator = stage.simulate(text, order="first")
    assert simulator.state["outputs"] is not None
    items = simulator.state["outputs"]["items"]
    assert [row["status"] for row in items] == ["succeeded", "failed", "succeeded"]
    assert items[1]["error"]["type"] == "ExpressionError"
    assert items[1]["error"]["step"].startswith("m[1]")
    assert simulator.state["outputs"]["total"] == (7 if "set" in where else 0)


@pytest.mark.parametrize("key", ["${{ item.id }}", "${{ 1 / item.n }}", "${{ item.nothing }}"])
def test_keys_that_are_no_keys_fail_the_map_before_any_item(stage: Stage, key: str) -> None:
    text = f"""
inputs: {{rows: {{type: array}}}}
steps:
  - {{id: m, map: {{over: "${{{{ inputs.rows }}}}", key: "{key}"}}, python: "tools:act"}}
"""
    rows = [{"id": "a", "n": 1}, {"id": "a", "n": 0}]
    outcome = stage.play(text, inputs={"rows": rows})
    assert outcome.error_type in {"ValidationError", "ExpressionError"}
    assert outcome.error is not None
    assert outcome.error["step"] == "m"
    assert stage.world.started == []


def test_keys_name_items_in_addresses_and_lists(stage: Stage) -> None:
    text = """
inputs: {rows: {type: array}}
steps:
  - id: m
    map: {over: "${{ inputs.rows }}", as: row, key: "${{ row.id }}"}
    group:
      - {id: a, python: "tools:act", with: {value: "${{ row_key + string(row_index) }}"}}
outputs: {m: "${{ steps.m.output }}"}
"""
    rows = [{"id": "x.pdf"}, {"id": "y.pdf"}]
    assert stage.play(text, inputs={"rows": rows}).outputs == {"m": ["x.pdf0", "y.pdf1"]}
    assert sorted(stage.world.started) == ["m[x.pdf]/a", "m[y.pdf]/a"]


# Maps that end early

EARLY = """
steps:
  - id: m
    map: {{over: 4, concurrency: 4, join: {{need: 2, late: {late}}}}}
    python: "tools:act"
    with: {{value: "${{{{ item }}}}"}}
    next: after
  - id: after
    python: "tools:act"
    with: {{value: "${{{{ steps.m.items }}}}"}}
outputs: {{m: "${{{{ steps.m.output }}}}", items: "${{{{ steps.after.output }}}}"}}
"""


def test_map_done_early_withdraws_the_rest(stage: Stage) -> None:
    stage.world.order = ["m[3]", "m[1]"]
    stage.world.held = {"m[0]", "m[2]"}
    result = stage.run(EARLY.format(late="cancel"))
    assert result.outputs is not None
    assert result.outputs["m"] == [None, 1, None, 3]
    assert [row["status"] for row in result.outputs["items"]] == [
        "cancelled", "succeeded", "cancelled", "succeeded",
    ]  # fmt: skip
    assert sorted(stage.world.withdrawn) == ["m[0]", "m[2]"]


def test_map_done_early_lets_the_rest_end_and_keeps_the_scope_open(stage: Stage) -> None:
    stage.world.order = ["m[3]", "m[1]", "after", "m[0]", "m[2]"]
    result = stage.run(EARLY.format(late="ignore"))
    assert result.outputs is not None
    assert stage.world.ended == stage.world.order
    assert result.outputs["m"] == [None, 1, None, 3]
    assert [row["status"] for row in result.outputs["items"]] == [
        "running", "succeeded", "running", "succeeded",
    ]  # fmt: skip


def test_items_that_are_late_and_fail_change_nothing(stage: Stage) -> None:
    script = {"m[0]": Fails("Broken", retryable=False)}
    for simulator in stage.orders(EARLY.format(late="ignore"), script, most=30):
        assert simulator.status == "succeeded"
        assert simulator.state["outputs"] is not None
        assert len([o for o in simulator.state["outputs"]["m"] if o is not None]) == 2


@pytest.mark.parametrize("late", ["ignore", "cancel"])
def test_map_that_cannot_get_enough_says_which_items_came(stage: Stage, late: str) -> None:
    text = EARLY.format(late=late).replace("need: 2", "need: 3")
    script = _fails_at(0, 2)
    for played in stage.orders(text, script, most=20):
        state = played.state
        assert state["error"] is not None
        assert state["error"]["type"] == "TooFew"
        assert set(state["error"]["data"]["from"]) <= {"1", "3"}
        assert state["error"]["step"] == "m"


@pytest.mark.parametrize("need", [2, 5])
def test_map_with_fewer_items_than_needed_has_too_few(stage: Stage, need: int) -> None:
    text = EARLY.format(late="ignore").replace("over: 4", 'over: "${{ range(1) }}"')
    outcome = stage.play(text.replace("need: 2", f"need: {need}"))
    assert outcome.error is not None
    assert (outcome.error_type, outcome.error["data"]["from"]) == ("TooFew", ["0"])


def test_way_on_that_fails_while_items_still_run_withdraws_them(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: {over: 3, join: {need: 1, late: ignore}}
    python: "tools:act"
    next: {first: [{when: "${{ 1 / size(output) == 7 && output[9] == 0 }}", to: end}]}
    on_error: [{type: NoBranch, next: end}, {type: ExpressionError, next: after}]
  - {id: after, output: "${{ steps.m.status }}"}
outputs: {after: "${{ steps.after.output }}"}
"""
    assert {played.status for played in stage.orders(text)} == {"succeeded"}


# Writes


def test_items_write_state_in_their_order_when_the_map_ends(stage: Stage) -> None:
    text = """
state:
  notes: {type: array, items: {type: string}, default: [], reducer: append}
  total: {type: integer, default: 100, reducer: add}
steps:
  - id: m
    map: {over: "${{ ['a', 'b', 'c', 'd'] }}", on_item_error: continue}
    python: "tools:label"
    with: {value: "${{ item }}"}
    set: {notes: "${{ output + string(size(state.notes)) }}", total: "${{ index }}"}
outputs: {notes: "${{ state.notes }}", total: "${{ state.total }}"}
"""
    outcome = stage.play(text, {"m[2]": Fails("Broken", retryable=False)}, most=30)
    assert outcome.outputs == {"notes": ["a0", "b0", "d0"], "total": 104}


def test_items_write_through_a_reducer_in_python(stage: Stage) -> None:
    text = """
state:
  longest: {type: string, default: "", reducer: {python: "tools:longer"}}
steps:
  - id: m
    map: {over: "${{ ['aa', 'b', 'cc'] }}"}
    python: "tools:label"
    with: {value: "${{ item }}"}
    set: {longest: "${{ output }}"}
outputs: {longest: "${{ state.longest }}"}
"""
    assert stage.play(text).outputs == {"longest": "aa"}


ENDINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "deadline": ({"deadline": "1h", "on_error": [{"type": "Deadline", "next": "end"}]}, {}),
    "failure": ({"on_error": [{"type": "MapFailed", "next": "end"}]}, {}),
    "cancel": ({}, {"cancel": ["m"]}),
    "as succeeded": ({}, {"cancel": {"targets": ["m"], "as": "succeeded"}}),
    "end_all": ({}, {"next": "end_all"}),
    "early": ({"map": {"over": 3, "join": {"need": 2, "late": "cancel"}}}, {}),
    "late items": ({"map": {"over": 3, "join": {"need": 1, "late": "ignore"}}}, {"cancel": ["m"]}),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_items_have_written_stays_in_whatever_way_the_map_ends(
    stage: Stage, ending: str
) -> None:
    ways, other = ENDINGS[ending]
    mapped = {"id": "m", "map": 3, "python": "tools:act", "next": "end", **ways}
    flow = {
        "state": {"seen": {"type": "array", "default": [], "reducer": "append"}},
        "steps": [
            {"id": "s", "next": {"all": ["m", "pause"]}},
            {**mapped, "set": {"seen": "${{ index }}"}},
            {"id": "pause", "wait": "1m", "next": "other"},
            {"id": "other", "next": "end", **other},
        ],
        "outputs": {"seen": "${{ state.seen }}"},
    }
    stage.world.held = {"m[1]"} if ending != "failure" else set()
    stage.world.script = {"m[1]": Fails("Broken", retryable=False)}
    stage.world.order = ["m[2]", "m[0]", "m[1]"]
    result = stage.run(flow)
    # Late items write when the map is over, after the items that let it continue.
    seen = [2, 0] if ending == "late items" else [0, 2]
    assert (result.status, result.outputs) == ("succeeded", {"seen": seen})


def test_write_that_does_not_fit_fails_a_map_that_goes_on_early(stage: Stage) -> None:
    text = """
state: {total: {type: integer, default: 0, maximum: 3, reducer: add}}
steps:
  - id: m
    map: {over: 4, join: {need: 2, late: ignore}}
    python: "tools:act"
    set: {total: 2}
    on_error: [{type: ValidationError, next: end}]
    next: end
outputs: {total: "${{ state.total }}", error: "${{ steps.m.error.message }}"}
"""
    for played in stage.orders(text):
        state = played.state
        assert state["status"] == "succeeded"
        assert state["outputs"] is not None
        assert "state.total" in state["outputs"]["error"]


# Nesting


def test_inner_map_reaches_the_outer_item_by_its_name(stage: Stage) -> None:
    text = """
inputs: {rows: {type: array, items: {type: array, items: {type: integer}}}}
steps:
  - id: outer
    map: {over: "${{ inputs.rows }}", as: row}
    group:
      - id: inner
        map: {over: "${{ row }}", as: cell}
        output: "${{ cell * 10 + row_index }}"
      - {id: total, output: "${{ sum(steps.inner.output) }}"}
outputs: {totals: "${{ steps.outer.output }}"}
"""
    rows = [[1, 2], [], [3]]
    assert stage.play(text, inputs={"rows": rows}).outputs == {"totals": [30, 1 + 1 - 2, 32]}


def test_group_in_a_map_in_a_loop_in_a_map(stage: Stage) -> None:
    text = """
steps:
  - id: a
    map: {over: 2, as: x}
    loop: {until: "${{ size(output) == 3 }}", max: 3}
    group:
      - id: b
        map: {over: "${{ round.number }}", as: y}
        group:
          - {id: c, python: "tools:act", with: {value: "${{ [x, y, round.number] }}"}}
outputs: {a: "${{ steps.a.output }}"}
"""
    outcome = stage.play(text)
    assert outcome.outputs == {"a": [[[x, y, 3] for y in range(3)] for x in range(2)]}
    assert "a[1]@3/b[2]/c" in stage.world.started
    assert len(stage.world.started) == 2 * (1 + 2 + 3)


def test_failure_deep_inside_leaves_every_level_under_its_own_type(stage: Stage) -> None:
    text = """
steps:
  - id: a
    map: 2
    group:
      - id: b
        map: 2
        group:
          - {id: c, python: "tools:act"}
"""
    stage.world.order = ["a[0]/b[0]/c", "a[0]/b[1]/c", "a[1]/b[0]/c", "a[1]/b[1]/c"]
    script = {"a[1]/b[0]/c": Fails("Broken", "deep", retryable=False)}
    stage.world.script = script
    error = stage.run(text).error
    assert error is not None
    assert (error["type"], error["step"]) == ("MapFailed", "a")
    [outer] = error["data"]["failed"]
    assert (outer["key"], outer["error"]["type"], outer["error"]["step"]) == (
        "1", "MapFailed", "a[1]/b",
    )  # fmt: skip
    [inner] = outer["error"]["data"]["failed"]
    assert (inner["key"], inner["error"]["type"]) == ("0", "Broken")
    assert inner["error"]["step"] == "a[1]/b[0]/c"


# Waits in items (F22, F89)

FIFTY = """
steps:
  - id: each
    map: {over: 50, concurrency: 4, as: n}
    group:
      - {id: look, python: "tools:act", with: {value: "${{ n }}"}}
      - {id: sign, approval: "Item ${{ n }}"}
      - {id: book, python: "tools:act", with: {value: "${{ [n, steps.sign.output.comment] }}"}}
outputs: {all: "${{ steps.each.output }}"}
"""


@pytest.mark.endurance
def test_fifty_items_wait_at_once_and_are_answered_in_any_order(stage: Stage) -> None:
    result = stage.run(FIFTY)
    assert len(result.waits) == 50
    assert stage.world.most == 4
    order = list(range(50))
    random.Random(7).shuffle(order)
    by_address = {wait["address"]: wait["id"] for wait in result.waits}
    for done, n in enumerate(order, 1):
        wait = by_address[f"each[{n}]/sign"]
        decision = stage.do(stage.engine.approve_async(wait, comment=f"c{n}"))
        assert decision.result is not None
        # Only this item has moved, and the others still wait.
        left = {w["address"] for w in decision.result.waits}
        assert left == {f"each[{m}]/sign" for m in order[done:]}
        assert stage.world.ended[-1] == f"each[{n}]/book"
        assert len(stage.world.ended) == 50 + done
    assert decision.result is not None
    assert decision.result.outputs == {"all": [[n, f"c{n}"] for n in range(50)]}


def test_item_that_works_beside_its_wait_holds_its_place(stage: Stage) -> None:
    text = """
steps:
  - id: each
    map: {over: 3, concurrency: 1}
    group:
      - {id: s, next: {all: [ask, work]}}
      - {id: ask, approval: Sure?, next: end}
      - {id: work, python: "tools:act", next: end}
"""
    simulator = stage.simulator(text).start()
    seen = []
    for n in range(3):
        assert len(simulator.waits()) == n + 1
        assert list(simulator.running) != []
        seen += [run.address for run in simulator.running.values()]
        simulator.step()
    assert seen == [f"each[{n}]/work" for n in range(3)]


def test_item_that_is_answered_waits_for_no_place(stage: Stage) -> None:
    """An answered item continues at once, even without a free slot."""
    text = """
steps:
  - id: each
    map: {over: 4, concurrency: 1}
    group:
      - {id: ask, approval: Sure?}
      - {id: work, python: "tools:act"}
"""
    simulator = stage.simulator(text).start()
    assert len(simulator.waits()) == 4
    for n in (2, 0):
        simulator.decide(f"each[{n}]/ask", "approve")
    assert {run.address for run in simulator.running.values()} == {"each[2]/work", "each[0]/work"}


def test_map_can_be_withdrawn_while_its_items_wait(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [each, stop]}}
  - {id: each, map: 5, approval: "Item ${{ item }}", next: after}
  - {id: stop, approval: Stop?, next: kill}
  - {id: kill, cancel: {targets: [each], as: succeeded, reason: enough}, next: end}
  - {id: after, output: "${{ steps.each.items }}"}
outputs: {each: "${{ steps.each.output }}", items: "${{ steps.after.output }}"}
"""
    stage.run(text)
    stage.decide("each[3]", "approve", comment="x")
    result = stage.decide("stop", "approve").result
    assert result is not None
    assert (result.status, result.waits) == ("succeeded", [])
    assert result.outputs is not None
    assert [o and o["comment"] for o in result.outputs["each"]] == [None, None, None, "x", None]
    assert [row["status"] for row in result.outputs["items"]] == [
        *["cancelled"] * 3, "succeeded", "cancelled",
    ]  # fmt: skip


def test_rejected_item_fails_although_the_map_says_where_other_outcomes_go(stage: Stage) -> None:
    text = """
steps:
  - {id: each, map: 2, approval: Sure?, next: {outcome: {ok: good, else: bad}}}
  - {id: good, output: good, next: end}
  - {id: bad, output: bad}
outputs: {good: "${{ steps.good.output }}"}
"""
    stage.run(text)
    stage.decide("each[0]", "approve")
    result = stage.decide("each[1]", "reject").result
    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "MapFailed"


def test_deadline_of_a_map_tells_which_items_were_done(stage: Stage) -> None:
    text = """
steps:
  - id: each
    map: {over: 3, concurrency: 2}
    python: "tools:act"
    deadline: 10s
    next: end
    on_error: [{type: Deadline, next: after}]
  - {id: after, output: "${{ steps.each.items.map(i, i.status) }}"}
outputs: {items: "${{ steps.after.output }}"}
"""
    stage.world.held = {"each[1]", "each[2]"}
    result = stage.run(text)
    assert result.outputs == {"items": ["succeeded", "cancelled", "cancelled"]}


def test_script_sees_each_item_once(stage: Stage) -> None:
    calls: list[Call] = []
    stage.simulate(SQUARES, {"square": calls.append}, {"numbers": [1, 2, 3]})
    assert sorted(call.value for call in calls) == [1, 4, 9]


def test_statuses_of_items_are_observed(stage: Stage) -> None:
    simulator = stage.simulate(_failing("wait", 5), _fails_at(3), {"policy": None})
    seen = statuses(simulator)
    assert seen["m[3]"] == "failed"
    assert seen["m[0]"] == "succeeded"
