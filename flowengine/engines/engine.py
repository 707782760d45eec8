"""The public engine: everything that the command line does, for Python, sync and async.

    with Engine() as engine:
        result = engine.run(flowengine.load("hello.yaml"), {"name": "Ada"})

Calls that may drive an execution come twice: `run` for plain code, `run_async` for code on an event
loop. Calls that only read or write the store (`show`, `list`, `waits`, `events`, ...) are short and
come once; use them from both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from flowengine.engines.flows import Flow
    from flowengine.engines.results import (
        Decision,
        ExecutionInfo,
        Reason,
        Result,
        Sent,
        Update,
        WaitInfo,
    )
    from flowengine.journal.store import Store


class Engine:
    """Runs flows durably in this process; nothing has to be started beside it.

    A context manager in both worlds: `with Engine() as engine`, `async with Engine() as engine`.
    Leaving it stops what still runs - the processes and tasks of running steps are ended, the
    executions are saved and can be resumed - and closes the store.

    Args:
        store: Folder of the store (made if absent), an open `Store`, or None for one in memory.
            Default: `$FLOWENGINE_STORE`, else `.flowengine` in the current folder.
        durability: What a commit survives: `power` (a power cut), `process` (a killed process),
            `none`. Default: the host's settings, else `power`.
        workdir: Folder that the file tools of flows see as theirs. Default: the current one.
        user: Who acts, as `user:NAME`. Default: the login name.
        via: Through what, for the audit of decisions: `python`, `cli`, ...
        stay: Seconds ahead that `run` and its kin stay for waits for time. Pauses of `retry` and
            `loop.every` are always stayed for.
        ttl: Seconds after which an execution whose owner does not move may be taken over.
    """

    def __init__(
        self,
        store: str | PathLike[str] | Store | None = "",
        *,
        durability: str | None = None,
        workdir: str | PathLike[str] | None = None,
        user: str | None = None,
        via: str = "python",
        stay: float = 60.0,
        ttl: float = 15.0,
    ) -> None: ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def close(self) -> None:
        """Save what runs and close the store."""

    # Flows

    def load(self, path: str | PathLike[str]) -> Flow:
        """Read, check and compile a flow file; an unchanged one comes from the store's cache."""
        ...

    # Driving

    def run(
        self,
        flow: Flow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Result:
        """Start an execution and drive it until it ends or only waits.

        The same `id` again goes on with the first execution of that id.
        """
        ...

    async def run_async(
        self,
        flow: Flow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Result:
        """As `run`, on the running event loop; many at once share commits."""
        ...

    def start(
        self,
        flow: Flow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Record a new execution without driving it, and return its id; `resume` goes on."""
        ...

    def resume(self, execution: str, *, on_crash: str | None = None) -> Result:
        """Go on with an execution until it ends or only waits.

        `on_crash` (`retry` or `fail`) answers all questions about uncertain steps at once.
        """
        ...

    async def resume_async(self, execution: str, *, on_crash: str | None = None) -> Result:
        """As `resume`, on the running event loop."""
        ...

    def decide(
        self,
        wait: str,
        choice: str,
        *,
        form: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
        comment: str | None = None,
        attach: Sequence[str | PathLike[str]] = (),
        value: Any = None,
        by: str | None = None,
        resume: bool = True,
    ) -> Decision:
        """Decide on an approval, or answer a question (`retry`, `result` with `value`, `fail`).

        The decision is recorded first; then, with `resume`, the execution goes on in this process
        if no other one holds it. The same decision again is fine; another one is a `Conflict`.
        """
        ...

    async def decide_async(
        self,
        wait: str,
        choice: str,
        *,
        form: Mapping[str, Any] | None = None,
        edits: Mapping[str, Any] | None = None,
        comment: str | None = None,
        attach: Sequence[str | PathLike[str]] = (),
        value: Any = None,
        by: str | None = None,
        resume: bool = True,
    ) -> Decision:
        """As `decide`, on the running event loop."""
        ...

    # approve(wait, **as decide), approve_async: the one choice that counts as approve
    # reject(wait, **as decide), reject_async: the one choice that counts as reject

    def signal(
        self,
        name: str,
        data: Any = None,
        *,
        execution: str | None = None,
        key: str | None = None,
        id: str | None = None,
        by: str | None = None,
        resume: bool = True,
    ) -> Sent:
        """Send a signal to an execution, or to the open one that has the key."""
        ...

    # signal_async

    def cancel(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Cancel; `now` skips `finally` and compensation. An owner elsewhere does it itself."""
        ...

    # cancel_async

    def retry(self, execution: str, *, step: str | None = None, by: str | None = None) -> Result:
        """Start a failed execution again from what failed, or from `step` (an address)."""
        ...

    # retry_async

    def fork(
        self,
        execution: str,
        *,
        at: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        resume: bool = True,
    ) -> Result:
        """Start a new execution from the point where `at` (an address) started in an old one."""
        ...

    # fork_async

    # Looking

    def find(self, prefix: str) -> str:
        """Return the id of the one execution whose id begins so."""
        ...

    def show(self, execution: str, *, step: str | None = None) -> ExecutionInfo:
        """Return all about an execution; with `step` (an address) only that one, in full."""
        ...

    def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[ExecutionInfo]:
        """Return a page of executions, newest first; `after` is the last id of the page before.

        `since` is a time in milliseconds since 1970.
        """
        ...

    def waits(
        self,
        *,
        flow: str | None = None,
        execution: str | None = None,
        assignee: str | None = None,
        batch: str | None = None,
        status: str = "pending",
        kinds: Iterable[str] | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[WaitInfo]:
        """Return a page of waits, oldest first; `after` is the last id of the page before.

        `assignee` (`user:NAME`) gives those that the user may decide, by name or group.
        """
        ...

    def wait(self, wait: str) -> WaitInfo:
        """Return one wait, open or closed, by any unambiguous beginning of its id."""
        ...

    def events(self, execution: str, *, since: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the journal's entries from number `since` on: `{seq, at, type, address?, ...}`."""
        ...

    def why(self, execution: str) -> list[Reason]:
        """Return for each live branch what it waits for, since when, and what would wake it."""
        ...

    def prune(
        self, *, older: float = 0.0, status: Iterable[str] | None = None, dry_run: bool = False
    ) -> list[str]:
        """Delete executions that ended more than `older` seconds ago, and return their ids."""
        ...

    # Being told

    def subscribe(self, callback: Callable[[Update], None]) -> Callable[[], None]:
        """Call `callback` with every update of executions driven here; returns how to stop it."""
        ...

    def updates(self, execution: str | None = None) -> AsyncIterator[Update]:
        """Iterate over updates, of one execution (until its end) or of all driven here."""
        ...
