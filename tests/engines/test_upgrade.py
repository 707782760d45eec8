"""Open executions move to a changed flow: prediction, migration, and refusal (F75)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Conflict, Engine, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import world

ORDER = """
version: "1"
inputs: {amount: {type: integer, default: 5}}
state: {notes: {type: array, default: [], reducer: append}}
signals: {paid: {key: "${{ execution.id }}", data: {type: integer}}}
steps:
  - id: look
    output: {seen: "${{ inputs.amount }}"}
    set: {notes: looked}
  - id: sign
    approval: {title: "Fine?", choices: [approve, reject]}
    next: {outcome: {approve: pay, reject: end}}
  - id: pay
    wait: {signal: paid}
  - id: done
    output: {looked: "${{ steps.look.output.seen }}", paid: "${{ steps.pay.output.data }}"}
outputs: {done: "${{ steps.done.output }}", notes: "${{ state.notes }}"}
"""


def edited(tmp_path: Path, *changes: tuple[str, str], text: str = ORDER) -> Path:
    """Write a changed flow, and return its file."""
    for old, new in (('version: "1"', 'version: "2"'), *changes):
        assert old in text, old
        text = text.replace(old, new)
    return world.make(tmp_path / "changed", text)


def waiting(engine: Engine, tmp_path: Path, text: str = ORDER, **inputs: Any) -> str:
    """Run a flow until it waits, and return the execution's ID."""
    result = engine.run(world.make(tmp_path, text), inputs)
    assert result.status == "waiting"
    return result.execution


def obstacles(info: Any) -> list[tuple[str, str, Any]]:
    return [(one["what"], one["name"], one["write"]) for one in info["obstacles"]]


def test_a_moved_execution_goes_on_under_the_new_form(tmp_path: Path) -> None:
    changed = edited(
        tmp_path,
        ("output: {looked:", "output: {added: 1, looked:"),
        ("  - id: look\n", "  - {id: before, output: 7}\n  - id: look\n"),
    )
    with Engine(None, user="user:ana") as engine:
        id = waiting(engine, tmp_path)
        (wait,) = engine.waits().items
        (info,) = engine.upgrade(changed, check=True)
        assert (info["verdict"], info["moved"], info["version"]) == ("continues", False, "1")
        assert len(list(engine.events(id))) == 1

        (info,) = engine.upgrade(changed)
        assert (info["verdict"], info["moved"], info["status"]) == ("continues", True, "waiting")
        assert engine.executions().items[0]["version"] == "2"
        assert [one["id"] for one in engine.waits().items] == [wait["id"]]
        engine.approve(wait["id"])
        result = engine.signal("paid", 3, key=id).result
        assert result is not None
        assert result.outputs == {
            "done": {"added": 1, "looked": 5, "paid": 3}, "notes": ["looked"],
        }  # fmt: skip
        told = [one for one in engine.events(id) if one["type"] == "upgraded"]
        assert [(one["by"], one["via"], one["version"]) for one in told] == [
            ("user:ana", "python", "2")
        ]
        steps = [(step["address"], step["status"]) for step in engine.show(id)["steps"]]
        assert [address for address, _ in steps] == ["look", "sign", "pay", "done"]
        assert engine.upgrade(changed) == []


FORGETFUL = """
version: "1"
steps:
  - {id: look, output: {seen: 5}}
  - {id: use, output: "${{ steps.look.output.seen + 1 }}"}
  - {id: sign, approval: Fine?}
  - {id: done, output: "${{ steps.use.output }}"}
outputs: {done: "${{ steps.done.output }}"}
"""


def test_what_both_forms_have_forgotten_is_not_missed(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("steps.use.output }}", "steps.use.output * 2 }}"), text=FORGETFUL)
    with Engine(None) as engine:
        id = waiting(engine, tmp_path, FORGETFUL)
        (info,) = engine.upgrade(changed)
        assert (info["verdict"], info["moved"]) == ("continues", True)
        result = engine.approve(engine.waits(execution=id).items[0]["id"]).result
        assert result is not None
        assert result.outputs == {"done": 12}


