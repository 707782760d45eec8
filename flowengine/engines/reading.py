"""The read-only part of the public engine. It drives no execution and writes nothing."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from os import fspath
from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.views import result_of
from flowengine.errors import UsageError
from flowengine.journal.records import ENDED, OPEN, ExecutionFilter
from flowengine.journal.shapes import Sound

STATUSES = (
    *("recorded", "running", "interrupted", "waiting"),
    *("stalled", "quarantined", "succeeded", "failed", "cancelled"),
)
"""All statuses of an execution: `flowengine.engines.infos.Status`."""
LONGEST_SEARCH = 200
"""Characters of a text to search for."""
_PART = 1 << 20

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
    from os import PathLike

    from flowengine.engines.arriving_replies import ReplyReader
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.folds import Folds
    from flowengine.engines.host import Host
    from flowengine.engines.infos import (
        DeployedInfo,
        Difference,
        ExecutionInfo,
        Reason,
        StartInfo,
        Status,
        WaitInfo,
    )
    from flowengine.engines.inspection.marks import Marks
    from flowengine.engines.inspection.replayed import OpenHistories
    from flowengine.engines.inspection.updates import Subscription
    from flowengine.engines.results import (
        ExecutionPage,
        ExecutionResult,
        StoreEvent,
        Update,
        WaitPage,
    )
    from flowengine.journal.records import Due, OfFlows
    from flowengine.journal.store import Store
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow
    from flowengine.settings import Settings


class StoreReader:
    """Shows executions and waits as stored, and updates as they arrive.

    Args:
        host: Provides the store.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._marks: Marks | None = None
        self._histories: OpenHistories | None = None
        """The executions that were shown last. None: they are not kept."""

    @property
    def store(self) -> Store:
        """The store, for operations that the engine does not offer."""
        return self._host.store

    @property
    def settings(self) -> Settings:
        """The settings of the host, as read when the engine was opened."""
        return self._host.settings

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
        from flowengine.engines.inspection.unattended import left

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

    def keep_histories(
        self, events: int = 200_000, folder: str | PathLike[str] | None = None
    ) -> None:
        """Keep the executions in memory that `show` returned last, and read only their new events.

        For programs that show long executions again and again, such as servers.

        Args:
            events: Maximum number of events or steps to keep. 25,000 take about 90 MB.
                Executions that have not been shown for longest are dropped.
            folder: An existing directory that only this user can access. Of long executions, what
                is shown is also kept there in a file, for the next process. It has a copy of their
                inputs and outputs, at most 2 GB, and may be deleted. None: nothing is.

        Raises:
            StoreError: The file cannot be used.
        """
        from flowengine.engines.inspection.marks import Marks
        from flowengine.engines.inspection.replayed import OpenHistories

        self._end_histories()
        marks = None if folder is None else Marks(fspath(folder))
        if marks is not None:
            marks.forget_deleted(self.store)
        self._marks, self._histories = marks, OpenHistories(events, marks)

    def _end_histories(self) -> None:
        """Close the file of `keep_histories`, if there is one."""
        if self._marks is not None:
            self._marks.close()
        self._marks = self._histories = None

    def summary(self, execution: str) -> ExecutionInfo:
        """Return an execution as `executions` lists it. The cost does not depend on its length.

        Args:
            execution: Its id, or an unambiguous prefix of it.

        Returns:
            The keys of `ExecutionInfo` that lists have.
        """
        from flowengine.engines.inspection.unattended import listed_view

        return listed_view(self._host, self.store.execution(self.find(execution)))

    def show(
        self,
        execution: str,
        *,
        step: str | None = None,
        plumbing: bool = False,
        tries: bool = False,
        until: int | None = None,
    ) -> ExecutionInfo:
        """Return all details of an execution, read from its journal.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step. `steps` then contains only that step, with its input and each
                attempt.
            plumbing: Whether `steps` also contains the connecting steps of a generated flow.
                Otherwise only connecting steps that have failed or have an open wait are included.
            tries: Whether each of `steps` has its attempts.
            until: Number of the first event to leave out: the execution is shown as it was before
                that event, with the values of its state. Default: its current state.

        Returns:
            The keys of `ExecutionInfo`.

        Raises:
            NotFound: The execution or step does not exist.
            UsageError: `until` is given together with `step`.
        """
        from flowengine.engines.inspection.history import show, show_past

        id = self.find(execution)
        with _sound(id):
            if until is None:
                return show(self._host, id, step, self._histories, plumbing=plumbing, tries=tries)
            if step is not None:
                raise UsageError("show takes either 'step' or 'until'")
            return show_past(self._host, id, until, self._histories, plumbing=plumbing, tries=tries)

    def glance(self, execution: str) -> ExecutionInfo | None:
        """Return the current state of a long execution, without reading its journal.

        Args:
            execution: Its id, or an unambiguous prefix of it.

        Returns:
            The keys of `show`, with the open steps and the items of open maps only. None: `show`
            is as fast, because the execution is short or kept in memory.
        """
        from flowengine.engines.inspection.history import glance

        id = self.find(execution)
        with _sound(id):
            return None if self._histories is None else glance(self._host, id, self._histories)

    @contextmanager
    def folds(
        self, execution: str, *, until: int | None = None
    ) -> Iterator[tuple[ExecutionInfo, Folds]]:
        """Return an execution with the tree of its steps, for programs that keep histories.

        If the execution was shown before, the cost depends on the steps that have changed or are
        open, not on all steps. See `keep_histories`.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            until: As for `show`. The cost depends on the events since the last view of the past,
                if that was of an earlier event.

        Returns:
            What `show` returns, without steps, and the tree. Its steps have no values, but their
            attempts have their times. It changes after the block.
        """
        from flowengine.engines.inspection.history import folds, past_folds
        from flowengine.engines.inspection.replayed import OpenHistories

        id = self.find(execution)
        kept = self._histories or OpenHistories(0)
        opened = (
            folds(self._host, id, kept)
            if until is None
            else past_folds(self._host, id, until, kept)
        )
        with ExitStack() as stack:
            with _sound(id):
                history = stack.enter_context(opened)
            yield history

    def flow_of(self, execution: str, *, step: str | None = None) -> LoadedFlow:
        """Return the flow that an execution runs now, as the store keeps it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step. The flow is then the version that ran when the step started.

        Raises:
            NotFound: The execution does not exist, or the step has not started.
        """
        from flowengine.engines.flows import LoadedFlow

        id = self.find(execution)
        hash = self.store.execution(id).hash
        if step is not None:
            from flowengine.engines.executions.linked_flows import forms, read
            from flowengine.engines.interventions.fork_points import form_then, past_of

            with _sound(id):
                journal = read(self.store, id)
                if forms(journal):  # it was upgraded
                    past = past_of(self._host.flows, hash, journal, id, step).events
                    hash = form_then(journal, past, hash)
        return LoadedFlow(self._host.flows.by_hash(hash).compiled, hash)

    def kept_flow(self, hash: str) -> LoadedFlow:
        """Return a flow that the store keeps, by `LoadedFlow.form`.

        Args:
            hash: The hash.

        Raises:
            NotFound: The store keeps no such flow.
        """
        from flowengine.engines.flows import LoadedFlow

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
        from flowengine.engines.executions.linked_flows import read, walk
        from flowengine.engines.executions.views import entry_view
        from flowengine.engines.results import Update

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

    def tool_messages(self, execution: str) -> Iterator[dict[str, Any]]:
        """Yield the messages about calls of tools in an execution, as clients of tools see them.

        Those of an earlier call of this method come first, with the same numbers.

        Args:
            execution: Its id, or an unambiguous prefix of it.
        """
        from flowengine.engines.executions.linked_flows import read
        from flowengine.engines.inspection.tool_messages import tool_messages

        id = self.find(execution)
        with _sound(id):
            hash = self.store.execution(id).hash
            yield from tool_messages(self._host.flows, hash, read(self.store, id))

    def executions(
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
        from flowengine.engines.inspection.unattended import page
        from flowengine.sdk.argument_checks import check_one_of

        check_one_of("status", status, STATUSES)
        if search is not None and len(search) > LONGEST_SEARCH:
            raise UsageError(
                f"the text to search for has {len(search)} characters",
                hint=f"use at most {LONGEST_SEARCH}: some words of a title or an error",
            )
        sought = search if search and not search.isspace() else None
        wanted = ExecutionFilter(flow, status, labels or {}, since, search=sought)
        return page(self._host, wanted, after, limit)

    def due(self, execution: str | None = None) -> list[Due]:
        """Return the executions that `resume` can continue now.

        Their timer is due, a message or decision has arrived, or the process that ran them has
        died. Executions held by a running process are left out, and quarantined ones, whose
        processes died several times in a row.

        Args:
            execution: Only this one, by its full id.

        Returns:
            `(execution, flow, since, why, deaths)` of each. Those that have been able to continue
            for longest are first.
        """
        from flowengine.engines.inspection.unattended import due

        return due(self._host, execution)

    def waited(self) -> list[float]:
        """Return for how many seconds each execution of `due` has been able to continue."""
        now = self._host.clock.now()
        return [max(now - due.since, 0) / 1000 for due in self.due()]

    def quarantined(self) -> int:
        """Return how many executions are quarantined."""
        from flowengine.engines.inspection.unattended import quarantined

        return len(quarantined(self._host))

    def open_executions(self) -> dict[str, int]:
        """Return how many executions have each open status, as recorded in the store.

        Those that no process drives are counted as the status that was recorded last.
        """
        counts = self.store.counts()
        return {status: counts[status] for status in OPEN}

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

    def next_due(self) -> float | None:
        """Return the number of seconds until the next timer or schedule is due, or None."""
        now = self._host.clock.now()
        due = self.store.next_due(now)
        return None if due is None else (due - now) / 1000

    def deployed(self, flow: str | None = None) -> list[DeployedInfo]:
        """Return the deployed versions of flows.

        Args:
            flow: Only those of the flow with this id.

        Returns:
            The keys of `DeployedInfo`, ordered by flow, the current version of each first.
        """
        from flowengine.engines.starting.deployed_flows import listed

        return listed(self._host, flow)

    def deployed_flow(self, name: str, *, flows: OfFlows | None = None) -> LoadedFlow:
        """Return a deployed flow, to be started, or compared with another version.

        Args:
            name: `ID` for the current version, `ID@VERSION`, or at least 8 digits of a hash.
            flows: Returns whether a flow, given by its id, may be found. Default: any.

        Raises:
            NotFound: It is not deployed.
            UsageError: The digits fit several flows.
        """
        from flowengine.engines.starting.deployed_flows import find

        return find(self._host, name, flows)

    def starts(self, flow: str | None = None) -> list[StartInfo]:
        """Return what starts executions of deployed flows: signals and schedules.

        Args:
            flow: Only those of the flow with this id.

        Returns:
            The keys of `StartInfo`, ordered by flow. Schedules with their next time.
        """
        from flowengine.engines.starting.deployed_flows import started_by

        return started_by(self._host, flow)

    def waits(
        self,
        *,
        flow: str | None = None,
        execution: str | None = None,
        assignee: str | None = None,
        batch: str | None = None,
        status: str = "pending",
        kinds: Iterable[str] = (),
        since: int | None = None,
        before: int | None = None,
        in_turn: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> WaitPage:
        """Return a page of waits, oldest first.

        Args:
            flow: Id of the flow.
            execution: Id of an execution, or an unambiguous prefix of it.
            assignee: `user:NAME`: waits that the user may answer, by name or group.
            batch: The `batch` of the waits.
            status: `pending`, `closed` or `all`.
            kinds: See `WaitInfo.kind`. Empty: all of `execution`, otherwise all but `session`.
            since: Opened at this time or later, in milliseconds since 1970.
            before: Opened at this time or earlier.
            in_turn: Those that are due first come first, then those that are never due, oldest
                first. For `pending` waits.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            The page.
        """
        from flowengine.engines.people.waits import page_of_waits
        from flowengine.sdk.argument_checks import check_one_of

        check_one_of("status", status, ("pending", "closed", "all"))
        return page_of_waits(
            self._host,
            limit,
            after,
            assignee,
            flow=flow,
            execution=execution,
            batch=batch,
            state=status,
            kinds=tuple(kinds),
            since=since,
            before=before,
            in_turn=in_turn and status == "pending",
        )

    def wait(self, wait: str) -> WaitInfo:
        """Return one wait, open or closed, by any unambiguous prefix of its id."""
        from flowengine.engines.people.waits import wait_of

        return wait_of(self._host, wait)

    def may_answer(self, wait: WaitInfo, user: str) -> bool:
        """Return whether a wait is addressed to a user, by name or group.

        Args:
            wait: The wait.
            user: `user:NAME`.
        """
        from flowengine.engines.actors import is_assignee

        return is_assignee(wait, user, self._host.settings)

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
        from flowengine.engines.inspection.entries import newest

        return newest(self._host, self.find(execution))

    def events(
        self, execution: str, *, from_seq: int = 0, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Return the entries of a journal: `{seq, at, type, address?, ...}` each.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry to return.
            follow: Continue with new entries until the execution has ended.

        Returns:
            An iterator that reads lazily.
        """
        from flowengine.engines.inspection.entries import entries

        return entries(self._host, self.find(execution), from_seq, self._histories, follow=follow)

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
        from flowengine.engines.inspection.entries import all_events
        from flowengine.engines.results import EventFilter
        from flowengine.sdk.argument_checks import check_one_of

        check_one_of("status", status, STATUSES)
        wanted = EventFilter(flow, status, labels or {}, since)
        return all_events(self._host, after, wanted, follow=follow)

    def feed_all(self, after: int | None = None) -> Iterator[StoreEvent | None]:
        """Return the events of all executions as `all_events` does, and None if none is new.

        For programs that serve many readers, like `newest`. It never ends.

        Args:
            after: As for `all_events`.
        """
        from flowengine.engines.inspection.entries import feed_all

        return feed_all(self._host, after)

    def want_replies(self) -> None:
        """Let the processes that drive the store pass on replies as they arrive, for a minute.

        A store in memory or in Temporal has no such processes.
        """
        if self._host.replies is not None:
            self._host.replies.want()

    def arriving_replies(self, execution: str) -> ReplyReader | None:
        """Return a reader of the replies that models are writing, in any process.

        Its parts are like those of updates of kind `part`. They are not stored, so a reader can
        miss some. The journal has the complete reply.

        Args:
            execution: Its full id.

        Returns:
            None: the store is in memory or in Temporal.
        """
        replies = self._host.replies
        return None if replies is None else replies.reader(execution)

    def why(self, execution: str, *, waits: bool = True) -> list[Reason]:
        """Return, for each live branch, its reason to wait, since when, and what resumes it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            waits: Include the open waits, which the result also lists.

        Returns:
            One reason for each live branch.
        """
        from flowengine.engines.inspection.reasons import reasons

        id = self.find(execution)
        with _sound(id):
            return reasons(self._host, self._read(id), waits=waits)

    def diff(self, left: str, right: str) -> Difference:
        """Compare two executions: where their histories diverge, and how they differ from there on.

        Histories are aligned by address and attempt. Differences in ids and times are ignored.

        Args:
            left: Id of one, or an unambiguous prefix of it.
            right: Id of the other.

        Returns:
            The keys of `Difference`.
        """
        from flowengine.engines.inspection.diff import diff

        left, right = self.find(left), self.find(right)
        with _sound(f"{left} or {right}"):
            return diff(self._host, left, right, self._marks)

    # Subscriptions

    def subscribe(
        self, callback: Callable[[Update], None], *, output: bool = False, gather: float = 0
    ) -> Subscription:
        """Call a function with every update of the executions driven here.

        It is called after the update is on disk. Its exceptions are logged as warnings of
        `flowengine.engines`.

        Args:
            callback: Called with an `Update`. Without `output` it is called on the thread that
                produces the update, so it must be quick.
            output: Also report program output and model replies as they arrive. The callback then
                runs on a separate thread, and a slow callback does not delay any execution: it
                misses parts of replies and receives their number. Only a printing program blocks if
                the callback falls far behind, as on a full pipe.
            gather: With `output`, seconds during which the pieces of a reply are merged after one
                was delivered, for displays. Default: each piece is delivered separately.

        Returns:
            A function that ends the subscription. With `output` it waits until all updates so far
            are delivered, for at most 5 seconds or the seconds given as `patience`.

        Raises:
            UsageError: The callback is not a function.
        """
        from flowengine.engines.inspection.updates import Subscription
        from flowengine.sdk.argument_checks import check_function

        check_function(callback, "it takes an Update")

        return Subscription(self._host, callback, output=output, gather=gather)

    def carry_traces(self, on: bool, /) -> None:
        """Let steps of executions loaded from now on continue their traces in other programs.

        Requests of `http`, calls of MCP tools and commands then carry a `traceparent`. Exporting
        traces switches it on.
        """
        self._host.traced = on

    def trace_of(self, execution: str) -> str | None:
        """Return the id of an execution's trace. None: no traces are exported.

        Args:
            execution: Full id.
        """
        if not self._host.traced:
            return None
        from flowengine.telemetry.spans import trace_of

        return trace_of(execution, self._host.store.execution(execution).labels)

    def updates(
        self, execution: str | None = None, *, output: bool = False
    ) -> AsyncGenerator[Update, None]:
        """Iterate over updates as they arrive.

        Args:
            execution: Full id of one execution. The iterator then ends when the execution finishes
                or has to wait. Default: all executions driven here, endlessly.
            output: Also yield program output and model replies as they arrive. A slow consumer
                misses some of them and receives their number.

        Returns:
            An iterator over updates.
        """
        from flowengine.engines.inspection.updates import updates

        return updates(self._host, execution, output=output)

    # Internals

    def _read(self, execution: str) -> Execution:
        """Return an execution as stored, read only."""
        return self._host.stored(self.find(execution), 0)


def _sound(execution: str) -> Sound:
    """Return a context manager that reports errors inside it as damage of the stored execution."""
    return Sound(f"what is stored of execution {execution}")
