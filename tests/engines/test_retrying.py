"""`retry`: the steps that caused the failure start again, and succeeded ones are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.executions import linked_flows
from flowengine.errors import Conflict, NotFound
from flowengine.kernel.advance import advance
from tests.engines import world

TWICE = """
steps:
  - {id: one, python: "effects:act", effect: once, with: {value: 1}}
  - {id: two, python: "effects:act", effect: once, with: {value: 2}END}
"""
SOLD = "${{ steps.two.output }}"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "store", durability="process") as engine:
        yield engine


def calls(folder: Path) -> list[str]:
    return [address for address, _, _ in world.effects(folder)]


@pytest.mark.parametrize(
    "step",
    [
        'approval: {title: Go?, expires: "${{ inputs.value }}"}',
        'wait: {until: "${{ inputs.value }}"}',
        'call: std.read_file, with: {path: "/${{ inputs.value }}"}',
        'call: std.read_file, with: {path: "../${{ inputs.value }}"}',
        'call: std.read_file, with: {path: a, lines: "${{ int(inputs.value.size()) - 4 }}"}',
        "fail: {type: TooLate, message: closed}",
        "group: [{id: b, fail: {type: TooLate}}], on_error: [{fail: {type: Closed}}]",
        'python: "asserted:later", with: {value: "${{ inputs.value }}"}',
        'python: "asserted:raised", with: {type: Damaged}, effect: idempotent, retry: 2',
        'python: "asserted:raised", with: {type: UnsupportedFormat}',
        'python: "asserted:raised", with: {type: UrlRefused}, effect: idempotent, retry: 2',
    ],
)
def test_what_must_fail_again_with_the_same_values_needs_another_flow(
    engine: Engine, tmp_path: Path, step: str
) -> None:
    (tmp_path / "asserted.py").write_text(
        "from flowengine.sdk import StepError\n\n"
        "def later(value):\n    assert value == 'later'\n\n"
        "def raised(type):\n"
        "    raise StepError('it is', type=type, retryable=None if type[0] == 'U' else False)\n"
    )
    flow = f"inputs: {{value: {{type: string}}}}\nsteps: [{{id: a, {step}}}]\n"
    engine.run(world.make(tmp_path, flow), {"value": "soon"}, id="it")

    assert engine.show("it").get("command") == "flowengine retry it --file FILE"
    error = engine.result("it").error
    assert (error or {}).get("attempt", 1) == 1, "it was retried"


def test_a_file_that_is_missing_may_be_there_next_time(engine: Engine, tmp_path: Path) -> None:
    engine.run(
        world.make(tmp_path, "steps: [{id: a, call: std.read_file, with: {path: a}}]\n"), id="it"
    )

    assert engine.show("it").get("command") == "flowengine retry it"


WAYS: dict[str, tuple[str, str]] = {
    "fail": (", next: no", "- {id: no, fail: {type: Nope, message: no}}"),
    "when": (", next: no", '- {id: no, when: "${{ [1][steps.two.output] == 1 }}"}'),
    "with": (
        ", next: no",
        '- {id: no, python: "effects:act", with: {value: "${{ [1][steps.two.output] }}"}}',
    ),
    "own output": (', output: "${{ [1][result] }}"', ""),
    "own set": (', set: {x: "${{ [1][output] }}"}', ""),
    "own next": (', next: {first: [{when: "${{ [1][output] == 1 }}", to: no}]}', "- {id: no}"),
    "no branch": (', next: {first: [{when: "${{ output == 7 }}", to: no}]}', "- {id: no}"),
    "map.over": (", next: no", '- {id: no, map: "${{ [1][steps.two.output] }}"}'),
    "group output": (
        ", next: no",
        '- {id: no, group: [{id: it, python: "effects:act", effect: once}], '
        'output: "${{ [1][steps.it.output + 1] }}"}',
    ),
    "loop limit": (
        ", next: no",
        '- {id: no, loop: {until: "${{ round.number == 3 }}", max: 2}, '
        'python: "effects:act", effect: once}',
    ),
    "until": (
        ", next: no",
        '- {id: no, loop: {until: "${{ [1][output] == 1 }}", max: 2}, '
        'python: "effects:act", effect: once}',
    ),
}
"""Errors raised outside of attempts: additions to step `two`, and the step after it."""


def failing(way: str) -> str:
    more, after = WAYS[way]
    text = "state: {x: {type: integer, default: 0}}" + TWICE.replace("END", more)
    return text + (f"  {after}\n" if after else "")


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_succeeded_is_done_again(engine: Engine, tmp_path: Path, way: str) -> None:
    result = engine.run(world.make(tmp_path, failing(way)), id="it")
    assert result.status == "failed"
    done = calls(tmp_path)
    again = engine.retry("it")
    assert (again.status, again.error) == (result.status, result.error)
    assert engine.retry("it").error == result.error
    assert calls(tmp_path) == done
    assert len(set(done)) == len(done)


@pytest.mark.parametrize("way", WAYS)
def test_a_mended_flow_goes_on_from_what_failed(engine: Engine, tmp_path: Path, way: str) -> None:
    text = failing(way)
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    done = calls(tmp_path)
    for wrong, right in (
        ("fail: {type: Nope, message: no}", "output: 1"),
        ("${{ [1][steps.two.output] == 1 }}", "${{ [1][steps.two.output - 3] == 1 }}"),
        ("${{ [1][steps.two.output] }}", "${{ [1] }}" if "map:" in text else "${{ 7 }}"),
        ("${{ [1][result] }}", "${{ result }}"),
        ("${{ [1][output] }}", "${{ output }}"),
        ("${{ [1][output] == 1 }}", "${{ output == 3 }}" if way == "own next" else "${{ true }}"),
        ("output == 7", "output == 3"),
        ("[1][steps.it.output + 1]", "steps.it.output"),
        ("max: 2", "max: 4"),
    ):
        text = text.replace(wrong, right)
    again = engine.retry("it", flow=world.make(tmp_path, text))
    assert (again.status, again.error) == ("succeeded", None)
    assert calls(tmp_path)[: len(done)] == done
    new = calls(tmp_path)[len(done) :]
    assert not set(new) & set(done)
    assert new == {"with": ["no"], "loop limit": ["no@3"]}.get(way, [])
    assert [e["type"] for e in engine.events("it")].count("upgraded") == 1


def test_a_mended_flow_is_checked_as_for_an_upgrade(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, failing("fail")), id="it")
    with pytest.raises(Conflict, match="cannot continue with this version") as refused:
        engine.retry("it", flow=world.make(tmp_path, failing("fail").replace("id: no", "id: yes1")
                                           .replace("next: no", "next: yes1")))  # fmt: skip
    assert "flowengine fork it --from-step" in (refused.value.hint or "")
    other = world.make(tmp_path, TWICE.replace("END", ""))
    other.write_text(other.read_text().replace("id: flow", "id: other"))
    with pytest.raises(Conflict, match="is of the flow 'flow', not 'other'"):
        engine.retry("it", flow=other)
    assert engine.result("it").status == "failed"
    assert engine.retry("it").status == "failed"


ITEMS = """
steps:
  - id: m
    map: {over: 5, concurrency: CONCURRENCY, on_item_error: HOW}
    group:
      - {id: pay, python: "effects:act", effect: once, with: {value: "${{ item }}"}}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ item }}"}}
      - {id: book, python: "effects:act", effect: once, with: {value: "${{ item }}"}}
    output: "${{ steps.book.output }}"