def test_what_the_old_form_has_forgotten_cannot_be_named_by_the_new_one(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("${{ steps.use", "${{ steps.look.output.seen + steps.use"),
                     text=FORGETFUL)  # fmt: skip
    with Engine(None) as engine:
        waiting(engine, tmp_path, FORGETFUL)
        (info,) = engine.upgrade(changed)
        assert not info["moved"]
        assert "'steps.look.output.seen', which was not kept" in info["obstacles"][0]["why"]


RESULTS = """
inputs: {p: {type: boolean, default: false}}
steps:
  - {id: quote, output: {vendor: acme}}
  - {id: price, output: {sum: 3}}
  - {id: extra, when: "${{ inputs.p }}", output: {sum: 1}}
  - {id: fork, output: 0, next: {all: [left, right]}}
  - {id: left, output: {sum: 5}, next: meet}
  - {id: right, approval: Right?, next: meet}
  - {id: meet, join: all, output: 0}
  - {id: box, group: [{id: inner, output: {sum: 7}}, {id: sign, approval: Fine?}], output: 0}
  - {id: used, output: "${{ default(steps.extra.output.sum, 0) + steps.price.output.sum }}"}
  - {id: done, output: "${{ steps.used.output }}"}
outputs: {done: "${{ steps.done.output }}"}
"""
DONE = 'done, output: "${{ steps.used.output }}"'
VENDOR = "${{ steps.quote.output.vendor }}"
USED = "  - {id: used"
SECOND = f'  - {{id: second, approval: "{VENDOR}?"}}\n{USED}'
IN_BOX = "7}}, {id: sign, approval: Fine?}]"


@pytest.mark.parametrize(
    ("changes", "steps", "verdict", "said"),
    [
        # a new step reads what no earlier expression read
        ([(USED, SECOND)], {}, "cannot",
         "'second' of the new flow reads 'steps.quote.output.vendor', which was not kept"),
        ([(USED, SECOND)], {"quote": "second"}, "cannot",
         "the mapping gives its result to 'second'"),
        ([(DONE, 'done, output: "${{ default(steps.quote.output, 1) }}"')], {}, "cannot",
         "which was not kept"),
        ([("done: \"${{ steps.done.output", "done: \"${{ steps.quote.output")], {}, "cannot",
         "the new flow reads 'steps.quote.output', which was not kept"),
        ([(IN_BOX, IN_BOX.replace("]", ", {id: e, output: '${{ steps.inner.output }}'}]"))], {},
         "cannot", "'e' of the new flow reads 'steps.inner.output', which was not kept"),
        # but not ahead
        ([("id: fork, output: 0", f"id: fork, output: '{VENDOR}'")], {}, "continues", ""),
        # a finished step was renamed
        ([("id: price", "id: cost"), ("steps.price", "steps.cost")], {}, "mapping", "price: cost"),
        ([("id: price", "id: cost"), ("steps.price", "steps.cost")], {"price": "cost"},
         "continues", ""),
        ([("id: price", "id: cost"), ("steps.price", "steps.cost")], {"quote": "cost"},
         "cannot", "which was not kept"),
        ([], {"price": "left"}, "cannot", "the mapping gives its result to 'left'"),
        ([], {"fork": "price"}, "cannot", "'price' and 'fork' have the same counterpart"),
        # a new step stands behind the execution
        ([("  - {id: fork", "  - {id: new, output: {sum: 2}}\n  - {id: fork"),
          (DONE, 'done, output: "${{ steps.new.output.sum }}"')], {}, "cannot",
         "'new' has not run and does not run before that"),
        ([("  - {id: fork", "  - {id: new, output: {sum: 2}}\n  - {id: fork"),
          (DONE, 'done, output: "${{ default(steps.new.output.sum, 4) }}"')], {}, "continues", ""),
        ([("  - {id: used", "  - {id: new, output: {sum: 2}}\n  - {id: used"),
          (DONE, 'done, output: "${{ steps.new.output.sum }}"')], {}, "continues", ""),
        # a result has another shape, or none
        ([("price, output: {sum: 3}", "price, output: {total: 3}"), ("price.output.sum",
          "price.output.total")], {}, "cannot", "steps.price.output has no 'total'"),
        ([('extra, when: "${{ inputs.p }}",', "extra,"), ("default(steps.extra.output.sum, 0)",
          "steps.extra.output.sum")], {}, "cannot", "steps.extra.output is null"),
        ([("price, output: {sum: 3}", "price, wait: 1s, output: {sum: 3}")], {}, "cannot",
         "it was a step without an action and is of the kind 'wait'"),
        # a join reads what its tokens did not bring
        ([("meet, join: all, output: 0", "meet, join: all, output: '${{ join.outputs.left }}'")],
         {}, "cannot", "a token that came from 'left' without its output"),
        # a join waits for a branch that was not taken
        ([("all: [left, right]", "all: [left, right, third]"), ("  - {id: meet",
          "  - {id: third, output: 1, next: meet}\n  - {id: meet")], {}, "cannot",
         "its join waits for 'third', which does not run any more"),
        # a mapping that is wrong, while another one is right
        ([], {"right": "price"}, "mapping", "right: right"),
    ],
)  # fmt: skip
def test_every_result_that_is_read_ahead_is_there(
    tmp_path: Path, changes: list[tuple[str, str]], steps: dict[str, str], verdict: str, said: str
) -> None:
    text = f'version: "1"\n{RESULTS}'
    changed, mapping = edited(tmp_path, *changes, text=text), {"steps": steps}
    with Engine(None) as engine:
        id = waiting(engine, tmp_path, text)
        if "inner" in said or "sign" in said:
            engine.approve(engine.waits(execution=id).items[0]["id"])
        (info,) = engine.upgrade(changed, mapping=mapping)
        assert info["verdict"] == verdict, info
        told = [one["why"] for one in info["obstacles"]]
        told += [f"{one['name']}: {', '.join(one['fits'])}" for one in info["obstacles"]]
        assert not said or any(said in one for one in told), told
        assert info["moved"] == (verdict == "continues")
        if not info["moved"]:
            assert {one["type"] for one in engine.events(id)} <= {"started", "decided"}
        while waits := engine.waits(execution=id).items:
            engine.approve(waits[0]["id"])
        assert engine.result(id).status == "succeeded"


