"""`start`: a message goes to the open execution with its key, or else starts one (F93)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict, FlowFileError, InputError, NotFound, UsageError
from flowengine.journal.encoding import unpack
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import child, world
from tests.engines.world import Clock
from tests.testing.faulty_store import FaultyStore, ProcessDied

TIMES = 200
ORDER = """
inputs:
  order: {type: string}
  customer: {type: string}
start:
  - signal: placed
    with: {order: "${{ signal.key }}", customer: "${{ signal.data.customer }}"}
signals:
  placed:
    key: ${{ inputs.order }}
    data: {type: object, properties: {customer: {type: string}}, required: [customer]}
  paid: {key: "${{ inputs.order }}"}
state: {again: {type: array, default: [], reducer: append}}
steps:
  - {id: pay, wait: {signal: paid}, next: end_all}
  - {id: more, trigger: placed, set: {again: "${{ signal.data.customer }}"}}
outputs: {customer: "${{ inputs.customer }}", again: "${{ state.again }}"}
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me") as engine:
        yield engine


def test_the_first_message_begins_an_execution_and_the_second_goes_to_it(
    engine: Engine, tmp_path: Path
) -> None:
    engine.deploy(world.make(tmp_path, ORDER))
    assert engine.starts() == [{"flow": "flow", "signal": "placed"}]
    first = engine.signal("placed", {"customer": "ada"}, key="7")
    second = engine.signal("placed", {"customer": "bob"}, key="7")
    other = engine.signal("placed", {"customer": "eve"}, key="8")
    assert (first.began, second.began, other.began) == (True, False, True)
    assert first.execution == second.execution != other.execution
    ended = engine.signal("paid", key="7").result
    assert ended is not None
    assert ended.outputs == {"customer": "ada", "again": ["bob"]}


def test_what_begins_an_execution_comes_first_also_when_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with Engine(None, user="user:me", clock=clock) as engine:
        engine.deploy(world.make(tmp_path, ORDER))
        sent = engine.signal("placed", {"customer": "ada"}, key="7", resume=False)
        clock.time -= 3_600_000
        engine.signal("placed", {"customer": "bob"}, key="7", resume=False)
        engine.signal("paid", key="7", resume=False)
        ended = engine.resume(sent.execution)
    assert ended.status == "succeeded"
    assert ended.outputs == {"customer": "ada", "again": ["bob"]}


@pytest.mark.parametrize("back", [0, 3_600_000])
def test_what_begins_an_execution_comes_before_the_place_it_was_given(
    tmp_path: Path, back: int
) -> None:
    """The store grants or revokes a free place before it stores the message."""
    clock = Clock()
    file = world.make(tmp_path, ORDER)
    bound = "concurrency: {key: all, max: 1, then: cancel}"
    file.write_text(file.read_text().replace("state:", f"{bound}\nstate:"))
    with Engine(None, user="user:me", clock=clock) as engine:
        engine.deploy(file)
        ids = []
        for key in ("7", "8"):
            first = engine.signal("placed", {"customer": "ada"}, key=key, resume=False)
            for who in ("bob", "eve"):
                clock.time -= back
                engine.signal("placed", {"customer": who}, key=key, resume=False)
            ids.append(first.execution)
        kinds = [unpack(message.event)["type"] for message in engine.store.inbox(ids[0])]
        assert kinds == ["granted", "started", "message", "message", "cancel"]
        assert engine.resume(ids[0]).status == "cancelled"
        taken = [event["type"] for event in engine.events(ids[0])]
        assert taken == ["started", "granted", "message", "message", "cancel"]

        engine.signal("paid", key="8", resume=False)
        ended = engine.resume(ids[1])
    assert ended.outputs == {"customer": "ada", "again": ["bob", "eve"]}


