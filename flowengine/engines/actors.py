"""Who acts on an engine, for whom, and through which channel."""

from __future__ import annotations

from typing import NamedTuple


class Actor(NamedTuple):
    """Somebody who starts, decides, sends or cancels."""

    user: str
    """`user:NAME`: the user on whose behalf it is done."""
    via: str
    """`cli`, `python`, ..."""
    entered_by: str | None = None
    """`user:NAME`: who actually did it, if that is somebody else."""

    @property
    def users(self) -> tuple[str, ...]:
        """The user on whose behalf it is done, and who actually did it."""
        return (self.user,) if self.entered_by is None else (self.user, self.entered_by)

    def fields(self) -> dict[str, str]:
        """Return what an event records about the actor: `by`, `via` and possibly `entered_by`."""
        fields = {"by": self.user, "via": self.via}
        return fields if self.entered_by is None else {**fields, "entered_by": self.entered_by}