def test_what_cannot_be_moved_can_be_forked_where_it_is(tmp_path: Path) -> None:
    """The past is replayed with the changed flow, which keeps what it reads."""
    text = f'version: "1"\n{RESULTS}'
    changed = edited(tmp_path, (DONE, f"done, output: '{VENDOR}'"), text=text)
    with Engine(None) as engine:
        id = waiting(engine, tmp_path, text)
        (info,) = engine.upgrade(changed, check=True)
        assert (info["verdict"], info["fork"]) == ("cannot", "right")
        fork = engine.fork(id, from_step="right", flow=changed).execution
        while waits := engine.waits(execution=fork).items:
            engine.approve(waits[0]["id"])
        assert engine.result(fork).outputs == {"done": "acme"}


def test_executions_that_are_not_moved_keep_their_form(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    with Engine(None) as engine:
        ids = [waiting(engine, tmp_path) for _ in range(2)]
        (info,) = engine.upgrade(changed, ids[0][:20] if ids[0][:20] != ids[1][:20] else ids[0])
        assert info["execution"] == ids[0]
        for id in ids:
            (wait,) = engine.waits(execution=id).items
            engine.approve(wait["id"])
            engine.signal("paid", 1, execution=id)
        added = [engine.result(id).outputs["done"].get("added") for id in ids]  # type: ignore[index]
        assert added == [1, None]


def test_a_renamed_step_needs_a_mapping_that_is_told(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("id: sign", "id: check"))
    with Engine(None) as engine:
        id = waiting(engine, tmp_path)
        (info,) = engine.upgrade(changed)
        assert (info["verdict"], info["moved"]) == ("mapping", False)
        assert obstacles(info) == [("step", "sign", {"steps": {"sign": "NEW"}})]
        assert info["obstacles"][0]["fits"] == ["check"]
        assert info["write"] == {"steps": {"sign": "NEW"}}
        assert engine.executions().items[0]["version"] == "1"

        (info,) = engine.upgrade(changed, mapping={"steps": {"sign": "check"}})
        assert info["moved"]
        (wait,) = engine.waits().items
        assert (wait["step"], wait["address"]) == ("check", "sign")
        engine.approve(wait["id"])
        result = engine.signal("paid", 1, key=id).result
        assert result is not None
        assert result.status == "succeeded"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("approval: {title: \"Fine?\", choices: [approve, reject]}", "wait: {for: 1h}"),
          ("next: {outcome: {approve: pay, reject: end}}", "next: pay")], "it was of the kind"),
        ([("choices: [approve, reject]", "choices: [approve, later]"),
          ("reject: end", "later: end")], "their choice 'reject' leads nowhere"),
        ([("look.output.seen", "look.started_at")], "'steps.look.started_at', which was not kept"),
    ],
)  # fmt: skip
def test_what_no_mapping_can_mend_is_said(
    tmp_path: Path, changes: list[tuple[str, str]], why: str
) -> None:
    changed = edited(tmp_path, *changes)
    with Engine(None) as engine:
        id = waiting(engine, tmp_path)
        (info,) = engine.upgrade(changed)
        assert (info["verdict"], info["moved"]) == ("cannot", False)
        assert any(why in one["why"] for one in info["obstacles"]), info
        assert [one["type"] for one in engine.events(id)] == ["started"]
        (wait,) = engine.waits().items
        assert engine.approve(wait["id"]).result.status == "waiting"  # type: ignore[union-attr]


