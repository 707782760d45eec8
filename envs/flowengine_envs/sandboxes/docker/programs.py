"""Programs started in a running container."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flowengine_envs.sandboxes.docker.daemon import Attached

if TYPE_CHECKING:
    from docker import DockerClient


_KILLED = 137


class ContainerProgram:
    """A program in a container.

    Args:
        client: A client of the daemon.
        exec_id: The daemon's id of the program.
        streams: Its output streams.
        stdin: Its input stream.
    """

    def __init__(
        self, client: DockerClient, exec_id: str, streams: Attached, stdin: asyncio.StreamWriter
    ) -> None:
        self._client = client
        self._exec = exec_id
        self._streams = streams
        self._input = stdin
        self.stdin: asyncio.StreamWriter | None = stdin
        self.stdout: asyncio.StreamReader | None = streams.stdout
        self.stderr: asyncio.StreamReader | None = streams.stderr
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Its process id on the daemon's machine."""
        return int(self._client.api.exec_inspect(self._exec)["Pid"])

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        await asyncio.shield(self._streams.ended)
        while self.returncode is None:
            code = await asyncio.to_thread(self._inspect)
            if code is None:
                await asyncio.sleep(0.01)  # The streams have ended, and the process is about to.
            if self.returncode is None:
                self.returncode = code
        return self.returncode

    def _inspect(self) -> int | None:
        from docker.errors import APIError

        try:
            state = self._client.api.exec_inspect(self._exec)
        except (APIError, OSError):
            return _KILLED  # The container is gone, and every process with it.
        code = state["ExitCode"]
        return None if state["Running"] or code is None else int(code)

    def kill(self) -> None:
        """Close its input. A program that does not end then ends with the container."""
        self.returncode = _KILLED
        self._input.transport.abort()
