"""Compiled flows, the compilation results of files, and the signals that start executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import Start


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

    def put_starts(self, flow: str, hash: str, signals: Sequence[str]) -> None:
        """Register the signals that start executions of a flow, replacing earlier ones.

        Args:
            flow: Its id.
            hash: Hash of the compiled flow, which is kept from then on.
            signals: Names of signals. Empty: no signal starts it any more.
        """

    def starts(self, signal: str) -> list[Start]:
        """Return the flows that messages of a signal start, ordered by the flow's id."""