def test_state_inputs_and_signals_are_renamed_given_and_dropped(tmp_path: Path) -> None:
    changed = edited(
        tmp_path,
        ("notes", "remarks"),
        ("state: {", "state: {more: {type: integer, default: 4}, "),
        ("set: {remarks: looked}", "set: {remarks: looked, more: 1}"),
        ("amount", "sum"),
        ("inputs: {", "inputs: {who: {type: string}, "),
        (
            "output: {looked:",
            'output: {who: "${{ inputs.who }}", sum: "${{ inputs.sum }}", looked:',
        ),
        ("paid: {key", "money: {key"),
        ("signal: paid", "signal: money"),
    )
    mapping: dict[str, Any] = {"state": {"notes": "remarks"}, "inputs": {"amount": "sum"}}
    with Engine(None) as engine:
        id = waiting(engine, tmp_path, amount=6)
        engine.approve(engine.waits().items[0]["id"])
        (info,) = engine.upgrade(changed, check=True)
        assert info["verdict"] == "cannot"  # it waits for another signal
        (info,) = engine.upgrade(changed, mapping={"signals": {"paid": "money"}}, check=True)
        assert info["verdict"] == "mapping"
        assert info["write"] == {
            "state": {"notes": "NEW"}, "values": {"inputs": {"who": "VALUE"}}
        }  # fmt: skip
        mapping["signals"] = {"paid": "money"}
        mapping["values"] = {"inputs": {"who": 7}}
        (info,) = engine.upgrade(changed, mapping=mapping)
        assert "does not match" in info["obstacles"][0]["why"]
        mapping["values"] = {"inputs": {"who": "ana"}, "state": {"more": 9}}
        (info,) = engine.upgrade(changed, mapping=mapping)
        assert info["moved"], info
        result = engine.signal("money", 2, key=id).result
        assert result is not None
        assert result.outputs is not None
        assert result.outputs["done"] == {"who": "ana", "sum": 6, "looked": 6, "paid": 2}
        assert result.outputs["notes" if "notes" in result.outputs else "remarks"] == ["looked"]


