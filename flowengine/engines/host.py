"""The context shared by all executions of one engine: store, clock, ids, lease, subscribers, …."""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal, Protocol

from flowengine.engines.attempts.environments import Environments
from flowengine.engines.attempts.lines_at_work import LinesAtWork
from flowengine.engines.attempts.printed import PRINTING, Follower, PartWriter
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import Language, LinkedFlow, LinkedFlows
from flowengine.engines.executions.parts import Timers
from flowengine.engines.leases import LeaseKeeper
from flowengine.engines.results import Update, deliver
from flowengine.errors import NotFound
from flowengine.journal.lease_holders import steady_now
from flowengine.journal.records import Loaded, Owner
from flowengine.journal.store import ArtifactPort, JournalStore, Store
from flowengine.journal.writing import JournalPort
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.rules import Called, Verdict
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk.environments import NotReleased
from flowengine.sdk.steps.context import ExecutionContext, File
from flowengine.sdk.steps.previews import Shown
from flowengine.settings import Settings

_LINGER = 60_000
_SHORT_PAUSE = 10_000
"""A pause of this length (ms) is always waited for, as environments stay open meanwhile."""


class Host:
    """The context that executions share in one engine.

    Args:
        store: Contains the executions.
        language: Evaluates expressions.
        rules: The rules of this host.
        environments: Makes the environments of its executions, on first use. None: steps that
            need one fail.
        clock: Returns the time.
        ids: Creates ids.
        settings: Settings of this host.
        workdir: Working directory of the file tools, absolute.
        linger: How long to wait for a timer, in milliseconds. None: for a minute, and for pauses
            of any length.
        ttl: Milliseconds without a heartbeat after which the leases of an owner are free.
        resources: Objects for the steps of all executions. They belong to the caller and are not
            managed.
        offers: Offers of this process to steps that need them.
        reply_writer: Returns what writes the parts of replies of an attempt for readers in other
            processes, by the id of its execution and its address.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        language: Language,
        rules: Rules,
        environments: Callable[[Host], Environments] | None = None,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        workdir: str,
        linger: int | None,
        ttl: int,
        resources: Mapping[str, Any] | None = None,
        offers: Iterable[str] = (),
        reply_writer: Callable[[str, str], PartWriter | None] | None = None,
    ) -> None:
        self.store: Store = store
        self.journals: JournalPort = store
        """Only for code that drives executions."""
        self.rules = rules
        self.offers = frozenset(offers)
        self.clock = clock
        self.ids = ids
        self.settings = settings
        self.workdir = workdir
        self.resources = dict(resources or {})
        self._brought: dict[str, dict[str, Any]] = {}
        """Execution → the objects that the caller provided for it, until the execution has
        ended."""
        self.linger = _LINGER if linger is None else linger
        self._pauses = None if linger is None else max(linger, _SHORT_PAUSE)
        self.keeper = LeaseKeeper(store, ttl)
        self.flows = LinkedFlows(store, language, in_memory=store.location == "memory")
        self.on_not_released: Callable[[str, Sequence[NotReleased]], None] = lambda id, failed: None
        """Called with the id of an execution and its environments that could not be closed."""
        self._make_environments = environments
        self._environments: Environments | None = None
        self._making = allocate_lock()
        self.subscribers: list[Callable[[Update], None]] = []
        self.followers: list[Callable[[Update], None]] = []
        """The subscribers that also receive output and replies as they arrive."""
        self._reply_writer = reply_writer
        self._lines_at_work: dict[str, LinesAtWork] = {}
        """Execution → what its attempts have logged, until all of them have ended."""
        self.traced = False
        """Whether attempts hand on the trace of their execution."""
        self.woken: dict[str, bool] = {}
        """Executions that received a message and must be resumed."""
        self.consultant: CallConsultant | None = None
        """Consults the programs that may decide about calls. None: there is none."""
        self.fork_points: dict[tuple[str, int | None], str | None] = {}
        """Failed executions, by id and end → where a fork must start. None: a retry is possible."""
        self.draining = False
        """Whether this process is being stopped: running attempts end, and no others begin."""
        self.is_closed = False

    def close(self, *, store: bool = True) -> None:
        """Release all held resources. A second call has no effect.

        Args:
            store: Close the store too.
        """
        if not self.is_closed:
            self.is_closed = True
            self.close_environments()
            for execution in list(self._lines_at_work):
                self.attempts_ended(execution, recorded=False)
            self.keeper.close()
            if store:
                self.store.close()

    def close_environments(self) -> None:
        """Close all environments of its executions."""
        if self._environments is not None:
            self._environments.close()

    @property
    def environments(self) -> Environments | None:
        """The environments of its executions, created on first use from any thread, if any."""
        if self._environments is None and self._make_environments is not None:
            with self._making:
                if self._environments is None:
                    self._environments = self._make_environments(self)
        return self._environments

    def may_have_environments(self, context: ExecutionContext, flow: CompiledFlow) -> bool:
        """Return whether an execution has, or may have had, any environment."""
        environments = self._environments
        has_own = "environments" in flow or bool(context.environments)
        return has_own or (environments is not None and environments.has_any(context.id))

    def is_open(self, run: Run, execution: Execution) -> bool:
        """Return whether an attempt may begin unchecked: it has no rules and no approval."""
        if run.approved is not None or run.step in execution.linked.ruled:
            return False
        if execution.outer is not None:
            return False
        return not self.rules.there()

    def stays(self, timers: Timers) -> bool:
        """Return whether to wait for a timer of an execution."""
        now, pauses = self.clock.now(), self._pauses
        return timers.stays(now + self.linger, None if pauses is None else now + pauses)

    def holder(self, execution: str) -> Owner | None:
        """Return the living holder of an execution, if there is one."""
        return self.store.holder(execution, steady_now())

    def deaths(self, execution: str) -> int:
        """Return how many processes that held an execution have died in a row."""
        return self.store.deaths(execution, steady_now())

    def bring(self, execution: str, resources: Mapping[str, Any]) -> None:
        """Keep the caller's objects for an execution, in addition to those that it has."""
        if resources:
            self._brought.setdefault(execution, {}).update(resources)

    def forget(self, execution: str) -> None:
        """Forget the caller's objects for an execution that has ended."""
        self._brought.pop(execution, None)

    def resources_of(self, execution: str) -> Mapping[str, Any]:
        """Return the caller's objects for the steps of an execution, by name."""
        brought = self._brought.get(execution)
        return self.resources if brought is None else {**self.resources, **brought}

    def execution(self, id: str, linked: LinkedFlow, epoch: int, started_by: str = "") -> Execution:
        """Return a new execution object, with the context that its steps can access."""
        compiled = linked.compiled
        version = compiled["version"]
        artifacts = KeptFiles(self.store, id)
        context = ExecutionContext(
            id,
            compiled["id"],
            version,
            self.workdir,
            artifacts,
            lambda address, text: self.say(id, address, text),
            self.resources_of(id),
            lambda text, parts: self.notify(Update(id, "warning", {"text": text, **parts})),
            self.settings.strict,
            started_by=started_by,
            trace="" if self.traced else None,
            lines_at_work=self.lines_at_work,
        )
        read = partial(self.store.events, id)
        steps = self.store.steps(id)
        return Execution(id, linked, context, epoch, self.flows, read, steps)

    def stored(self, id: str, epoch: int) -> Execution:
        """Return an execution as stored.

        Args:
            id: Full id.
            epoch: Epoch of its lease. 0: read only.
        """
        return self.restored(self.store.load(id), epoch)

    def restored(self, loaded: Loaded, epoch: int) -> Execution:
        """Return an execution from its loaded data, as `stored`."""
        record = loaded.record
        execution = self.execution(
            record.id, self.flows.by_hash(record.hash), epoch, record.started_by
        )
        execution.load(loaded)
        return execution

    def notify(self, *updates: Update) -> None:
        """Notify subscribers. A failing subscriber affects no other subscriber and no execution."""
        token = PRINTING.set(None)  # as `unheard`, without its calls: this runs for each event
        try:
            for update in updates:
                for subscriber in list(self.subscribers):
                    deliver(subscriber, update)
        finally:
            PRINTING.reset(token)

    def follower(self, execution: str, address: str, *, is_quick: bool) -> Follower | None:
        """Return the receiver of an attempt's output and reply parts, if anything wants it.

        Subscribers of this process want both, readers in other processes the parts. A quick step
        calls no model, so it has no parts for those.
        """
        write = None if is_quick else self._reply_writer
        writer = None if write is None else write(execution, address)
        if not self.followers and writer is None:
            return None

        def notify(kind: Literal["output", "part"], data: Mapping[str, Any]) -> None:
            for follower in list(self.followers):
                deliver(follower, Update(execution, kind, {"address": address, **data}))

        def lines(stream: str, text: str) -> None:
            notify("output", {"stream": stream, "text": text})

        def part(data: Mapping[str, Any]) -> None:
            if writer is not None:
                writer.write(data)
            notify("part", data)

        end = (lambda: None) if writer is None else writer.close
        return Follower(lines if self.followers else None, part, end)

    def lines_at_work(self, execution: str) -> LinesAtWork | None:
        """Return the logs of an execution's attempts, for the next process if this one dies.

        None: the store does not outlive this process.
        """
        lines = self._lines_at_work.get(execution)
        if lines is None and (folder := self.store.folder) is not None:
            lines = self._lines_at_work.setdefault(execution, LinesAtWork(folder, execution))
        return lines

    def attempts_ended(self, execution: str, *, recorded: bool) -> None:
        """Close the log file of an execution's attempts.

        Args:
            execution: Full id.
            recorded: Whether their ends are on disk. Otherwise the next process needs the file.
        """
        if self._lines_at_work and (lines := self._lines_at_work.pop(execution, None)):
            lines.close(is_over=recorded)

    def say(self, execution: str, address: str, text: str) -> None:
        """Show a text that a step prints, to subscribers or otherwise on standard output."""
        if self.subscribers:
            self.notify(Update(execution, "text", {"address": address, "text": text}))
        else:
            sys.stdout.write(f"{text}\n")


