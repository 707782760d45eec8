"""A kind of environment with a screen, and a process that has one open until it is told to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flowengine.execution_environment import EnvironmentManager, register_provider
from flowengine.sdk.environments import Screen
from flowengine.secrets import Secrets
from flowengine_envs.kinds.files import Files, Folder

PNG = b"\x89PNG\r\n\x1a\n and so on"
SPEC = {"kind": "painted", "scope": "session", "owner_id": "ana", "resource_key": "canvas"}
TOKEN = {"token": {"env": "PAINTED_TOKEN"}}


class Painted(Files):
    """A directory with a screen."""

    kind = "painted"

    def __init__(self, show: Callable[[], Awaitable[Screen]] | None = None) -> None:
        self.show = show

    async def screen(self, resource: Folder) -> Screen:
        Secrets(TOKEN).mask("")  # a step of this process has used it
        if self.show is not None:
            return await self.show()
        token = os.environ.get("PAINTED_TOKEN")
        return Screen(f"in process {os.getpid()}", PNG, f"key {token}", f"http://host/?{token}")


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has an environment open."""
    child = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PAINTED_TOKEN": "SEKRET-4711"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield child
    finally:
        child.kill()
        child.communicate()


if __name__ == "__main__":
    register_provider(Painted())
    with EnvironmentManager(sys.argv[1]) as manager:
        manager.ensure(SPEC)
        sys.stdout.write("open\n")
        sys.stdout.flush()
        sys.stdin.readline()
