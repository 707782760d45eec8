"""Creation of an execution that is not driven yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowengine.errors import NotFound
from flowengine.journal.records import Append, Beginning, Head

if TYPE_CHECKING:
    from flowengine.journal.store import JournalStore


def begin(store: JournalStore, beginning: Beginning, files: Sequence[tuple[bytes, str]]) -> None:
    """Implement `InboxPort.begin` for a store with journals.

    If a process dies between two of the writes, the execution has no events. The next call
    completes it.
    """
    id, new, keys, event, claims = beginning
    at = new.created_at
    append = Append(id, 0, 0, new=new, head=Head("running", at), keys=keys, claims=claims)
    (refusal,) = store.commit([append])
    if refusal is not None:
        try:
            store.execution(id)
        except NotFound:
            raise refusal from None
        if store.events(id, limit=1):
            return
    for content, name in files:
        store.put_artifact(id, content, name)
    store.send(id, event, at, "started")
