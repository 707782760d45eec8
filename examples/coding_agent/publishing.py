"""Takes a change out of the sandbox."""

from __future__ import annotations

from flowengine_envs.kinds.files import Folder


def publish(work: Folder) -> list[str]:
    """Copy the changed files to the user's project, and return their names."""
    changes = work.write_back()
    return [*changes.added, *changes.changed, *changes.removed]
