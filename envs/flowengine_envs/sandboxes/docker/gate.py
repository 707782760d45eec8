"""The network of containers that run any image and may reach places.

Forwarding connections needs Python next to the program. One additional container of the project's
own image therefore forwards them and sees nothing else. Containers of commands share the network of
this container.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from flowengine.sdk import EnvironmentLost
from flowengine_envs.link.channel import COMMAND, Channel
from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.sandbox import Docker

_FOLDER = "/tmp"


class Gate(Docker):
    """A container that only forwards connections out of the sandbox."""

    _channel: Channel | None = None

    @property
    def workdir(self) -> str:
        """An existing directory. Nothing is mounted."""
        return _FOLDER

    @property
    def _name(self) -> str:
        return f"flowengine-{self.request.id}-network"

    @property
    def _mounts(self) -> list[tuple[str, Path, bool]]:
        return []

    async def _image(self) -> str:
        return await asyncio.to_thread(image.build, self._client)

    async def open(self) -> None:
        """Start the container and the forwarding supervisor in it."""
        await super().open()
        try:
            program = await self.start(COMMAND, env={"LANG": "C.UTF-8"})
            self._channel = Channel(program, f"{self.request.spec}")
            await self._channel.hello(
                self.request.deadline,
                workspace=_FOLDER,
                home=_FOLDER,
                output=_FOLDER,
                own_processes=True,
                files={},
                forwards=self.forwards,
                mounts=[],
            )
        except BaseException:
            await asyncio.shield(self.close())
            raise

    def as_network(self) -> str:
        """Return Docker's name for its network, for containers that share it.

        Raises:
            EnvironmentLost: It has ended.
        """
        if not self.alive():
            raise EnvironmentLost(f"{self.request.spec}: its connection to the network has ended")
        return f"container:{self._container}"

    def alive(self) -> bool:
        """Return whether connections are forwarded."""
        return super().alive() and (self._channel is None or self._channel.alive)

    async def close(self) -> None:
        """End all connections and remove the container."""
        try:
            if self._channel is not None:
                with suppress(TimeoutError):
                    await self._channel.close(0.5)
        finally:
            await super().close()
