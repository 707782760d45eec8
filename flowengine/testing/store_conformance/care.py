"""Artifacts, and pruning."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from flowengine.errors import InputError, LeaseLost, NotFound, UsageError
from flowengine.journal.records import (
    Append,
    Beginning,
    ExecutionFilter,
    Head,
    NewExecution,
    WaitFilter,
)
from flowengine.journal.store import Store
from flowengine.kernel.notation.ids import wait_id
from flowengine.testing.store_conformance.making import (
    FLOW,
    append_event,
    approval,
    approve,
    checks,
    listed_ids,
    listed_waits,
    new_execution,
    raises,
    same,
)


@checks
def check_artifacts_are_kept_by_content(store: Store) -> None:
    """Bytes and files are kept, once for each content, under safe names."""
    new_execution(store, "e1")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.txt")
        report.write_bytes(b"content")
        one = store.put_artifact("e1", report, "report.txt")
    two = store.put_artifact("e1", b"content", "../../etc/a\x00b\nc.txt")
    empty = store.put_artifact("e1", b"", "")

    same((one.name, two.name, empty.name), ("report.txt", "abc.txt", "file"), "names")
    same((one.size, one.sha256), (7, two.sha256), "size and digest")
    same(store.artifact(one.sha256).read_bytes(), b"content", "the bytes")
    same(store.artifact(empty.sha256).read_bytes(), b"", "no bytes")
    for nothing in ("0" * 64, "", "../" * 20, "/etc/passwd", one.sha256.upper()):
        raises(NotFound, partial(store.artifact, nothing), f"artifact {nothing!r}")
    raises(NotFound, lambda: store.put_artifact("e9", b"x", "x"), "an artifact of no execution")
    raises(InputError, lambda: store.put_artifact("e1", Path("/no/such/file"), "x"), "no file")


@checks
def check_prune_removes_what_ended_long_ago(store: Store) -> None:
    """Executions that ended by a time with a status are pruned, but never open ones."""
    for id, status, at in (
        ("old", "succeeded", 100),
        ("young", "succeeded", 101),
        ("failed", "failed", 100),
        ("open", "waiting", 50),
    ):
        new_execution(store, id, labels={"a": "b"})
        append_event(store, id, 1, opened=[approval(0)], keys=[("paid", id)])
        store.send(id, b"x", 1, "m")
        store.decide(wait_id(id, 0), approve())
        append_event(store, id, 2, head=Head(status, at), snapshot=(2, b"state"))

    pruned = store.prune(100, ["succeeded", "cancelled"])

    same(pruned.executions, 1, "pruned")
    same(listed_ids(store, ExecutionFilter(labels={"a": "b"})), ["open", "failed", "young"], "left")
    same(len(listed_waits(store, WaitFilter("all"))), 3, "their waits")
    raises(NotFound, lambda: store.load("old"), "the pruned one")
    raises(NotFound, lambda: store.wait(wait_id("old", 0)), "its wait")
    (outcome,) = store.commit([Append("old", 1, 3, [(3, b"late")])])
    same(type(outcome), LeaseLost, "a late writer")
    raises(UsageError, lambda: store.prune(100, ["waiting"]), "pruning open executions")
    same(store.prune(1000).executions, 2, "all that ended")
    same(listed_ids(store, ExecutionFilter()), ["open"], "left in the end")
    same(len(store.events("open")), 3, "its journal")


@checks
def check_pruned_ids_are_free(store: Store) -> None:
    """An id can be used again after its execution was pruned, without remains of the old one."""
    new_execution(store, "e1")
    store.send("e1", b"x", 1, "m")
    append_event(store, "e1", 1, head=Head("succeeded", 100), opened=[approval(0)])
    store.prune(100)
    store.put_flow(FLOW, b"compiled")

    new_execution(store, "e1", owner="ben")

    same(len(store.events("e1")), 1, "the journal")
    same(store.send("e1", b"y", 1, "m").first, True, "its first message")
    same(store.waits(WaitFilter("all")).items, [], "waits")


@checks
def check_a_message_may_begin_what_was_pruned_anew(store: Store) -> None:
    """A write to an id affects the execution that has it now, not the one that was pruned."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, head=Head("succeeded", 100))
    store.prune(100)
    store.put_flow(FLOW, b"compiled")
    begin = Beginning("e1", NewExecution(FLOW, "1", FLOW, 200), [("paid", "7")], b"started")
    store.send_keyed("paid", "7", b"x", 200, "m", begin)

    same(store.commit([Append("e1", 0, 0, [(201, b"a")], head=Head("running", 201))]), [None], "it")


@checks
def check_prune_collects_what_nothing_refers_to(store: Store) -> None:
    """Artifacts and flows go with the last execution that refers to them."""
    store.put_flow("other", b"compiled")
    store.put_flow("cached", b"compiled")
    store.remember_source("x", "cached", [])
    new_execution(store, "e1", hash="other")
    new_execution(store, "e2")
    shared = store.put_artifact("e1", b"shared", "a")
    store.put_artifact("e2", b"shared", "a")
    own = store.put_artifact("e1", b"own", "a")
    append_event(store, "e1", 1, head=Head("cancelled", 100))

    pruned = store.prune(100)

    same(tuple(pruned), (1, 1, 3), "pruned")
    same(store.artifact(shared.sha256).read_bytes(), b"shared", "the shared artifact")
    raises(NotFound, lambda: store.artifact(own.sha256), "the artifact of the pruned one")
    raises(NotFound, lambda: store.get_flow("other"), "the flow of the pruned one")
    same((store.get_flow(FLOW), store.get_flow("cached")), (b"compiled", b"compiled"), "flows")


@checks
def check_an_execution_has_the_artifacts_that_it_refers_to(store: Store) -> None:
    """An execution has its artifacts, its origin's and those passed to it, also after `prune`."""
    new_execution(store, "e1")
    kept = store.put_artifact("e1", b"kept", "a").sha256
    later = store.put_artifact("e1", b"later", "b").sha256
    new_execution(store, "fork", files_of="e1")
    new_execution(store, "e2")

    same(store.artifact(kept, "fork").read_bytes(), b"kept", "the fork")
    for nobody in ("e2", "e9"):
        raises(NotFound, lambda id=nobody: store.artifact(kept, id), "that of another one")  # type: ignore[misc]
    append_event(store, "e2", 1, files=[(kept, "e9"), (later, None), ("0" * 64, None)])
    raises(NotFound, lambda: store.artifact(kept, "e2"), "passed on without having it")
    raises(NotFound, lambda: store.artifact("0" * 64, "e2"), "an artifact of no execution")
    same(store.artifact(later, "e2").read_bytes(), b"later", "passed on by a user")
    append_event(store, "e2", 2, files=[(kept, "e1")])
    append_event(store, "e1", 1, head=Head("cancelled", 100))
    same(store.prune(100).artifacts, 0, "files that went with the origin")
    same(store.artifact(kept, "e2").read_bytes(), b"kept", "passed on by its owner")