class Rules(Protocol):
    """The rules of a host about calls. See `RuleFiles`."""

    def there(self) -> bool:
        """Return whether there may be any."""

    def look_again(self) -> None:
        """Forget whether there are any, as something that has run may have changed them."""

    def check(self) -> None:
        """Read them, and raise their errors."""

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return their verdict on a call. None: no rule matches."""


class KeptFiles:
    """The files that the steps of one execution keep.

    Args:
        store: Stores the files.
        execution: The execution that owns the files.
    """

    def __init__(self, store: ArtifactPort, execution: str) -> None:
        self._store = store
        self._execution = execution

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file under a name, and return it as data."""
        kept = self._store.put_artifact(self._execution, source, name)
        path = str(self._store.fetch_artifact(kept.sha256))
        return {"path": path, "name": kept.name, "size": kept.size, "sha256": kept.sha256}

    def path(self, sha256: str) -> str:
        """Return the path of a kept file.

        Raises:
            KeyError: The execution has not kept or been handed a file with this digest.
        """
        try:
            return str(self._store.fetch_artifact(sha256, self._execution))
        except NotFound as error:
            raise KeyError(sha256) from error


# The interfaces through which the engines access the outside world.
#
# Time and ids are here. The store is in `flowengine.journal.store`, with a port for each
# guarantee, and the runner of steps is in `flowengine.engines.attempts.runner`. Production and the
# simulator each have one implementation of every interface.

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Reads the time of day."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01T00:00Z. May jump, also backwards."""


class Ids(Protocol):
    """Creates unique ids."""

    def execution(self, now: int) -> str:
        """Return the id of a new execution, created at `now` (ms)."""

    def message(self) -> str:
        """Return the id of a new message."""


class CallConsultant(Protocol):
    """Consults tool authorities about calls before an approver answers."""

    def has_own(self, execution: str) -> bool:
        """Return whether an execution has its own authority, besides that of the engine."""

    async def ask(
        self,
        execution: str,
        wait: str,
        record: Mapping[str, Any],
        preview: Awaitable[Shown],
    ) -> bool:
        """Consult the authority about a call, and return whether it was answered.

        Args:
            execution: Full id.
            wait: Full id of the question.
            record: Record of the question.
            preview: The preview that is being computed.
        """


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // 1_000_000


class RandomIds:
    """ULIDs in lower case: 26 characters, which sort by creation time."""

    def execution(self, now: int) -> str:
        """Return 48 bits of time and 80 random bits, in Crockford's base 32."""
        number = now << 80 | int.from_bytes(os.urandom(10), "big")
        return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -1, -5)])

    def message(self) -> str:
        """Return 128 random bits as hex digits."""
        return os.urandom(16).hex()