def test_a_request_to_end_is_no_older_than_what_came_before_it(tmp_path: Path) -> None:
    """This includes a message that starts the requester: a timer due earlier fires first."""
    clock = Clock()
    text = ORDER.replace("start:", "concurrency: {key: all, max: 1, then: cancel}\nstart:")
    text = text.replace("{signal: paid}", "{first: [{id: p, signal: paid}, {id: t, for: 1h}]}")
    with Engine(None, user="user:me", clock=clock) as engine:
        engine.deploy(world.make(tmp_path, text))
        first = engine.signal("placed", {"customer": "ada"}, key="7")
        clock.time += 7_200_000
        engine.signal("placed", {"customer": "ada"}, key="8", resume=False)
        ended = engine.resume(first.execution)
    assert ended.status == "succeeded", "it had ended before it was asked to"


def test_a_message_for_one_that_has_ended_begins_another(engine: Engine, tmp_path: Path) -> None:
    engine.deploy(world.make(tmp_path, ORDER))
    first = engine.signal("placed", {"customer": "ada"}, key="7")
    engine.signal("paid", key="7")
    with pytest.raises(NotFound, match="and no flow starts one"):
        engine.signal("paid", key="7")
    second = engine.signal("placed", {"customer": "ada"}, key="7")
    assert second.began
    assert second.execution != first.execution


def test_the_same_message_again_begins_nothing(engine: Engine, tmp_path: Path) -> None:
    flow = engine.load(world.make(tmp_path, ORDER))
    sent = [
        engine.signal("placed", {"customer": "ada"}, key="7", id="m1", flow=flow) for _ in range(2)
    ]
    assert [one.began for one in sent] == [True, False]
    assert sent[0].execution == sent[1].execution
    assert engine.signal("paid", key="7").result is not None
    again = engine.signal("placed", {"customer": "ada"}, key="7", id="m1")
    assert (again.began, again.execution) == (False, sent[0].execution)
    assert len(engine.executions().items) == 1


def test_another_message_of_the_id_that_began_one_is_a_conflict(tmp_path: Path) -> None:
    for place in (None, tmp_path / "store"):
        with Engine(place) as engine:
            flow = engine.load(world.make(tmp_path, ORDER))
            for resume in (False, True):  # from the inbox, then from the journal
                engine.signal(
                    "placed", {"customer": "ada"}, key="7", id="m1", flow=flow, resume=resume
                )
                with pytest.raises(Conflict, match='\'customer\' is "ada" there and "bob" here'):
                    engine.signal("placed", {"customer": "bob"}, key="7", id="m1")
            assert engine.signal("paid", key="7").result is not None
            with pytest.raises(Conflict, match="'m1' of signal 'placed' was sent before"):
                engine.signal("placed", {"customer": "bob"}, key="7", id="m1")
            [one] = engine.executions().items
            assert engine.result(one["execution"]).outputs == {"customer": "ada", "again": []}


def test_nothing_begins_for_a_message_that_does_not_fit(engine: Engine, tmp_path: Path) -> None:
    engine.deploy(world.make(tmp_path, ORDER))
    with pytest.raises(InputError, match="signal 'placed'"):
        engine.signal("placed", {"customer": 7}, key="7")
    with pytest.raises(InputError, match="signal 'placed'"):
        engine.signal("placed", key="7")
    with pytest.raises(NotFound):
        engine.signal("moved", key="7")
    assert not engine.executions().items


def test_the_key_must_come_out_as_that_of_the_message(engine: Engine, tmp_path: Path) -> None:
    other = ORDER.replace('order: "${{ signal.key }}"', 'order: "${{ signal.data.customer }}"')
    engine.deploy(world.make(tmp_path, other))
    with pytest.raises(InputError, match=r"has the key '7', but .* has the key 'ada'"):
        engine.signal("placed", {"customer": "ada"}, key="7")
    assert not engine.executions().items
    assert engine.signal("placed", {"customer": "7"}, key="7").began


def test_of_several_flows_one_has_to_be_named(engine: Engine, tmp_path: Path) -> None:
    file = world.make(tmp_path, ORDER)
    other = tmp_path / "other.yaml"
    other.write_text(file.read_text().replace("id: flow", "id: audit"))
    engine.deploy(file)
    engine.deploy(other)
    with pytest.raises(Conflict, match="several flows: audit, flow"):
        engine.signal("placed", {"customer": "ada"}, key="7")
    sent = engine.signal("placed", {"customer": "ada"}, key="7", flow=other)
    assert engine.result(sent.execution).flow == "audit"


