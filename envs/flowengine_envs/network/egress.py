"""Outgoing connections of a sandbox without a network: each leads to one place, `host:port`.

The supervisor listens inside at the addresses that programs resolve for the place
(`inside/forwarding.py`). It connects each connection to a Unix socket, one per place, that is
mounted into the sandbox. The engine accepts connections on that socket and connects to the place.
Names are therefore resolved outside, the target does not depend on data from the sandbox, and TLS
passes unchanged.

Hosts that are not known in advance (`network: public`, `*.example.org`) are reached through a proxy
(`network/proxy.py`), which is one more such socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Request, Spec
from flowengine.sdk.processes import remove_tree
from flowengine.sdk.web.connections import Network, Rules, needs_proxy
from flowengine.sdk.web.responses import failure_reason
from flowengine_envs.link.words import MOST, REACHED
from flowengine_envs.network.proxy import Accepted, Judge, Proxy, Refusal, join

INSIDE = "/run/flowengine"
"""Directory of the sockets inside."""
_READ = 64 * 1024
_PROXY_PORT = 3128
"""Port of the proxy inside, if no place has this port."""
_KEPT = 1_000
"""Number of refused connections that are remembered."""
_MOST_LOGGED = 50
"""Number of hosts of refused connections that the log names."""
_MOST_ACCEPTED = 2 * MOST
"""Number of connections to the sockets of a sandbox. The supervisor opens half as many."""


class AllowedDestination(NamedTuple):
    """An allowed place."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def destinations(spec: Spec) -> list[AllowedDestination]:
    """Return the places that a spec may reach, if its policy names places.

    Args:
        spec: The environment's spec.

    Returns:
        Each place once. Empty if all or no places are allowed.

    Raises:
        EnvironmentUnavailable: One of them is an address that is not possible inside.
    """
    named = spec.policy.network
    if not isinstance(named, list):
        return []
    reachable: dict[AllowedDestination, None] = {}
    for text in named:
        host, colon, port = text.rpartition(":")
        if colon and not text.startswith(("*.", "[")):  # a single host and port
            reachable[AllowedDestination(host.lower(), int(port))] = None
    for each in [*reachable]:
        if not _is_name(each.host) and not ip_address(each.host).is_loopback:
            if has_proxy(spec):
                del reachable[each]
                continue
            raise EnvironmentUnavailable(
                f"{spec}: policy.network: {each}: a sandbox has no address but its own, so a place "
                "needs a name: give it one in /etc/hosts of this machine"
            )
    return [*reachable]


def has_proxy(spec: Spec) -> bool:
    """Return whether programs receive a proxy: their policy or their kind needs one."""
    network = getattr(spec.policy, "network", None)
    wanted = isinstance(network, list) and bool(getattr(spec.config, "proxied", False))
    return wanted or needs_proxy(spec.policy)


def leads_out(spec: Spec) -> bool:
    """Return whether any outgoing connection is possible."""
    return has_proxy(spec) or bool(destinations(spec))


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


