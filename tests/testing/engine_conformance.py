"""The conformance suite for engines: for executions in a directory, in Temporal, and yours.

It needs no access to journals. Each check takes a function that opens an engine on the same store,
as another process would, and raises `AssertionError` if the engine breaks the rule that the check's
docstring states. The store may contain other executions. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_engine_conforms(check):
        check(lambda: Engine(my_store))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict, FlowEngineError, NotFound

__all__ = ["CHECKS", "Check", "MakeEngine", "check_engine"]

MakeEngine = Callable[[], Engine]
"""Opens an engine. Each call opens another one, on the same store."""
Check = Callable[[MakeEngine], None]

LONGEST_LAG = 30.0
"""Seconds that a list may lag behind, and an execution may take to rest."""
T = TypeVar("T")

SIGNED = """
inputs: {n: {type: integer, default: 1}}
steps:
  - {id: first, output: "${{ inputs.n + 1 }}"}
  - {id: sign, approval: {title: Continue?}}
  - {id: last, output: "${{ steps.first.output * 2 }}"}
outputs: {n: "${{ steps.last.output }}"}
"""
PAID = """
inputs: {order: {type: string}}
signals: {paid: {key: "${{ inputs.order }}", data: {type: integer}}}
start: [{signal: paid, with: {order: "${{ signal.key }}"}}]
steps:
  - {id: pay, wait: {signal: paid}}
  - {id: sign, approval: {title: Continue?}}
outputs: {paid: "${{ steps.pay.output.data }}"}
"""
TIMED = """
steps:
  - {id: pause, wait: 20ms}
  - {id: sign, approval: {title: Continue?, expires: 20ms, on_expire: approve}}
  - {id: each, map: 3, output: "${{ item * item }}"}
outputs: {squares: "${{ steps.each.output }}", by: "${{ steps.sign.outcome }}"}
"""
FAILING = """
inputs: {file: {type: string}}
steps:
  - {id: sign, approval: {title: Continue?}}
  - id: look
    run: {script: 'test -e "$FILE"', env: {FILE: "${{ inputs.file }}"}}
    in: host
  - {id: last, output: done}
outputs: {n: "${{ steps.last.output }}"}
"""
LOCKED = """
inputs: {key: {type: string}}
steps:
  - id: alone
    lock: {key: "${{ inputs.key }}", scope: global}
    group: [{id: sign, approval: {title: Continue?}}]