def test_a_flow_that_is_deployed_again_begins_as_it_says_now(
    engine: Engine, tmp_path: Path
) -> None:
    file = world.make(tmp_path, ORDER)
    engine.deploy(file)
    file.write_text(file.read_text().replace("id: flow", 'id: flow\nversion: "2"'))
    engine.deploy(file)
    sent = engine.signal("placed", {"customer": "ada"}, key="7")
    assert engine.show(sent.execution)["version"] == "2"
    text = file.read_text().replace('version: "2"', 'version: "3"')
    file.write_text(text[: text.index("start:")] + text[text.index("signals:") :])
    engine.deploy(file)
    with pytest.raises(NotFound):
        engine.signal("placed", {"customer": "ada"}, key="8")


def test_two_first_messages_at_once_begin_one_execution(tmp_path: Path) -> None:
    """From two processes, many times: the second message goes to the first one's execution."""
    store = tmp_path / "store"
    with Engine(store) as engine:
        engine.deploy(world.make(tmp_path, ORDER))
    barrier = child.CONTEXT.Barrier(2)
    both = [
        child.start(child.send_at_once, str(store), barrier, who, TIMES) for who in ("ada", "bob")
    ]
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    with Engine(store) as engine:
        page = engine.executions(limit=2 * TIMES)
        assert len(page.items) == TIMES
        firsts = set()
        for one in page.items[::10]:
            key = engine.resume(one["execution"]).waits[0]["signals"][0]["key"]
            ended = engine.signal("paid", key=key).result
            assert ended is not None
            assert ended.outputs is not None
            [second] = ended.outputs["again"]
            assert {ended.outputs["customer"], second} == {"ada", "bob"}
            firsts.add(second)
        assert all(len(engine.store.inbox(one["execution"])) in (0, 2) for one in page.items)


def test_a_crash_at_any_write_loses_no_first_message_and_begins_none_twice(
    tmp_path: Path,
) -> None:
    file = world.make(tmp_path, ORDER)
    for crash in range(40):
        store = FaultyStore(faults={crash: "die after" if crash % 2 else "die before"})
        for _ in range(2):
            with suppress(ProcessDied), Engine(store) as engine:
                engine.signal("placed", {"customer": "ada"}, key="7", id="m", flow=file)
                engine.signal("placed", {"customer": "bob"}, key="7", id="n")
                engine.signal("paid", key="7", id="p")
            store.restart()
        writes, store.faults = store.writes, {}
        with Engine(store) as engine:
            [one] = engine.executions().items
            outputs = engine.resume(one["execution"]).outputs
        assert outputs == {"customer": "ada", "again": ["bob"]}, crash
        if writes <= crash:
            return
    raise AssertionError("it never came through")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (('customer: "${{ signal.data.customer }}"', ""), "E402.*'customer' is not given"),
        (('customer: "${{ signal.data', 'custom: "${{ signal.data'), "E402.*no input 'custom'"),
        (("signal.data.customer", "signal.data.custom"), "E301"),
        (("  - signal: placed\n", "  - signal: place\n"), "E401.*no signal 'place'"),
        (("    key: ${{ inputs.order }}\n", ""), "E103.*'placed' has no key"),
        (("  - signal: placed\n", "  - schedule: 0 9 * * 1\n"), "E301.*signal"),
        (("signal.key", "inputs.order"), "E301"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: tuple[str, str], error: str) -> None:
    with Engine(None) as engine, pytest.raises(FlowFileError, match=f"(?s){error}"):
        engine.load(world.make(tmp_path, ORDER.replace(*change, 1)))


def test_a_flow_goes_with_a_key_only(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        engine.signal("placed", flow=world.make(tmp_path, ORDER))


def test_pruning_keeps_what_messages_begin(tmp_path: Path) -> None:
    file = world.make(tmp_path, ORDER)
    with Engine(tmp_path / "store") as engine:
        engine.deploy(file)
        engine.prune()
        assert isinstance(engine.store, SqliteStore)
        assert engine.signal("placed", {"customer": "ada"}, key="7").began
