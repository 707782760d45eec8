"""Ways out of a sandbox that has no network: each leads to one place, `host:port`, and no further.

The supervisor listens inside where programs look for the place (`supervisor/forwarding.py`) and
joins each connection to a unix socket that is mounted into the sandbox, one a place. Here somebody
answers at that socket and connects to the place. So names are resolved outside, what a sandbox
reaches does not depend on what it says, and TLS passes as it is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request, Spec
from flowengine_envs.supervisor.forwarding import MOST, REACHED

INSIDE = "/run/flowengine"
"""Where the sockets are inside."""
_CONNECTING = 30.0
"""Seconds in which a place has to answer."""
_READ = 64 * 1024


class Place(NamedTuple):
    """What may be reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def places(spec: Spec) -> list[Place]:
    """Return the places that a spec may reach, if its policy names places.

    Args:
        spec: What is asked for.

    Returns:
        Each once; none where all is open or nothing is.

    Raises:
        EnvironmentUnavailable: One of them is an address that cannot be had inside.
    """
    named = spec.policy.network
    if not isinstance(named, list):
        return []
    found = dict.fromkeys(_place(each) for each in named)
    for each in found:
        if not _is_name(each.host) and not ip_address(each.host).is_loopback:
            raise EnvironmentUnavailable(
                f"{spec}: policy.network: {each}: a sandbox has no address but its own, so a place "
                "needs a name; give it one in /etc/hosts of this machine"
            )
    return [*found]


def _place(text: str) -> Place:
    host, _, port = text.rpartition(":")
    return Place(host.lower(), int(port))


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


class Egress:
    """The ways out of one sandbox. All of it runs on the background loop.

    Args:
        request: What is opened.
        owner: User and group of the programs inside, if they are others than this process's.
    """

    def __init__(self, request: Request, owner: tuple[int, int] = (-1, -1)) -> None:
        self.places = places(request.spec)
        self._request = request
        self._owner = owner
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[Any]] = set()
        self.folder: Path | None = None
        """Of the sockets, to be mounted at `INSIDE`, while it is open and there are any."""

    @property
    def hosts(self) -> dict[str, str]:
        """What `/etc/hosts` has to say inside: name → address."""
        names = dict.fromkeys(place.host for place in self.places if _is_name(place.host))
        names.pop("localhost", None)
        itself = {place.host for place in self.places}
        free = (f"127.1.{at >> 8}.{at & 255}" for at in range(1, 1 << 16))
        return dict(zip(names, (each for each in free if each not in itself), strict=False))

    @property
    def forwards(self) -> list[dict[str, Any]]:
        """What the supervisor has to know: where it listens, and which socket it is joined to."""
        named = {name: [address] for name, address in self.hosts.items()}
        named["localhost"] = ["127.0.0.1", "::1"]
        listening: dict[tuple[str, int], None] = {}
        told: list[dict[str, Any]] = []
        for number, place in enumerate(self.places):
            hosts = named.get(place.host, [place.host])
            # `localhost` and `127.0.0.1` are one place inside.
            new = [(host, place.port) for host in hosts if (host, place.port) not in listening]
            listening.update(dict.fromkeys(new))
            told.append({"listen": [*map(list, new)], "socket": f"{INSIDE}/{number}"})
        return told

    async def open(self) -> None:
        """Answer at the sockets."""
        if not self.places:
            return
        folder = Path(tempfile.gettempdir(), f"flowengine-egress-{self._request.id}")
        self._request.trace(folders=[str(folder)])
        self.folder = folder
        for place, made in zip(self.places, self._sockets(folder), strict=True):
            answer = partial(self._answer, place)
            self._servers.append(
                await asyncio.start_unix_server(answer, sock=made, limit=_READ, backlog=MOST)
            )

    def _sockets(self, folder: Path) -> Iterator[socket.socket]:
        """Make a socket a place; its path may be longer than that of sockets can be."""
        folder.mkdir(mode=0o700)
        below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fchown(below, *self._owner)
            for number, _place in enumerate(self.places):
                made = socket.socket(socket.AF_UNIX)
                made.bind(f"/proc/self/fd/{below}/{number}")
                os.chown(str(number), *self._owner, dir_fd=below)
                yield made
        finally:
            os.close(below)

    async def close(self) -> None:
        """End all connections and answer no more."""
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self.folder is not None:
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder = None

    async def _answer(
        self, place: Place, inward: asyncio.StreamReader, inside: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [inside]
        try:
            # What runs inside can connect to the sockets without the supervisor, which counts.
            if len(self._connections) > 2 * MOST:
                return
            outward, outside = await self._reach(place)
            writers.append(outside)
            inside.write(REACHED)
            await asyncio.gather(_pass_on(inward, outside), _pass_on(outward, inside))
            for writer in writers:
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:
            if len(writers) == 1:
                self._request.log.warning(
                    "policy.network: %s cannot be reached: %s", place, _reason(error)
                )
        finally:
            self._connections.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _reach(self, place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECTING):
            return await asyncio.open_connection(
                place.host, place.port, limit=_READ, happy_eyeballs_delay=0.25
            )


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass on all that comes, no faster than it is taken, and the end of it."""
    while data := await source.read(_READ):
        sink.write(data)
        await sink.drain()
    with suppress(OSError):
        sink.write_eof()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {_CONNECTING:.0f} s"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
