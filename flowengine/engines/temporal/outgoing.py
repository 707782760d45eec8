"""Requests of an execution to others: keys, claims on locks, grants and messages, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from hashlib import sha256
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.reducers import Unreduced
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.temporal.requests import SHARE, run_as_data
from flowengine.journal.encoding import pack
from flowengine.journal.records import ENDED, Append, LockOperation
from flowengine.kernel.commands import Run
from flowengine.kernel.notation.changes import changed

_PATIENCE = timedelta(seconds=60)


class OutgoingQueue:
    """Passes on the outgoing parts of appends, by local activities, one after the other.

    Args:
        execution: Id of the execution.
        created: When it started (ms).
        store: Its store.
        on_sent: Called when everything was passed on.
        begin: Begins a task.
        resets: The runs of it that have replaced others by *Reset* of Temporal. Each counts its
            requests separately, because those with the next numbers may have been sent before.
    """

    def __init__(
        self,
        execution: str,
        created: int,
        store: MemoryStore,
        on_sent: Callable[[], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        resets: Sequence[str] = (),
    ) -> None:
        self._execution = execution
        self._created = created
        self._store = store
        self._on_sent = on_sent
        self._begin_task = begin
        self._requests: list[dict[str, Any]] = []
        self._numbers, self._names = 0, {"run": resets[-1]} if resets else {}
        self._keys: set[tuple[str, str]] = set()
        self._locks: set[str] = set()
        self._sent = 0
        self._refers = False
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is not passed on yet."""
        return self._task is not None

    @property
    def refers(self) -> bool:
        """Whether files were handed to the execution that attempts cannot read yet."""
        return self._refers

    def restore(self, numbers: int, locks: list[str]) -> None:
        """Continue after an earlier run.

        Args:
            numbers: Number of requests so far.
            locks: The locks on which the execution has claims.
        """
        self._numbers, self._locks = numbers, {*locks}

    def kept(self) -> list[Any]:
        """Return what `restore` takes in another run."""
        return [self._numbers, self.locks]

    def add(self, append: Append, *, is_at_work: bool = False) -> None:
        """Add the outgoing parts of a committed append, and begin to pass them on.

        Args:
            append: The append.
            is_at_work: Whether attempts are still being ended. The claims of an execution that has
                ended are then kept, as far as they were granted, until `leave_locks`.
        """
        at = append.at
        keys = self._store.keys(self._execution)
        for signal, key in sorted(keys - self._keys):
            self._add({"do": "join", "key": [signal, key], "created": self._created})
        for signal, key in sorted(self._keys - keys):
            self._add({"do": "leave", "key": [signal, key]})
        self._keys = keys
        self.claim(append.claims, at)
        if append.files:
            self._refers = True
            self._add({"do": "refer", "files": [*append.files]})
        for sent in self._store.outbox():
            if sent.number > self._sent:
                self._sent = sent.number
                self._add({"do": "deliver", "message": sent})
        if append.head is not None and append.head.status in ENDED:
            if is_at_work:
                self._end_claims(at, is_at_work=True)
            else:
                self.leave_locks(at)
        self._begin()

    def claim(self, claims: Sequence[LockOperation], at: int) -> None:
        """Make claims, such as those that were reserved. See `SharedWorkflow.reserve`."""
        for claim in claims:
            self._locks.add(claim.lock)
            self._add({"do": "claim", "lock": claim.lock, "claim": claim, "at": at})
        self._begin()

    async def add_now(self, request: dict[str, Any]) -> None:
        """Add a request, and wait until it is passed on."""
        self._add(request)
        self._begin()
        await workflow.wait_condition(lambda: not self.busy)

    @property
    def locks(self) -> list[str]:
        """The locks on which the execution has or had claims."""
        return sorted(self._locks)

    def leave_locks(self, at: int) -> None:
        """Release all claims."""
        self._end_claims(at, is_at_work=False)
        self._locks.clear()
        self._begin()

    def leave_keys(self) -> None:
        """Withdraw the execution's keys, which `add` adds again."""
        for signal, key in sorted(self._keys):
            self._add({"do": "leave", "key": [signal, key]})
        self._keys = set()
        self._begin()

    def _end_claims(self, at: int, *, is_at_work: bool) -> None:
        for lock in self.locks:
            self._add({"do": "end", "lock": lock, "at": at, "is_driven": is_at_work})

    def _begin(self) -> None:
        if self._requests and self._task is None:
            self._task = self._begin_task(self._pass_on())

    def _add(self, request: dict[str, Any]) -> None:
        request |= {"execution": self._execution, "number": self._numbers, **self._names}
        self._numbers += 1
        self._requests.append(request)

    async def _pass_on(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            await _recorded()
            refused = await workflow.execute_local_activity(
                SHARE, requests, start_to_close_timeout=_PATIENCE
            )
            for number, why in refused:
                self._store.acknowledge(number, why)
        self._task, self._refers = None, False
        self._on_sent()


async def _recorded() -> None:
    """Wait until what this workflow task has decided is part of the history.

    A local activity has its effects before. If the task then fails, or its worker dies, another
    task has the events that have come since, too, and takes a signal among them first. It may have
    other requests, and give them numbers that were sent. Any answer of the server to a command
    shows that the task is part of the history. A signal to oneself is refused by the server at
    once. So it needs no free place of a worker, as an activity would, and leaves few events.
    """
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(workflow.info().workflow_id).signal("recorded")


# The inputs of attempts: the kernel's commands as bytes.


def fixed(run: Run) -> Run:
    """Return a command whose state does not change with that of the execution."""
    if run.state is None:
        return run
    state = {
        key: [*value] if isinstance(value, list) else value for key, value in run.state.items()
    }
    return run._replace(state=state)


class Inputs:
    """The inputs of one execution's attempts.

    The state of an agent contains its conversation. To replay a history with thousands of turns,
    the size of each input must be known, so the messages are measured once, and not packed again.

    Args:
        execution: The execution.
        resets: The runs of it that have replaced others by *Reset* of Temporal.
    """

    def __init__(self, execution: Execution, resets: Sequence[str] = ()) -> None:
        self._execution = execution
        self._resets = [[*resets]] if resets else []
        self._lists: dict[str, tuple[int, Any, int]] = {}
        """State key → number of measured items of its list, the last one, and their bytes."""

    def packed(self, run: Run) -> bytes:
        """Return the input of an attempt, as short as possible."""
        linked = self._execution.linked
        secrets = "secrets" in linked.compiled or "flows" in linked.compiled
        data = run_as_data(run, secrets=secrets)
        context = self._execution.context
        return pack([linked.hash, context.workdir, context.identity, data, *self._resets])

    def size(self, run: Run) -> int:
        """Return the length of the input of an attempt."""
        lists = {key: value for key, value in (run.state or {}).items() if isinstance(value, list)}
        if not lists:
            return len(self.packed(run))
        state: dict[str, Any] = {**(run.state or {}), **dict.fromkeys(lists, None)}
        rest = len(self.packed(run._replace(state=state)))  # with one byte for each list
        return rest + sum(self._size_of(*item) - 1 for item in lists.items())

    def _size_of(self, key: str, items: list[Any]) -> int:
        """Return the length of a packed list, to which items may have been appended."""
        count, last, size = self._lists.get(key, (0, None, 0))
        if not isinstance(last, dict) or len(items) < count or items[count - 1] is not last:
            count, size = 0, 0
        size += sum(len(pack(item)) for item in items[count:])
        self._lists[key] = len(items), items[-1] if items else None, size
        return size + _head(len(items))


def _head(count: int) -> int:
    """Return the bytes before the items of a packed list."""
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5


# Reducers in Python, whose functions must not run inside a workflow.
#
# The kernel asks for the result of such a function while it applies an event. If the result is not
# known, the event is put back, a worker calls the function, and the event is applied again.

_KNOWN: ContextVar[Iterator[Any]] = ContextVar("known")
"""The results for the event that is being applied, in order."""


@contextmanager
def known(results: Sequence[Any]) -> Iterator[None]:
    """Use results of functions, each a change of the old value, while an event is applied."""
    token = _KNOWN.set(iter(results))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def remembered(reducer: dict[str, str]) -> Callable[[Any, Any], Any]:
    """Return a function that returns known results of a reducer, instead of calling it."""

    def reduce(old: Any, new: Any) -> Any:
        result = next(_KNOWN.get(), None)
        if result is None:
            raise Unreduced(reducer, old, new)
        return changed(old, result)

    return reduce


# Texts of approved tools without an object store: small ones are part of the history.

LONGEST = 64_000
"""Maximum bytes of a text to keep. Of longer ones, only the digest is known."""
MOST = 256_000
"""Maximum bytes of all texts of an execution."""


class NewTexts:
    """Takes the place of an execution's files while a call is described."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        """Digest → text."""

    def put(self, source: bytes, name: str) -> dict[str, Any]:
        """Keep a text, if it is not too long, and return its digest as a file would."""
        digest = sha256(source).hexdigest()
        if len(source) <= LONGEST:
            self.kept[digest] = source
        return {"name": name, "size": len(source), "sha256": digest}


def add(texts: dict[str, bytes], more: Mapping[str, bytes]) -> None:
    """Add texts to those of an execution, as long as there is room."""
    room = MOST - sum(map(len, texts.values()))
    for digest, text in more.items():
        if digest not in texts and len(text) <= room:
            texts[digest] = text
            room -= len(text)