outputs: {m: "${{ steps.m.output }}"}
"""


def refuse(folder: Path, *items: int) -> None:
    """Make `check` reject exactly these items from now on."""
    (folder / "refused").write_text(" ".join(map(str, items)))


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.parametrize("how", ["wait", "stop"])
def test_the_failed_items_of_a_map_are_retried_and_no_others(
    engine: Engine, tmp_path: Path, how: str, concurrency: int
) -> None:
    file = world.make(tmp_path, ITEMS.replace("HOW", how).replace("CONCURRENCY", str(concurrency)))
    refuse(tmp_path, 2)
    result = engine.run(file, id="it")
    assert result.error is not None
    assert result.error["type"] == "MapFailed"
    again = engine.retry("it")
    while again.waits:
        world.answer(engine, again.waits[0], tmp_path)
        again = engine.resume("it")
    assert again.error is not None
    assert [one["key"] for one in again.error["data"]["failed"]] == ["2"]
    refuse(tmp_path)
    again = settled(engine, tmp_path, engine.retry("it"))
    assert (again.status, again.outputs) == ("succeeded", {"m": [1, 2, 3, 4, 5]})
    assert sorted(calls(tmp_path)) == sorted(
        f"m[{n}]/{step}" for n in range(5) for step in ("pay", "book")
    )


STOPPING = """
import asyncio
from pathlib import Path