def test_a_mapping_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("id: sign", "id: check"))
    with Engine(None) as engine:
        waiting(engine, tmp_path)
        for mapping, message in (
            ({"step": {}}, "no section 'step'"),
            ({"steps": ["sign"]}, "maps old names to new ones"),
            ({"steps": {"sing": "check"}}, "no execution to be moved has 'sing'"),
            ({"steps": {"sign": "chekc"}}, "the new flow has no 'chekc'"),
            ({"values": {"inputs": {"x": 1}}}, "values.inputs: the new flow has no 'x'"),
            ({"steps": {"sign": ["check"]}}, "the new flow has no"),
            ({"steps": {"sign": None}}, "'sign' cannot be dropped"),
            ({"steps": {"sign": object()}}, "not plain data"),
            ({"values": {"steps": {}}}, "'values' of a mapping has"),
        ):
            with pytest.raises(UsageError, match=message):
                engine.upgrade(changed, mapping=mapping, check=True)
        (info,) = engine.upgrade(changed, mapping={"steps": None, "values": {}}, check=True)
        assert info["verdict"] == "mapping"


def test_executions_of_another_flow_and_ended_ones_are_not_moved(tmp_path: Path) -> None:
    with Engine(None) as engine:
        id = waiting(engine, tmp_path)
        other = tmp_path / "other.yaml"
        other.write_text("flowengine: 1\nid: other\nsteps: [{id: a, output: 1}]\n")
        assert engine.upgrade(other) == []
        with pytest.raises(Conflict, match="is of the flow 'flow', not 'other'"):
            engine.upgrade(other, id)
        engine.cancel(id)
        changed = edited(tmp_path, ("amount", "sum"))
        assert engine.upgrade(changed) == []
        (info,) = engine.upgrade(changed, id)
        assert (info["verdict"], info["moved"]) == ("ended", False)