class Egress:
    """The outgoing connections of one sandbox. Everything runs on the background loop.

    Args:
        request: The request to open the environment.
        owner: User and group of the programs inside, if they differ from this process's.
    """

    def __init__(self, request: Request, owner: tuple[int, int] = (-1, -1)) -> None:
        self.places = destinations(request.spec)
        self._request = request
        self._owner = owner
        policy = request.policy
        self._network = Network(Rules.of(policy.network, getattr(policy, "deny_network", None)))
        self._servers: list[asyncio.Server] = []
        self._accepted = Accepted()
        self.folder: Path | None = None
        """Directory of the sockets, mounted at `INSIDE`, while it is open and there are any."""
        wanted = getattr(request.config, "proxies", 1) if has_proxy(request.spec) else 0
        used = {place.port for place in self.places}
        free = (port for port in range(_PROXY_PORT, 1 << 16) if port not in used)
        self._ports = [*islice(free, wanted)]
        """Ports of the proxies at 127.0.0.1."""
        self._refusals: list[deque[tuple[int, str]]] = [deque(maxlen=_KEPT) for _ in range(wanted)]
        self._proxies = [
            Proxy(self._network, partial(self._refuse, refusals), REACHED)
            for refusals in self._refusals
        ]
        self._count = 0
        self._logged: set[str] = set()

    @property
    def proxies(self) -> list[str]:
        """Addresses of the proxies inside. Refused connections are recorded for each."""
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    @property
    def variables(self) -> dict[str, str]:
        """Variables that name the proxy for programs."""
        if not self._ports:
            return {}
        proxy = self.proxies[0]
        near = ",".join(dict.fromkeys(["localhost", "127.0.0.1", "::1", *self.hosts]))
        named = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": near}
        return {**named, **{name.upper(): value for name, value in named.items()}}

    def refused(self, after: int, proxy: int = 0) -> Sequence[tuple[int, str]]:
        """Return the latest connections that a proxy has refused."""
        if proxy >= len(self._refusals):
            return []
        return [each for each in [*self._refusals[proxy]] if each[0] > after]

    def judge(self, proxy: int, judge: Judge | None) -> None:
        """Let a proxy check each connection with a function, or stop doing so."""
        self._proxies[proxy].judge = judge

    def _refuse(self, refusals: deque[tuple[int, str]], refusal: Refusal) -> None:
        self._count += 1
        refusals.append((self._count, str(refusal)))
        if refusal.host not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(refusal.host)
            self._request.log.warning("policy.network: %s", refusal.reason)

    @property
    def hosts(self) -> dict[str, str]:
        """Entries of `/etc/hosts` inside: name → address."""
        names = dict.fromkeys(place.host for place in self.places if _is_name(place.host))
        names.pop("localhost", None)
        itself = {place.host for place in self.places}
        free = (f"127.1.{at >> 8}.{at & 255}" for at in range(1, 1 << 16))
        return dict(zip(names, (each for each in free if each not in itself), strict=False))

    @property
    def forwards(self) -> list[dict[str, Any]]:
        """The addresses where the supervisor listens, and the socket for each."""
        named = {name: [address] for name, address in self.hosts.items()}
        named["localhost"] = ["127.0.0.1", "::1"]
        listening: dict[tuple[str, int], None] = {}
        added: list[dict[str, Any]] = []
        for number, place in enumerate(self.places):
            hosts = named.get(place.host, [place.host])
            # `localhost` and `127.0.0.1` are one place inside.
            new = [(host, place.port) for host in hosts if (host, place.port) not in listening]
            listening.update(dict.fromkeys(new))
            added.append({"listen": [*map(list, new)], "socket": f"{INSIDE}/{number}"})
        for number, port in enumerate(self._ports, len(self.places)):
            here = [[host, port] for host in ("127.0.0.1", "::1")]
            added.append({"listen": here, "socket": f"{INSIDE}/{number}"})
        return added

    async def open(self) -> None:
        """Start accepting connections on the sockets."""
        if not self.forwards:
            return
        folder = Path(tempfile.gettempdir(), f"flowengine-egress-{self._request.id}")
        self._request.trace(folders=[str(folder)])
        self.folder = folder
        sockets = self._sockets(folder)
        for place in self.places:
            answer = partial(self._answer, place)
            self._servers.append(
                await asyncio.start_unix_server(
                    answer, sock=next(sockets), limit=_READ, backlog=MOST
                )
            )
        for proxy in self._proxies:
            await proxy.open(next(sockets))

    def _sockets(self, folder: Path) -> Iterator[socket.socket]:
        """Create a socket. Its path may exceed the length limit of socket addresses."""
        folder.mkdir(mode=0o700)
        below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fchown(below, *self._owner)
            for number, _ in enumerate(self.forwards):
                made = socket.socket(socket.AF_UNIX)
                made.bind(f"/proc/self/fd/{below}/{number}")
                os.chown(str(number), *self._owner, dir_fd=below)
                yield made
        finally:
            os.close(below)

    async def close(self) -> None:
        """Close all connections and stop accepting."""
        for server in self._servers:
            server.close()
        await self._accepted.close()
        for proxy in self._proxies:
            await proxy.close()
        if self.folder is not None:
            await asyncio.to_thread(remove_tree, self.folder)
            self.folder = None

    async def _answer(
        self, place: AllowedDestination, inward: asyncio.StreamReader, inside: asyncio.StreamWriter
    ) -> None:
        writers = [inside]
        with self._accepted.connection():
            try:
                # Programs inside can connect to the sockets without the supervisor, which limits
                # connections.
                if len(self._accepted) > _MOST_ACCEPTED:
                    if f"{place}" not in self._logged:
                        self._logged.add(f"{place}")
                        self._request.log.warning(
                            "policy.network: %s: refused, since programs have %d connections open "
                            "without the supervisor. Further refusals are not logged",
                            place,
                            _MOST_ACCEPTED,
                        )
                    return
                outward, outside = await self._network.connect(place.host, place.port)
                writers.append(outside)
                inside.write(REACHED)
                await join((inward, inside), (outward, outside))
            except (OSError, TimeoutError, Refused) as error:
                if len(writers) == 1:
                    self._request.log.warning(
                        "policy.network: %s cannot be reached: %s", place, failure_reason(error)
                    )
            finally:
                for writer in writers:
                    writer.transport.abort()
