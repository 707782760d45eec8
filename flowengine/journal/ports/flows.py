"""Compiled flows, what files compiled to, and the signals that start executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import Start


class FlowPort(Protocol):
    """Keeps compiled flows, which it knows by their hash."""

    def put_flow(self, hash: str, compiled: bytes) -> None:
        """Keep a compiled flow under its hash (`form_hash`); nothing happens if it is there."""

    def get_flow(self, hash: str) -> bytes:
        """Return a compiled flow.

        Raises:
            NotFound: No flow has this hash.
        """

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Remember what a flow file compiled to, so that it need not be compiled again.

        Args:
            key: Identifies the file and everything else that the result depends on.
            hash: Hash of the compiled flow.
            sources: (path, digest) of each file that was read.
            extra: Anything else that the caller wants returned, such as warnings.
        """

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Return (hash, sources, extra) as remembered, or None."""

    def put_starts(self, flow: str, hash: str, signals: Sequence[str]) -> None:
        """Register the signals that start executions of a flow, replacing those registered before.

        Args:
            flow: Its id.
            hash: Hash of the compiled flow, which is kept from then on.
            signals: Names of signals; empty: it no longer starts on any.
        """

    def starts(self, signal: str) -> list[Start]:
        """Return the flows that messages of a signal start, by the flow's id."""