def test_what_a_living_process_holds_is_left_alone_and_told(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    store = tmp_path / "store"
    with Engine(store) as engine, Engine(store) as other:
        id = waiting(engine, tmp_path)
        other._host.keeper.acquire(id)
        for check in (True, False):
            (info,) = engine.upgrade(changed, check=check)
            assert (info["verdict"], info["moved"]) == ("held", False)
        other._host.keeper.close()
        (info,) = engine.upgrade(changed)
        assert info["moved"]


def test_replay_of_the_whole_journal_gives_the_state_of_the_snapshot(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("id: sign", "id: check"))
    store = SqliteStore(tmp_path / "flowengine.db")
    with Engine(store) as engine:
        id = waiting(engine, tmp_path)
        engine.upgrade(changed, mapping={"steps": {"sign": "check"}})
        engine.approve(engine.waits().items[0]["id"])
        state = pack(engine._read(id).state)
        with store._database.writing() as connection:
            connection.execute("UPDATE snapshots SET sum = sum + 1")
        assert store.load(id).snapshot is None
        assert pack(engine._read(id).state) == state
        assert engine.prune().executions == 0
        assert pack(engine._read(id).state) == state


def test_forks_and_retries_of_moved_executions_know_both_forms(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    with Engine(None) as engine:
        id = waiting(engine, tmp_path)
        engine.upgrade(changed)
        engine.approve(engine.waits().items[0]["id"])
        engine.signal("paid", 1, execution=id)
        early = engine.fork(id, from_step="sign")
        late = engine.fork(id, from_step="pay")
        engine.approve(early.waits[0]["id"])
        for one in (early, late):
            engine.signal("paid", 1, execution=one.execution)
        added = [engine.result(one.execution).outputs["done"].get("added") for one in (early, late)]  # type: ignore[index]
        assert added == [None, 1]
        assert engine.show(late.execution)["status"] == "succeeded"
        assert engine.diff(id, late.execution)["same"]
        with pytest.raises(Conflict, match="upgraded to another version"):
            engine.fork(id, from_step="pay", flow=edited(tmp_path, ("amount", "sum")))


CHILD = """
import os, sys
from flowengine import Engine
from flowengine.journal.sqlite.store import SqliteStore

commit = SqliteStore.commit

def dying(self, appends):
    if any(one.moved for one in appends):
        if sys.argv[3] == "before":
            os._exit(9)
        commit(self, appends)
        os._exit(9)
    return commit(self, appends)

SqliteStore.commit = dying
with Engine(sys.argv[1]) as engine:
    engine.upgrade(sys.argv[2])
"""


@pytest.mark.endurance
@pytest.mark.parametrize(("when", "version"), [("before", "1"), ("after", "2")])
def test_a_crash_in_the_middle_leaves_it_on_one_side(
    tmp_path: Path, when: str, version: str
) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    store = tmp_path / "store"
    with Engine(store) as engine:
        id = waiting(engine, tmp_path)
    words = [sys.executable, "-c", CHILD, str(store), str(changed), when]
    assert subprocess.run(words, env=dict(os.environ), check=False).returncode == 9
    with Engine(store) as engine:
        assert engine.executions().items[0]["version"] == version
        engine.approve(engine.waits().items[0]["id"])
        result = engine.signal("paid", 1, key=id).result
        assert result is not None
        assert result.outputs is not None
        assert result.outputs["done"].get("added") == (1 if when == "after" else None)


RUNNING = """
steps:
  - id: pay
    run: {argv: [echo, "1"]}
    in: host
    effect: pure
  - {id: done, output: "${{ steps.pay.output.stdout }}"}
outputs: {done: "${{ steps.done.output }}"}
"""


def cut_off(engine: Engine, tmp_path: Path) -> str:
    """Start an execution whose process dies while its first step runs."""
    id = engine.start(world.make(tmp_path, RUNNING))
    found = engine._driving.loaded(id)
    found.apply_queue()
    assert engine._host.journals.commit([found.take(release=True)]) == [None]
    engine._host.keeper.released(id)
    return id


def test_an_attempt_that_was_cut_off_is_run_again_under_the_new_form(tmp_path: Path) -> None:
    with Engine(None) as engine:
        id = cut_off(engine, tmp_path)
        for old, new in (("effect: pure", "effect: once"), ("effect: pure", "on_crash: retry")):
            text = RUNNING.replace(old, new)
            (info,) = engine.upgrade(world.make(tmp_path / "changed", text))
            assert info["verdict"] == "cannot"
            assert "is running or was interrupted" in info["obstacles"][0]["why"]
        text = RUNNING.replace('- {id: done, output: "', '- {id: done, output: "so ')
        (info,) = engine.upgrade(world.make(tmp_path / "changed", text))
        assert (info["moved"], info["status"]) == (True, "succeeded")
        assert engine.result(id).outputs == {"done": "so 1\n"}
        told = [one["type"] for one in engine.events(id)]
        assert told == ["started", "upgraded", "cut", "succeeded"]


def test_what_has_not_begun_is_not_moved(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("amount", "sum"))
    with Engine(None) as engine:
        id = engine.start(world.make(tmp_path, ORDER))
        (info,) = engine.upgrade(changed)
        assert info["verdict"] == "cannot"
        assert f"flowengine resume {id}" in info["obstacles"][0]["why"]


def test_retry_does_not_go_back_over_a_move(tmp_path: Path) -> None:
    broken = 'output: {broken: "${{ [1][steps.pay.output.data] }}", looked'
    text = ORDER.replace("output: {looked", broken)
    with Engine(None) as engine:
        id = waiting(engine, tmp_path, text)
        engine.approve(engine.waits().items[0]["id"])
        (info,) = engine.upgrade(edited(tmp_path, text=text))
        assert info["moved"]
        assert engine.signal("paid", 3, execution=id).result.status == "failed"  # type: ignore[union-attr]
        with pytest.raises(
            Conflict, match="was upgraded to another version of its flow after that"
        ):
            engine.retry(id, step="sign")
        assert engine.retry(id).status == "failed"  # the message is kept, with its error
        assert engine.show(id)["version"] == "2"


async def _moved_on_a_loop(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    async with Engine(None) as engine:
        result = await engine.run_async(world.make(tmp_path, ORDER))
        (info,) = await engine.upgrade_async(changed, check=True)
        assert (info["verdict"], info["moved"]) == ("continues", False)
        (info,) = await engine.upgrade_async(changed)
        assert info["moved"]
        await engine.approve_async(result.waits[0]["id"])
        sent = await engine.signal_async("paid", 3, execution=result.execution)
        assert sent.result is not None
        assert sent.result.outputs is not None
        assert sent.result.outputs["done"]["added"] == 1


def test_executions_are_moved_on_an_event_loop(tmp_path: Path) -> None:
    asyncio.run(_moved_on_a_loop(tmp_path))