HERE = Path(__file__).parent

async def work(n: int) -> int:
    with open(HERE / "began", "a") as file:
        file.write(str(n))
    while n > 1 and not (HERE / "go").exists():
        await asyncio.sleep(0.001)
    return n

async def all_began() -> None:
    await begun(3)

async def two_began() -> None:
    await begun(2)

async def begun(count: int) -> None:
    while not (HERE / "began").exists() or len((HERE / "began").read_text()) < count:
        await asyncio.sleep(0.001)
"""
EARLY = """
steps:
  - id: each
    map: {over: "${{ [1, 2, 3] }}", as: n, join: {need: 1, late: ignore}}
    python: "stopping:work"
    with: {n: "${{ n }}"}
    effect: idempotent
  - {id: seen, python: "stopping:all_began"}
  - {id: stop, cancel: {targets: [each], as: failed}}
outputs: {all: "${{ steps.each.output }}"}
"""
IN_PARALLEL = """
steps:
  - id: both
    parallel:
      - id: each
        map: {over: "${{ [1, 2, 3] }}", as: n, concurrency: 3}
        python: "stopping:work"
        with: {n: "${{ n }}"}
        effect: idempotent
      - id: beside
        group:
          - {id: seen, python: "stopping:all_began"}
          - {id: stop, cancel: {targets: [each], as: failed}}
outputs: {all: "${{ steps.both.output.each }}"}
"""


@pytest.mark.parametrize(
    ("text", "path", "outputs"),
    [(EARLY, "", [1, None, None]), (IN_PARALLEL, "both/", [1, 2, 3])],
)
def test_items_that_were_done_when_their_map_was_withdrawn_are_not_done_again(
    engine: Engine, tmp_path: Path, text: str, path: str, outputs: list[Any]
) -> None:
    file = world.make(tmp_path, text)
    (tmp_path / "stopping.py").write_text(STOPPING)
    assert engine.run(file, id="it").status == "failed"
    assert sorted((tmp_path / "began").read_text()) == ["1", "2", "3"]

    (tmp_path / "go").touch()
    result = engine.retry("it")

    assert (result.status, result.outputs) == ("succeeded", {"all": outputs})
    assert sorted((tmp_path / "began").read_text()[3:]) == ["2", "3"]
    shown = {one["address"]: one["status"] for one in engine.show("it")["steps"]}
    assert {shown[f"{path}each[{n}]"] for n in range(3)} == {"succeeded"}
    assert shown[f"{path}each"] == "succeeded"


PARTLY = """
flows:
  inner:
    steps:
      - {id: one, WORK, with: {n: 1}}
      - {id: two, WORK, with: {n: 2}}
    outputs: {n: "${{ steps.two.output }}"}
