"""Compiled flows, the compilation results of files, deployed flows and what starts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import Deployed, Scheduled, SignalStart


class FlowPort(Protocol):
    """Keeps compiled flows by their hash."""

    def put_flow(self, hash: str, compiled: bytes) -> None:
        """Keep a compiled flow under its hash (`form_hash`), in place of what is kept there.

        The same hash is the same flow, so this changes nothing unless the kept one is damaged.
        """

    def get_flow(self, hash: str) -> bytes:
        """Return a compiled flow.

        Raises:
            NotFound: No flow has this hash.
        """

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Remember the result of compiling a file, so that it need not be compiled again.

        Args:
            key: Identifies the file and everything else that the result depends on.
            hash: Hash of a compiled flow, or the kind of the result.
            sources: (path, digest) of each file that was read.
            extra: Further data to return, such as warnings.
        """

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Return (hash, sources, extra) as remembered, or None."""

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        """Record a deployed version of a flow, which becomes the current one.

        Args:
            deployed: The version. It replaces an earlier one with the same flow and version. Its
                compiled flow is kept from then on. If its time is not later than those of the
                flow's other versions, a later one is recorded.
            signals: Signals that start executions of the flow, instead of earlier ones.
            schedules: `Scheduled.schedule`, `time` and `due` of each schedule, instead of earlier
                ones. A schedule that was recorded before keeps its times.
        """

    def undeploy(self, flow: str, version: str | None = None) -> None:
        """Remove a deployed version of a flow that is not the current one, or the whole flow.

        Args:
            flow: Its id.
            version: The version. None: all versions, and the signals and schedules.
        """

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        """Return deployed versions, ordered by flow, the current version of each first.

        Args:
            flow: Only those of this flow.
        """

    def starts(self, signal: str) -> list[SignalStart]:
        """Return the flows that messages of a signal start, ordered by the flow's id."""

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        """Return the schedules of deployed flows, ordered by flow.

        Args:
            until: Only those that are due at this time or earlier, earliest first.
        """

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Set the times of a schedule, unless it has changed or was removed since.

        Args:
            scheduled: The schedule as read.
            time: Its next time.
            due: When to start the execution of that time. None: the schedule is paused.

        Returns:
            Whether it was changed here. Of several callers with the same record, one changes it.
        """
