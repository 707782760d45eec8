"""Files that executions keep."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from flowengine.errors import InputError, NotFound
from flowengine.journal.records import ExecutionHead
from flowengine.journal.store import JournalStore
from tests.testing.store_conformance.making import append_event, checks, new_execution, raises, same


@checks
def check_artifacts_are_kept_by_content(store: JournalStore) -> None:
    """Bytes and files are kept, once for each content, under names that are safe."""
    new_execution(store, "e1")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.txt")
        report.write_bytes(b"content")
        artifact = store.put_artifact("e1", report, "report.txt")
    two = store.put_artifact("e1", b"content", "../../etc/a\x00b\nc.txt")
    empty = store.put_artifact("e1", b"", "")

    same((artifact.name, two.name, empty.name), ("report.txt", "abc.txt", "file"), "names")
    same((artifact.size, artifact.sha256), (7, two.sha256), "size and digest")
    same(store.fetch_artifact(artifact.sha256).read_bytes(), b"content", "the bytes")
    same(store.fetch_artifact(empty.sha256).read_bytes(), b"", "no bytes")
    for nothing in ("0" * 64, "", "../" * 20, "/etc/passwd", artifact.sha256.upper()):
        raises(NotFound, partial(store.fetch_artifact, nothing), f"artifact {nothing!r}")
    raises(NotFound, lambda: store.put_artifact("e9", b"x", "x"), "an artifact of no execution")
    raises(InputError, lambda: store.put_artifact("e1", Path("/no/such/file"), "x"), "no file")


@checks
def check_an_execution_has_the_artifacts_that_it_refers_to(store: JournalStore) -> None:
    """Its own, those of its origin, and those that others hand to it. `prune` keeps them."""
    new_execution(store, "e1")
    kept = store.put_artifact("e1", b"kept", "a").sha256
    later = store.put_artifact("e1", b"later", "b").sha256
    new_execution(store, "fork", files_of="e1")
    new_execution(store, "e2")

    same(store.fetch_artifact(kept, "fork").read_bytes(), b"kept", "the fork")
    for nobody in ("e2", "e9"):
        raises(NotFound, lambda id=nobody: store.fetch_artifact(kept, id), "that of another one")  # type: ignore[misc]
    append_event(store, "e2", 1, files=[(kept, "e9"), (later, None), ("0" * 64, None)])
    raises(
        NotFound, lambda: store.fetch_artifact(kept, "e2"), "handed over by who does not have it"
    )
    raises(
        NotFound,
        lambda: store.fetch_artifact("0" * 64, "e2"),
        "an artifact that no execution keeps",
    )
    same(store.fetch_artifact(later, "e2").read_bytes(), b"later", "handed over by a person")
    append_event(store, "e2", 2, files=[(kept, "e1")])
    append_event(store, "e1", 1, head=ExecutionHead("cancelled", 100))
    same(store.prune(100).artifacts, 0, "files that went with the origin")
    same(store.fetch_artifact(kept, "e2").read_bytes(), b"kept", "handed over by its keeper")


@checks
def check_a_file_is_held_until_an_execution_refers_to_it(store: JournalStore) -> None:
    """A file without an execution survives pruning, and an execution can be handed it."""
    held = store.hold_artifact(b"held", "../a.txt")
    same((held.name, held.size), ("a.txt", 4), "the file")
    new_execution(store, "e1")
    new_execution(store, "e2")
    append_event(store, "e2", 1, head=ExecutionHead("cancelled", 50))
    store.prune(100)
    same(store.fetch_artifact(held.sha256).read_bytes(), b"held", "after pruning")
    raises(NotFound, lambda: store.fetch_artifact(held.sha256, "e1"), "before it was handed over")
    append_event(store, "e1", 1, files=[(held.sha256, None)])
    same(store.fetch_artifact(held.sha256, "e1").read_bytes(), b"held", "handed over")