steps:
  - id: both
    parallel:
      - {id: it, WHAT}
      - id: beside
        group:
          - {id: seen, python: "stopping:two_began"}
          - {id: stop, cancel: {targets: [it], as: failed}}
outputs: {it: "${{ steps.both.output.it }}"}
"""
WITHDRAWN: dict[str, tuple[str, Any]] = {
    "group": ("group: [{id: one, WORK, with: {n: 1}}, {id: two, WORK, with: {n: 2}}]", 2),
    "branches": (
        "parallel: [{id: one, WORK, with: {n: 1}}, {id: two, WORK, with: {n: 2}}]",
        {"one": 1, "two": 2},
    ),
    "subflow": ("flow: inner", {"n": 2}),
    "rounds": (
        'loop: {until: "${{ round.number == 2 }}", max: 2}, WORK, with: {n: "${{ round.number }}"}',
        2,
    ),
    "rounds of a group": (
        'loop: {until: "${{ round.number == 2 }}", max: 2}, '
        'group: [{id: one, WORK, with: {n: "${{ round.number }}"}}]',
        2,
    ),
}
"""Actions that `cancel` ends as failed during their second part, with their outputs."""


@pytest.mark.parametrize("effect", ["idempotent", "once"])
@pytest.mark.parametrize("what", WITHDRAWN)
def test_what_was_done_of_a_withdrawn_step_is_not_done_again(
    engine: Engine, tmp_path: Path, what: str, effect: str
) -> None:
    """With `effect: once`, an operator is asked whether the running part took effect."""
    action, output = WITHDRAWN[what]
    text = PARTLY.replace("WHAT", action).replace(
        "WORK", f'python: "stopping:work", effect: {effect}'
    )
    (tmp_path / "stopping.py").write_text(STOPPING)
    failed = engine.run(world.make(tmp_path, text), id="it")
    assert (failed.status, failed.error and failed.error["type"]) == ("failed", "Cancelled")
    assert sorted((tmp_path / "began").read_text()) == ["1", "2"]

    (tmp_path / "go").touch()
    mended = world.make(tmp_path, text.replace("as: failed", "as: cancelled"))
    result = engine.retry("it", flow=mended)
    if effect == "once":
        [wait] = result.waits
        assert sorted((tmp_path / "began").read_text()) == ["1", "2"]
        engine.decide(wait["id"], "retry", resume=False)
        result = engine.resume("it")
    assert (result.status, result.outputs) == ("succeeded", {"it": output})
    assert sorted((tmp_path / "began").read_text()) == ["1", "2", "2"]
    shown = [one for one in engine.show("it")["steps"] if one["address"].startswith("both/it")]
    assert {one["status"] for one in shown} == {"succeeded"}


def settled(engine: Engine, folder: Path, result: Any) -> Any:
    """Answer questions about stopped attempts according to their actual effects."""
    while result.waits:
        wait = result.waits[0]
        assert wait["kind"] == "question"
        world.answer(engine, wait, folder)
        result = engine.resume("it")
    return result


def test_one_item_is_retried_alone_and_the_map_goes_on(engine: Engine, tmp_path: Path) -> None:
    file = world.make(tmp_path, ITEMS.replace("HOW", "wait").replace("CONCURRENCY", "2"))
    refuse(tmp_path, 1, 3)
    engine.run(file, id="it")
    refuse(tmp_path)
    one = engine.retry("it", step="m[3]")
    assert one.error is not None
    assert [item["key"] for item in one.error["data"]["failed"]] == ["1"]
    assert "m[1]/book" not in calls(tmp_path)
    assert engine.retry("it", step="m[1]").outputs == {"m": [1, 2, 3, 4, 5]}
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 10


def test_a_step_that_succeeded_begins_anew_by_its_name(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, failing("fail")), id="it")
    engine.retry("it", step="one")
    assert calls(tmp_path) == ["one", "two", "one", "two"]
    engine.retry("it", step="two")
    assert calls(tmp_path) == ["one", "two", "one", "two", "two"]
    with pytest.raises(NotFound, match="no step 'three' has ended"):
        engine.retry("it", step="three")


def test_outputs_that_fail_are_mended_without_doing_anything_again(
    engine: Engine, tmp_path: Path
) -> None:
    text = TWICE.replace("END", "") + 'outputs: {x: "${{ [1][steps.two.output] }}"}\n'
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    assert engine.retry("it").status == "failed"
    mended = world.make(tmp_path, text.replace("[1][steps.two.output]", "steps.two.output"))
    assert engine.retry("it", flow=mended).outputs == {"x": 3}
    assert calls(tmp_path) == ["one", "two"]


BESIDE = """
steps:
  - id: both
    parallel:
      - {id: flaky, python: "effects:fail_beside", with: {beside: both/other/next}}
      - id: other
        group:
          - {id: pay, python: "effects:act", effect: once}
          - {id: next, python: "effects:act", effect: idempotent}
          - {id: sign, approval: Sure?}