"""


def check_a_flow_runs_and_can_be_read_by_others(make: MakeEngine) -> None:
    """`run` returns when an execution has to wait or has ended, and any engine can read it."""
    with flow(SIGNED) as path, make() as engine:
        result = engine.run(path, {"n": 4}, id=unique())
        same((result.status, len(result.waits)), ("waiting", 1), "the execution")
        after = engine.approvals.approve(result.waits[0]["id"]).result
        assert after is not None, "a decision resumes the execution"
        same((after.status, after.outputs), ("succeeded", {"n": 10}), "the end")
        with make() as other:
            for one in (engine, other):
                shown = one.executions.show(result.execution)
                same((shown["status"], shown["outputs"]), ("succeeded", {"n": 10}), "`show`")
                steps = {step["address"]: step["status"] for step in shown["steps"]}
                same(steps, dict.fromkeys(("first", "sign", "last"), "succeeded"), "its steps")
            events = [list(one.executions.events(result.execution)) for one in (engine, other)]
        same(events[0], events[1], "the history for two engines")
        same(events[0][0]["type"], "started", "the first event")


def check_an_execution_outlives_its_engine(make: MakeEngine) -> None:
    """An engine that did not start a waiting execution continues it."""
    with flow(SIGNED) as path:
        with make() as engine:
            result = engine.run(path, id=unique())
        with make() as other:
            same(
                other.executions.result(result.execution).waits,
                result.waits,
                "its waits",
            )
            after = other.approvals.approve(result.waits[0]["id"]).result
        assert after is not None, "a decision resumes the execution"
        same(after.outputs, {"n": 4}, "its outputs")


def check_an_id_starts_one_execution(make: MakeEngine) -> None:
    """The same id with the same inputs is the same execution, with others it is refused."""
    with flow(SIGNED) as path, make() as engine:
        id = unique()
        first = engine.run(path, {"n": 1}, id=id)
        same(engine.run(path, {"n": 1}, id=id).waits, first.waits, "the same start")
        refused(Conflict, lambda: engine.run(path, {"n": 2}, id=id), "other inputs")
        refused(NotFound, lambda: engine.executions.show(f"{id}-none"), "an unknown id")


def check_the_first_decision_counts(make: MakeEngine) -> None:
    """Of decisions made at once by several engines, all learn which one took effect."""
    with flow(SIGNED) as path, make() as one, make() as other, ThreadPoolExecutor(2) as threads:
        result = one.run(path, id=unique())
        wait = result.waits[0]["id"]
        made = [
            threads.submit(
                outcome, lambda: one.approvals.approve(wait, by="user:ana", resume=False)
            ),
            threads.submit(
                outcome, lambda: other.approvals.reject(wait, by="user:ben", resume=False)
            ),
        ]
        took_effect = [future.result() for future in made]
        same(sorted(took_effect), ["Conflict", "Decision"], "the decisions")
        status = one.resume(result.execution).status
        expected = "succeeded" if took_effect[0] == "Decision" else "failed"
        same(status, expected, "the execution")
        refused(
            Conflict,
            lambda: one.executions.cancel(result.execution),
            "a message to an execution that has ended",
        )


def check_a_message_counts_once(make: MakeEngine) -> None:
    """A message is received once, by id and by key, and only an execution that is open."""
    with flow(PAID) as path, make() as engine:
        key = unique()
        id = engine.run(path, {"order": key}, id=unique()).execution
        first = engine.signal("paid", 5, key=key, id="m")
        same((first.execution, first.first), (id, True), "the first message")
        same(engine.signal("paid", 5, key=key, id="m").first, False, "the same message")
        refused(Conflict, lambda: engine.signal("paid", 6, key=key, id="m"), "with other data")
        [wait] = engine.resume(id).waits
        engine.approvals.approve(wait["id"])
        same(engine.executions.result(id).outputs, {"paid": 5}, "the data that it received")
        refused(NotFound, lambda: engine.signal("paid", 5, key=key), "an unknown key")


def check_a_message_starts_a_deployed_flow(make: MakeEngine) -> None:
    """The first message with a key starts an execution, which receives the next one."""
    with flow(PAID) as path, make() as engine, make() as other:
        name = engine.flows.deploy(path)["flow"]
        key = unique()
        begun = engine.signal("paid", 1, key=key, id="m1")
        same(begun.began, True, "the first message")
        again = other.signal("paid", 2, key=key, id="m2")
        same((again.began, again.execution), (False, begun.execution), "the second message")
        engine.flows.undeploy(name)
        refused(NotFound, lambda: engine.signal("paid", 1, key=unique()), "an undeployed flow")
        engine.executions.cancel(begun.execution)


def check_timers_fire(make: MakeEngine) -> None:
    """Pauses end and approvals expire without a caller."""
    with flow(TIMED) as path, make() as engine:
        result = engine.run(path, id=unique())
        result = result if result.ended else engine.resume(result.execution)
        same(result.outputs, {"squares": [0, 1, 4], "by": "approve"}, f"the outputs of {result}")


def check_failures_are_retried_and_forked(make: MakeEngine) -> None:
    """A retry continues where it failed, and a fork has the past of another execution."""
    with flow(FAILING) as path, make() as engine:
        file = path.parent / "made"
        result = engine.run(path, {"file": str(file)}, id=unique())
        engine.approvals.approve(result.waits[0]["id"])
        same(engine.executions.result(result.execution).status, "failed", "the execution")
        file.touch()
        retried = engine.executions.retry(result.execution)
        same((retried.status, retried.outputs), ("succeeded", {"n": "done"}), "the retry")
        refused(
            Conflict, lambda: engine.executions.retry(result.execution), "a retry of what succeeded"
        )
        forked = engine.executions.fork(result.execution, from_step="look", id=unique())
        same(forked.outputs, {"n": "done"}, "the fork")
        same(
            engine.executions.show(forked.execution)["forked_from"] is not None, True, "its origin"
        )


def check_a_cancelled_execution_ends(make: MakeEngine) -> None:
    """Its waits can no longer be decided, and it receives no more messages."""
    with flow(SIGNED) as path, make() as engine:
        result = engine.run(path, id=unique())
        same(engine.executions.cancel(result.execution).status, "cancelled", "the execution")
        wait = result.waits[0]["id"]
        refused(Conflict, lambda: engine.approvals.approve(wait), "a decision")
        refused(
            Conflict, lambda: engine.executions.cancel(result.execution), "a second cancellation"
        )


def check_lists_have_filters_and_pages(make: MakeEngine) -> None:
    """Executions are found by flow, label and status, and their waits by execution."""
    with flow(SIGNED) as path, make() as engine:
        name = engine.load(path).id
        ids = [engine.run(path, id=unique(), labels={"n": str(n)}).execution for n in range(3)]
        eventually(lambda: len(engine.executions.list(flow=name, status="waiting").items) == 3)
        pages = [engine.executions.list(flow=name, limit=2)]
        pages.append(engine.executions.list(flow=name, limit=2, after=pages[0].next))
        listed = [row["execution"] for page in pages for row in page.items]
        same((listed, pages[1].next), (ids[::-1], None), "pages, newest first")
        labelled = engine.executions.list(flow=name, labels={"n": "1"}).items
        same([row["execution"] for row in labelled], [ids[1]], "executions with a label")
        waits = engine.approvals.list(execution=ids[0]).items
        same([wait["address"] for wait in waits], ["sign"], "waits of an execution")
        engine.approvals.approve(waits[0]["id"])
        same(engine.approvals.list(execution=ids[0]).items, [], "waits after a decision")


def check_shared_locks_have_one_holder(make: MakeEngine) -> None:
    """An execution waits for a lock until the one that holds it has released it."""
    with flow(LOCKED) as path, make() as engine:
        key = unique()
        one = engine.run(path, {"key": key}, id=unique())
        other = engine.start(path, {"key": key}, id=unique())
        same(engine.resume(other).waits, [], "waits of the execution without the lock")
        engine.approvals.approve(one.waits[0]["id"])
        eventually(lambda: len(engine.resume(other).waits) == 1)
        [wait] = engine.executions.result(other).waits
        after = engine.approvals.approve(wait["id"]).result
        same(after and after.status, "succeeded", "the execution that waited")


CHECKS: list[Check] = [
    check for name, check in list(globals().items()) if name.startswith("check_")
]
"""All checks."""


def check_engine(make: MakeEngine) -> None:
    """Run all checks.

    Args:
        make: Opens an engine.
    """
    for check in CHECKS:
        check(make)


@contextmanager
def flow(text: str) -> Iterator[Path]:
    """Write a flow with its own id to a file."""
    with TemporaryDirectory(prefix="flowengine-") as folder:
        path = Path(folder, "flow.yaml")
        path.write_text(f"flowengine: 1\nid: conformance_{os.urandom(4).hex()}\n{text}")
        yield path


def unique() -> str:
    """Return an id that no other check has used."""
    return f"conformance-{os.urandom(6).hex()}"


def same(actual: T, expected: T, what: str) -> None:
    """Check a value.

    Raises:
        AssertionError: It is not the expected one.
    """
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def refused(kind: type[FlowEngineError], call: Callable[[], Any], what: str) -> None:
    """Check that a call is refused.

    Raises:
        AssertionError: It raises no such error.
    """
    same(outcome(call), kind.__name__, what)


def outcome(call: Callable[[], Any]) -> str:
    """Return the type of a call's result or error."""
    try:
        return type(call()).__name__
    except FlowEngineError as error:
        return type(error).__name__


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: It is not, for too long.
    """
    until = time.monotonic() + LONGEST_LAG
    while not is_so():
        if time.monotonic() > until:
            raise AssertionError("the engine does not get there")
        time.sleep(0.02)
