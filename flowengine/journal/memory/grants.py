"""Grants for all executions of a flow, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.journal.records import FlowGrant
from flowengine.journal.refusals import no_grant, revoked_already

if TYPE_CHECKING:
    from flowengine.journal.records import Vote


class MemoryGrants:
    """Keeps grants by id."""

    def __init__(self) -> None:
        self._kept: dict[str, FlowGrant] = {}

    def give(self, wait: str, flow: str, vote: Vote) -> None:
        """Keep the grant of a vote, if it contains one."""
        given = vote.gives
        if given is not None and vote.approves:
            self._kept[wait] = FlowGrant(
                wait, flow, given.tool, given.version, vote.by, vote.at, given.body,
                given.uses, given.until,
            )  # fmt: skip

    def keep(self, grant: FlowGrant) -> None:
        """Keep a grant unless one with its id is known."""
        self._kept.setdefault(grant.id, grant)

    def give_back(self, id: str) -> None:
        """Undo a use of a grant."""
        self._kept[id] = self._kept[id]._replace(used=self._kept[id].used - 1)

    def use(self, id: str, at: int) -> bool:
        """Count a use of a grant, and return whether it was usable."""
        grant = self._kept.get(id)
        if grant is None or grant.revoked_by is not None:
            return False
        used_up = grant.uses is not None and grant.used >= grant.uses
        if used_up or (grant.until is not None and grant.until <= at):
            return False
        self._kept[id] = grant._replace(used=grant.used + 1)
        return True

    def list_grants(self, flow: str | None, tool: str | None) -> list[FlowGrant]:
        """Return grants, oldest first."""
        grants = [
            grant
            for grant in self._kept.values()
            if flow in (None, grant.flow) and tool in (None, grant.tool)
        ]
        return sorted(grants, key=lambda grant: (grant.at, grant.id))

    def revoke(self, id: str, by: str) -> FlowGrant:
        """Revoke a grant."""
        grant = self._kept.get(id)
        if grant is None:
            raise no_grant(id)
        if grant.revoked_by is not None:
            raise revoked_already(grant)
        self._kept[id] = grant._replace(revoked_by=by)
        return self._kept[id]