outputs: {both: "${{ steps.both.output }}"}
"""


def test_handled_errors_are_no_cause(engine: Engine, tmp_path: Path) -> None:
    text = """
steps:
  - {id: a, python: "effects:break_at_once", on_error: [{next: b}], next: end}
  - {id: b, python: "effects:act", effect: once, next: c}
  - {id: c, python: "effects:fail_until", with: {attempt: 2}}
"""
    engine.run(world.make(tmp_path, text), id="it")
    assert engine.retry("it").status == "succeeded"
    assert calls(tmp_path) == ["b", "c"]
    told = [entry["type"] for entry in engine.events("it")]
    assert told == ["started", "failed", "succeeded", "failed", "retry", "succeeded"]


def test_an_error_that_a_handler_raises_anew_lets_its_step_begin_anew(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
steps:
  - {id: pay, python: "effects:act", effect: once}
  - id: a
    python: "effects:fail_until"
    with: {attempt: 2}
    on_error: [{fail: {type: Told, message: "${{ error.message }}"}}]
outputs: {a: "${{ steps.a.output }}"}
"""
    result = engine.run(world.make(tmp_path, text), id="it")
    assert result.error is not None
    assert result.error["type"] == "Told"
    assert engine.retry("it").outputs == {"a": 2}
    assert calls(tmp_path) == ["pay", "a"]


def test_what_ended_beside_the_failure_is_kept(engine: Engine, tmp_path: Path) -> None:
    """It has ended once the step after it runs, and not as soon as its effect is visible."""
    engine.run(world.make(tmp_path, BESIDE), id="it")
    assert "both/other/pay" in calls(tmp_path)
    result = engine.retry("it")
    assert (result.status, [wait["address"] for wait in result.waits]) == (
        "waiting",
        ["both/other/sign"],
    )
    decision = engine.approve(result.waits[0]["id"]).result
    assert decision is not None
    assert decision.status == "succeeded"
    assert calls(tmp_path).count("both/other/pay") == 1


CLEANED = """
steps:
  - {id: first, python: "effects:act", effect: once}
  - id: g
    group:
      - {id: pay, python: "effects:act", effect: once}
      - {id: flaky, python: "effects:fail_until", with: {attempt: 2}}
    finally:
      - {id: tidy, python: "effects:act"}
    output: "${{ steps.pay.output }}"
outputs: {g: "${{ steps.g.output }}"}
"""


def test_what_failed_in_a_group_begins_anew_and_is_cleaned_up_after_again(
    engine: Engine, tmp_path: Path
) -> None:
    engine.run(world.make(tmp_path, CLEANED), id="it")
    assert engine.retry("it").outputs == {"g": 1}
    assert calls(tmp_path) == ["first", "g/pay", "g/finally/tidy", "g/flaky", "g/finally/tidy"]


