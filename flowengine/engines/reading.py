"""The read-only part of the public engine. It drives no execution and writes nothing."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from typing import Any, Protocol, get_args

from flowengine.engines import asking, inspection
from flowengine.engines.actors import Actor
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import forms, read, walk
from flowengine.engines.executions.views import entry_view, result_of
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.folds import Folds
from flowengine.engines.host import Host
from flowengine.engines.infos import (
    EVENT_TYPES,
    Difference,
    EventFilter,
    ExecutionInfo,
    ExecutionPage,
    Reason,
    StepFilter,
    StepOrder,
    StoreEvent,
)
from flowengine.engines.inspection.marks import marks
from flowengine.engines.inspection.steps import Steps
from flowengine.engines.inspection.unattended import left, listed_view, page
from flowengine.engines.interventions.fork_points import form_then, past_of
from flowengine.engines.results import ExecutionResult, Status, Update
from flowengine.engines.running.driving import Driving
from flowengine.errors import UsageError
from flowengine.journal.records import ENDED, ExecutionFilter
from flowengine.journal.shapes import Sound
from flowengine.journal.store import JournalStore, Store
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.python.argument_checks import check_one_of
from flowengine.util.garbage import CollectedLater

STATUSES = (
    *("recorded", "running", "interrupted", "waiting"),
    *("stalled", "quarantined", "succeeded", "failed", "cancelled"),
)
"""All statuses of an execution: `flowengine.engines.results.Status`."""
LONGEST_SEARCH = 200
"""Characters of a text to search for."""
_PART = 1 << 20


class GroupsOwner(Protocol):
    """The engine, as its groups see it."""

    user: str
    _host: Host
    _driving: Driving

    @property
    def _consultant(self) -> asking.tool_authority.Consultant: ...

    def _who(self, by: str | None) -> Actor: ...

    def _other(self, to: str | PathLike[str]) -> JournalStore: ...


class Group:
    """A part of the public engine: the operations on one kind of thing.

    Args:
        engine: The engine, whose user acts.
    """

    def __init__(self, engine: GroupsOwner) -> None:
        self._engine = engine
        self._host = engine._host
        self._driving = engine._driving
        self._who = engine._who

    @property
    def store(self) -> Store:
        """The store, for operations that the engine does not offer."""
        return self._host.store


class StoredExecutions(Group):
    """Shows executions as stored."""

    def find(self, beginning: str) -> str:
        """Return the id of the only execution whose id has this prefix."""
        return self._host.store.find_execution(beginning)

    def download(self, execution: str, sha256: str) -> Iterator[bytes]:
        """Yield the content of a file that an execution keeps.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            sha256: The digest of the file, from the value that names it.

        Raises:
            NotFound: The execution keeps no such file.
        """
        with self.store.open_artifact(sha256, self.find(execution)) as file:
            while part := file.read(_PART):
                yield part

    def result(self, execution: str) -> ExecutionResult:
        """Return the state of an execution, without driving it.

        Args:
            execution: Its id, or an unambiguous prefix of it.

        Returns:
            As returned by `run`.
        """
        id = self.find(execution)
        with _sound(id):
            found = result_of(self._read(id))
        record = self.store.execution(found.execution)
        status: Status | None = left(self._host, record)
        if (
            status is None
            and found.status == "running"
            and record.status not in ("running", *ENDED)
        ):
            status = "waiting"  # its process was stopped between two steps
        return found if found.ended or status is None else found._replace(status=status)

    def summary(self, execution: str) -> ExecutionInfo:
        """Return an execution as `executions` lists it. The cost does not depend on its length.

        Args:
            execution: Its id, or an unambiguous prefix of it.

        Returns:
            The keys of `ExecutionInfo` that lists have.
        """
        return listed_view(self._host, self.store.execution(self.find(execution)))

    def show(
        self,
        execution: str,
        *,
        step: str | None = None,
        tries: bool = False,
        until: int | None = None,
        status: str | None = None,
        kind: str | None = None,
        sort: StepOrder | None = None,
        limit: int | None = None,
    ) -> ExecutionInfo:
        """Return all details of an execution, read from its journal.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step. `steps` then contains only that step, with its input and each
                attempt.
            tries: Whether each of `steps` has its attempts.
            until: Number of the first event to leave out: the execution is shown as it was before
                that event, with the values of its state. Default: its current state.
            status: `steps` contains only those with this status.
            kind: `steps` contains only those of this kind.
            sort: `time`: what has not ended, then the slowest first. `attempts`, `tokens`, `cost`:
                the most first. `error`: what failed first. Default: in order of beginning.
            limit: Maximum number of `steps`. Default: all.

        Returns:
            The keys of `ExecutionInfo`.

        Raises:
            NotFound: The execution or step does not exist.
            UsageError: `until` is given together with `step`, or there is no such order.
        """
        id = self.find(execution)
        with CollectedLater(), _sound(id):
            if until is None:
                check_one_of("sort", sort, get_args(StepOrder))
                wanted = StepFilter(status, kind, sort, limit)
                return inspection.history.show(self._host, id, step, tries=tries, wanted=wanted)
            if step is not None:
                raise UsageError("show takes either 'step' or 'until'")
            return inspection.history.show_past(self._host, id, until, tries=tries)

    def folds(self, execution: str, *, until: int | None = None) -> tuple[ExecutionInfo, Folds]:
        """Return an execution with the tree of its steps.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            until: As for `show`.

        Returns:
            What `show` returns, without steps, and the tree. Its steps have no values, but their
            attempts have their times.
        """
        id = self.find(execution)
        with CollectedLater(), _sound(id):
            return inspection.history.folds(self._host, id, until)

    def marks(
        self, execution: str, waits: Collection[tuple[str, str]] = ()
    ) -> Iterator[tuple[int, str, str]]:
        """Yield number, type and address of the events that an execution is remembered by.

        These are failures, decisions, retries, upgrades, and what came from outside, in order.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            waits: Address and beginning of waits, whose first events are yielded, too.
        """
        id = self.find(execution)
        with CollectedLater(), _sound(id):
            shown = Steps.stored(self.store, self._host.flows, self.store.execution(id))
            yield from marks(shown, waits)

    def flow_of(self, execution: str, *, step: str | None = None) -> LoadedFlow:
        """Return the flow that an execution runs now, as the store keeps it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step. The flow is then the version that ran when the step started.

        Raises:
            NotFound: The execution does not exist, or the step has not started.
        """
        id = self.find(execution)
        hash = self.store.execution(id).hash
        if step is not None:
            with _sound(id):
                journal = read(self.store, id)
                if forms(journal):  # it was upgraded
                    past = past_of(self._host.flows, hash, journal, id, step).events
                    hash = form_then(journal, past, hash)
        return LoadedFlow(self._host.flows.by_hash(hash).compiled, hash)

    def past_updates(
        self, execution: str, *, until: int | None = None
    ) -> Iterator[tuple[Update, CompiledFlow]]:
        """Replay an execution, and yield its past updates of the kinds `event` and `step`.

        Subscribers received the same ones while it ran.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            until: Number of the first event to leave out. Default: replay all events.

        Yields:
            The update, and the flow that the execution ran at that time.
        """
        id = self.find(execution)
        seen: list[Observation] = []
        with _sound(id):
            hash = self.store.execution(id).hash
            for moment in walk(self._host.flows, hash, read(self.store, id)[:until], seen):
                flow = moment.graph.flow
                entry = entry_view(moment.number, moment.event, moment.address, moment.why)
                yield Update(id, "event", entry), flow
                for step in seen:
                    yield Update(id, "step", None, step), flow
                seen.clear()

    def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        search: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> ExecutionPage:
        """Return a page of executions, newest first. The cost does not depend on their number.

        Args:
            flow: Id of the flow.
            status: Status of the executions.
            labels: Labels that each execution must have.
            since: Created at this time or later, in milliseconds since 1970.
            search: Text of up to 200 characters. Each of its words begins a word of the title, key
                inputs, error message, flow or labels, or the text begins the id. Case, accents and
                punctuation make no difference. Blank: all executions.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            The page.

        Raises:
            UsageError: The text to search for is longer.
        """
        check_one_of("status", status, STATUSES)
        if search is not None and len(search) > LONGEST_SEARCH:
            raise UsageError(
                f"the text to search for has {len(search)} characters",
                hint=f"use at most {LONGEST_SEARCH}: some words of a title or an error",
            )
        sought = search if search and not search.isspace() else None
        wanted = ExecutionFilter(flow, status, labels or {}, since, search=sought)
        return page(self._host, wanted, after, limit)

    def counts(self, flow: str | None = None) -> dict[str, int]:
        """Return how many executions have each status, as recorded in the store.

        The cost does not depend on their number. Those that no process drives are counted as the
        status that was recorded last.

        Args:
            flow: Id of a flow, to count only its executions.

        Returns:
            A number for each of `running`, `waiting`, `stalled`, `succeeded`, `failed` and
            `cancelled`.
        """
        return self.store.counts(None if flow is None else [flow])

    def newest(self, execution: str) -> tuple[int, Iterator[dict[str, Any] | None]]:
        """Return the entries of a journal since the last snapshot, and None if none is new.

        For programs that serve many readers: unlike `events(follow=True)` it never blocks. After
        None, the next call looks again. It ends with the execution. The cost does not depend on
        the length of the journal.

        Args:
            execution: Its id, or an unambiguous prefix of it.

        Returns:
            The number of the first entry, and the entries.
        """
        return inspection.entries.newest(self._host, self.find(execution))

    def events(
        self,
        execution: str,
        *,
        from_seq: int = 0,
        follow: bool = False,
        step: str | None = None,
        type: str | None = None,
        since: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Return the entries of a journal: `{seq, at, type, address?, ...}` each.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry to return.
            follow: Continue with new entries until the execution has ended.
            step: Address of a step. Only entries that began, changed or ended it are returned.
            type: Only entries of this type, such as `failed`.
            since: Only entries of this time or later, in milliseconds since 1970.

        Returns:
            An iterator that reads lazily.

        Raises:
            NotFound: The execution or step does not exist.
            UsageError: `step` is given together with `follow`, or no event has the `type`.
        """
        check_one_of("type", type, EVENT_TYPES)
        id = self.find(execution)
        if follow and step is not None:
            raise UsageError("events takes either 'step' or 'follow'")
        if follow or (step, type, since) == (None, None, None):
            all_entries = inspection.entries.entries(self._host, id, from_seq, follow=follow)
            begin = "" if since is None else format_time(since)
            return (
                entry
                for entry in all_entries
                if type in (None, entry["type"]) and entry["at"] >= begin
            )
        with CollectedLater(), _sound(id):
            found = inspection.history.found_events(self._host, id, from_seq, step, type, since)
        return iter(found)

    def all_events(
        self,
        *,
        after: int | None = None,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        follow: bool = False,
    ) -> Iterator[StoreEvent]:
        """Return the events of all executions, in the order of their commits.

        The store numbers events from the first call on, so earlier ones are not among them.

        Args:
            after: `number` of the last event to leave out. 0: none. Default: all so far, which
                makes sense with `follow`.
            flow: Only events of executions of the flow with this id.
            status: Only events after which the execution had this status.
            labels: Only events of executions with all these labels.
            since: Only events of executions that were created at this time or later, in
                milliseconds since 1970.
            follow: Continue with new events, without an end.

        Returns:
            An iterator that reads lazily.

        Raises:
            UsageError: The store is in Temporal.
        """
        check_one_of("status", status, STATUSES)
        wanted = EventFilter(flow, status, labels or {}, since)
        return inspection.entries.all_events(self._host, after, wanted, follow=follow)

    def feed_all(self, after: int | None = None) -> Iterator[StoreEvent | None]:
        """Return the events of all executions as `all_events` does, and None if none is new.

        For programs that serve many readers, like `newest`. It never ends.

        Args:
            after: As for `all_events`.
        """
        return inspection.entries.feed_all(self._host, after)

    def why(self, execution: str, *, waits: bool = True) -> builtins.list[Reason]:
        """Return, for each live branch, its reason to wait, since when, and what resumes it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            waits: Include the open waits, which the result also lists.

        Returns:
            One reason for each live branch.
        """
        id = self.find(execution)
        with _sound(id):
            return inspection.reasons.reasons(self._host, self._read(id), waits=waits)

    def diff(self, left: str, right: str) -> Difference:
        """Compare two executions: where their histories diverge, and how they differ from there on.

        Histories are aligned by address and attempt. Differences in ids and times are ignored.

        Args:
            left: Id of one, or an unambiguous prefix of it.
            right: Id of the other.

        Returns:
            The keys of `Difference`.
        """
        left, right = self.find(left), self.find(right)
        with CollectedLater(), _sound(f"{left} or {right}"):
            return inspection.diff.diff(self._host, left, right)

    # Internals

    def _read(self, execution: str) -> Execution:
        """Return an execution as stored, read only."""
        return self._host.stored(self.find(execution), 0)


def _sound(execution: str) -> Sound:
    """Return a context manager that reports errors inside it as damage of the stored execution."""
    return Sound(f"the stored data of execution {execution}")
