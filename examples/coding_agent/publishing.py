"""How a change leaves the sandbox."""

from __future__ import annotations

from flowengine_envs.kinds.files import Folder


def publish(work: Folder) -> list[str]:
    """Bring the changed files to the person's own project, and return their names."""
    changes = work.write_back()
    return [*changes.added, *changes.changed, *changes.removed]