def test_a_finally_that_failed_is_what_begins_anew(engine: Engine, tmp_path: Path) -> None:
    text = """
steps: [{id: pay, python: "effects:act", effect: once}]
finally:
  - {id: note, python: "effects:act", effect: once}
  - {id: tidy, python: "effects:fail_until", with: {attempt: 2}}
outputs: {pay: "${{ steps.pay.output }}"}
"""
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    assert engine.retry("it").outputs == {"pay": 1}
    assert calls(tmp_path) == ["pay", "finally/note", "finally/tidy"]


NESTED = """
flows:
  part:
    inputs: {n: {type: integer}}
    steps:
      - {id: pay, python: "effects:act", effect: once, with: {value: "${{ inputs.n }}"}}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ inputs.n }}"}}
    outputs: {paid: "${{ steps.pay.output }}"}
steps:
  - id: rounds
    loop: {until: "${{ round.number == 2 }}", max: 3}
    group:
      - id: m
        map: {over: 2, on_item_error: wait}
        flow: part
        with: {n: "${{ item }}"}
    output: "${{ steps.m.output }}"
outputs: {all: "${{ steps.rounds.output }}"}
"""


@pytest.mark.endurance
def test_what_failed_is_found_in_loops_maps_and_subflows(engine: Engine, tmp_path: Path) -> None:
    file = world.make(tmp_path, NESTED)
    refuse(tmp_path, 0, 1)
    assert engine.run(file, id="it").status == "failed"
    refuse(tmp_path, 1)
    assert engine.retry("it").status == "failed"
    refuse(tmp_path)
    assert engine.retry("it").outputs == {"all": [{"paid": 1}, {"paid": 2}]}
    assert sorted(calls(tmp_path)) == [f"rounds@{r}/m[{n}]/pay" for r in (1, 2) for n in (0, 1)]


def test_what_was_undone_is_refused_with_a_command_that_works(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
tools: {undo: {python: "effects:act"}}
on_error: compensate
steps:
  - {id: pay, python: "effects:act", effect: once, compensate: {call: undo}}
  - {id: no, fail: {type: Nope, message: no}}
"""
    engine.run(world.make(tmp_path, text), id="it")
    with pytest.raises(Conflict, match="was compensated before") as refused:
        engine.retry("it")
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("flowengine fork it --from-step pay")
    forked = engine.fork("it", from_step="pay")
    assert forked.error is not None
    assert forked.error["type"] == "Nope"
    assert calls(tmp_path) == ["pay", "pay/compensate"] * 2


UNDONE = """
tools: {undo: {python: "effects:act"}}
on_error: compensate
steps:
  - {id: before, python: "effects:act"}
"""
NO = """
  - {id: no, fail: {type: Nope, message: no}}
"""


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ("""
  - id: both
    parallel:
      - {id: a, python: "effects:act", compensate: {call: undo}}
      - {id: b, python: "effects:act", compensate: {call: undo}}
  - {id: c, python: "effects:act", compensate: {call: undo}}""", "both"),
        ("""
  - id: m
    map: {over: [x, y]}
    python: "effects:act"
    compensate: {call: undo}""", "m"),
        ("""
  - id: rounds
    loop: {until: "${{ round.number == 2 }}", max: 3}
    group:
      - {id: a, python: "effects:act", compensate: {call: undo}}""", "rounds"),
        ("""
  - id: g
    group:
      - {id: a, python: "effects:act"}
      - {id: b, python: "effects:act"}
    compensate: {call: undo}
  - {id: c, python: "effects:act", compensate: {call: undo}}""", "g"),
        ("""
  - {id: planned, output: R1, compensate: {call: undo}}
  - {id: c, python: "effects:act", compensate: {call: undo}}""", "planned"),
    ],
    ids=["parallel", "map", "rounds", "group", "no attempt"],
)  # fmt: skip
def test_the_fork_that_is_proposed_keeps_nothing_that_was_undone(
    engine: Engine, tmp_path: Path, steps: str, first: str
) -> None:
    engine.run(world.make(tmp_path, UNDONE + steps + NO), id="it")
    once = calls(tmp_path)
    done = {address for address in once if not address.endswith("/compensate")}

    assert engine.show("it")["command"] == f"flowengine fork it --from-step {first}"
    engine.fork("it", from_step=first)

    assert done - set(calls(tmp_path)[len(once) :]) == {"before"}


ENDED = """
steps:
  - id: g
    group:
      - {id: s, next: {all: [a, b]}}
      - {id: a, python: "effects:act", next: end_all}
      - {id: b, approval: Sure?}
  - {id: no, fail: {type: Nope, message: no}}
"""


def test_what_end_all_ended_is_refused_with_a_command_that_works(
    engine: Engine, tmp_path: Path
) -> None:
    engine.run(world.make(tmp_path, ENDED), id="it")
    with pytest.raises(Conflict, match="'g/b' did not fail: something else ended it") as refused:
        engine.retry("it", step="g/b")
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("flowengine fork it --from-step g/b")
    assert engine.fork("it", from_step="g/b").status in ("waiting", "failed")


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_begins_at_what_failed_beside_its_attempt(
    engine: Engine, tmp_path: Path, way: str
) -> None:
    first = engine.run(world.make(tmp_path, failing(way)), id="it")
    assert first.error is not None
    at = first.error["step"].partition("@")[0]
    forked = engine.fork("it", from_step=at)
    assert forked.error is not None
    assert (forked.error["type"], forked.error["step"]) == (
        first.error["type"],
        first.error["step"],
    )
    assert calls(tmp_path).count("one") == 1
    assert engine.retry(forked.execution).error == forked.error


def test_a_fork_at_the_first_step_that_failed_at_once(engine: Engine, tmp_path: Path) -> None:
    text = """
state: {n: {type: integer, default: 5}}
steps:
  - {id: no, python: "effects:act", with: {value: "${{ [1][state.n] }}"}}
"""
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    assert engine.retry("it").status == "failed"
    assert engine.fork("it", from_step="no", set={"n": 0}).status == "succeeded"


def test_what_could_not_be_undone_is_tried_again_by_the_command_that_is_named(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
tools: {undo: {python: "effects:fail_until"}}
on_error: compensate
steps:
  - {id: pay, python: "effects:act", effect: once, compensate: {call: undo}}
  - {id: no, fail: {type: Nope, message: no}}
"""
    result = engine.run(world.make(tmp_path, text), id="it")
    assert result.error is not None
    assert result.error["type"] == "CompensationFailed"
    [why] = engine.why("it")
    assert why["command"] == "flowengine fork it --from-step pay/compensate"
    forked = engine.fork("it", from_step="pay/compensate", id="repair")
    assert forked.error is not None
    assert forked.error["type"] == "Nope"
    [why] = engine.why("repair")
    assert why["undone_by"] == {"pay": "repair"}
    assert why["wakes"] == "nothing: it has undone what was left to undo"
    assert "command" not in why, "not another booking"
    with pytest.raises(Conflict) as refused:
        engine.retry("repair")
    assert refused.value.hint == "flowengine show repair"
    with pytest.raises(Conflict, match="'pay' was undone by execution repair"):
        engine.fork("repair", from_step="pay/compensate")


def test_fork_of_a_compensated_execution_replays_its_journal_twice_at_most(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
on_error: compensate
steps:
  - {id: pay, output: 1, compensate: {call: std.print, with: {text: paid back}}}
  - {id: no, fail: {type: Nope, message: no}}
"""
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    applied: list[str] = []

    def counted(graph: Any, state: Any, event: Any, *more: Any, **named: Any) -> Any:
        applied.append(event["type"])
        return advance(graph, state, event, *more, **named)

    monkeypatch.setattr(linked_flows, "advance", counted)
    forked = engine.fork("it", from_step="no")
    assert forked.status == "failed"
    # Each replay begins with this event.
    assert applied.count("started") == 2
