"""Outgoing connections to allowed places: each address is checked before it is used."""

from __future__ import annotations

import asyncio
import socket
from asyncio.staggered import staggered_race
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple

from flowengine.sdk.python.user_code import on_thread
from flowengine.sdk.web.urls import BadHost, UrlRefused, literal, not_public, spelled

# Rules of a policy for the places that may be reached.
#
# `network` is `none`, `any`, `public`, or a list of destinations and `public`:
#
# | destination | allowed places |
# |---|---|
# | `db.example.org:5432` | that host at that port, with any address |
# | `example.org` | that host at ports 80 and 443, with any address |
# | `*.example.org`, `*.example.org:8443` | hosts below it, at public addresses |
# | `public` | any host at a public address |
#
# `deny_network` lists destinations that are forbidden in any case.

PUBLIC = "public"
_WEB = frozenset({80, 443})


class Destination(NamedTuple):
    """A host, or the hosts below one, and the port."""

    host: str
    port: int | None
    below: bool

    @classmethod
    def of(cls, text: str) -> Destination:
        """Return the destination that a policy names.

        Raises:
            ValueError: It is not a valid destination.
        """
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text, ""
        below = host.startswith("*.")
        return cls(spelled(host.removeprefix("*.")), int(port) if port else None, below)

    def names(self, host: str) -> bool:
        """Return whether it matches a host as returned by `spelled`."""
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def allows(self, host: str, port: int) -> bool:
        """Return whether it allows a connection. Without a port, it allows the web's ports."""
        return self.names(host) and (port in _WEB if self.port is None else port == self.port)

    def denies(self, host: str, port: int) -> bool:
        """Return whether it denies a connection. Without a port, it denies all ports."""
        return self.names(host) and self.port in {None, port}


@dataclass(frozen=True)
class Rules:
    """The allowed and denied places."""

    any: bool = False
    public: bool = False
    named: bool = False
    """Whether the first connection may go to any address, because a flow names it. The others, to
    which the first one may redirect, then go to public addresses and to those of its kind."""
    allowed: tuple[Destination, ...] = ()
    denied: tuple[Destination, ...] = ()

    @classmethod
    def of(cls, network: str | Iterable[str] | None, deny: Iterable[str] | None = None) -> Rules:
        """Return the rules of a policy.

        Args:
            network: Its `network`. None is `none`.
            deny: Its `deny_network`.

        Raises:
            ValueError: A destination is invalid.
        """
        named = [network] if isinstance(network, str) else [*(network or ["none"])]
        listed = (each for each in named if each not in {"none", "any", PUBLIC})
        return cls(
            any="any" in named,
            public=PUBLIC in named,
            allowed=tuple(map(Destination.of, listed)),
            denied=tuple(map(Destination.of, deny or ())),
        )

    @property
    def allows_anything(self) -> bool:
        """Whether any place is allowed."""
        return self.any or self.public or bool(self.allowed)

    def denies(self, host: str, port: int) -> bool:
        """Return whether a host or one of its addresses is denied."""
        return any(each.denies(host, port) for each in self.denied)

    def trusts(self, host: str, port: int) -> bool:
        """Return whether a host is allowed with any address."""
        exact = (each for each in self.allowed if not each.below)
        return self.any or any(each.allows(host, port) for each in exact)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host is allowed if its address is public."""
        return self.public or any(each.allows(host, port) for each in self.allowed)


def needs_proxy(policy: Any) -> bool:
    """Return whether a policy needs a proxy, because it allows names not known in advance.

    Args:
        policy: An object with `network`.
    """
    network = getattr(policy, "network", None)
    if not isinstance(network, list):
        return network == PUBLIC
    return any(each == PUBLIC or each.startswith("*.") or ":" not in each for each in network)


# Outgoing connections: resolves a name, checks each of its addresses, connects to an allowed one.
#
# A name is resolved once per connection, and the connection goes to a checked address, so a DNS
# server cannot change the target in between. Nothing else in this project connects for steps,
# untrusted programs or pages, except to an address that a flow names and that redirects nowhere.

CONNECTING = 30.0
"""Seconds within which one of the addresses must respond."""
READ = 64 * 1024
_HEAD_START = 0.25
"""Seconds until the next address is tried concurrently."""
_MOST_ADDRESSES = 8
_LOOKUPS = 16
"""Number of concurrent name lookups. A page could request thousands that never complete."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Dial = Callable[[str, int], Awaitable[Stream]]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, in the order in which to try them.

    Raises:
        OSError: It has none.
    """
    answers = await on_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return [*dict.fromkeys(str(each[4][0]) for each in answers)]


async def dial(address: str, port: int) -> Stream:
    """Connect to an address.

    Returns:
        Reader and writer.

    Raises:
        OSError: The connection failed.
    """
    return await asyncio.open_connection(address, port, limit=READ)


class PlaceRefused(UrlRefused):
    """The rules forbid a connection."""


class Network:
    """The allowed places, and the only way to connect to them.

    Args:
        rules: The rules of the policy.
        resolve: Returns the addresses of a host.
        dial: Connects to an address.
    """

    def __init__(self, rules: Rules, resolve: Resolve = resolve, dial: Dial = dial) -> None:
        self.rules = rules
        self._resolve = resolve
        self._dial = dial
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._first_kind: str | None = None
        """Kind of the address that was first connected to. None before that."""

    async def connect(self, host: str, port: int, timeout: float = CONNECTING) -> Stream:
        """Connect to a host, if the rules allow it.

        Args:
            host: A name or an address, in any form.
            port: Its port.
            timeout: Seconds for resolving and connecting.

        Returns:
            Reader and writer.

        Raises:
            UrlRefused: The rules forbid it.
            OSError: The connection failed.
            TimeoutError: It does not respond.
        """
        try:
            async with asyncio.timeout(timeout):
                address, stream = await self._first(await self.addresses(host, port), port)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer in {timeout:.0f} s") from None
        if self._first_kind is None:
            self._first_kind = _kind(address, port).partition(" (")[0]
        return stream

    async def permit(self, host: str, port: int) -> None:
        """Check a place that a proxy will connect to, by the addresses that are known here.

        Raises:
            UrlRefused: The rules forbid it, or one of its addresses.
        """
        if self.rules.named and self._first_kind is None:
            self._first_kind = ""  # Only the proxy knows the address.
            return
        with suppress(OSError):  # Only the proxy may be able to resolve it.
            await self.addresses(host, port, every=True)

    async def addresses(self, host: str, port: int, *, every: bool = False) -> list[str]:
        """Return the allowed addresses of a host.

        Args:
            host: A name or an address, in any form.
            port: Its port.
            every: Whether each address has to be allowed.

        Raises:
            PlaceRefused: None is allowed, or one is not.
            OSError: The host is unknown.
        """
        name, where = self.check(host, port)
        resolved = [str(literal(name))] if literal(name) else await self._look_up(name, port)
        if not resolved:
            raise OSError(f"{where} has no address")
        tried = resolved if every else resolved[:_MOST_ADDRESSES]
        judged = {each: self._judged(each, name, port) for each in tried}
        reachable = [each for each, reason in judged.items() if not reason]
        if not reachable or (every and len(reachable) < len(judged)):
            refused = [f"{each} ({reason})" for each, reason in judged.items() if reason]
            about = "" if literal(name) else f" leads to {', '.join(refused)}"
            raise PlaceRefused(f"{where}{about}" if about else f"{where} is {judged[resolved[0]]}")
        return reachable

    async def _look_up(self, name: str, port: int) -> Sequence[str]:
        """Resolve a name. Lookups are limited, because a hanging one cannot be cancelled."""
        await self._lookups.acquire()
        looking = asyncio.ensure_future(self._resolve(name, port))
        looking.add_done_callback(self._looked_up)
        return await asyncio.shield(looking)

    def _looked_up(self, looking: asyncio.Future[Sequence[str]]) -> None:
        self._lookups.release()
        if not looking.cancelled():
            looking.exception()  # The caller may have been cancelled.

    def _judged(self, address: str, name: str, port: int) -> str:
        """Return why an address of a host is forbidden, or an empty string."""
        address = address.partition("%")[0]
        if self.rules.denies(address, port):
            return "denied by policy.deny_network"
        if self.rules.trusts(name, port):
            return ""
        kind = _kind(address, port)
        is_alike = self._first_kind in {None, kind.partition(" (")[0]}
        return "" if self.rules.named and is_alike else kind

    def check(self, host: str, port: int) -> tuple[str, str]:
        """Check a host by its name, before it is resolved.

        Returns:
            The normalized name, and host and port for display.

        Raises:
            UrlRefused: It is not a valid host.
            PlaceRefused: No rule allows it, or one denies it.
        """
        try:
            name = spelled(host)
        except BadHost as error:
            raise UrlRefused(str(error)) from None
        shown = f"[{name}]" if ":" in name else name
        where = f"{shown}:{port}"
        rules = self.rules
        if rules.denies(name, port):
            raise PlaceRefused(f"{where} is denied by policy.deny_network")
        if not (rules.trusts(name, port) or rules.allows(name, port)):
            raise PlaceRefused(f"{where} is not allowed by policy.network")
        return name, where

    async def _first(self, addresses: Sequence[str], port: int) -> tuple[str, Stream]:
        """Connect to the first address that responds, with a delay between attempts."""

        async def dialled(address: str) -> tuple[str, Stream]:
            return address, await self._dial(address, port)

        attempts = [partial(dialled, address) for address in addresses]
        first: tuple[str, Stream] | None
        first, _, errors = await staggered_race(attempts, _HEAD_START)
        if first is None:
            raise next(filter(None, errors))
        return first


def _kind(address: str, port: int) -> str:
    """Return why an address is not one of another machine on the Internet, or an empty string."""
    kind = not_public(ip_address(address.partition("%")[0]))
    if kind:
        return f"not public: {kind}"
    return "an address of this machine" if _is_own(address, port) else ""


def _is_own(address: str, port: int) -> bool:
    """Return whether an address belongs to this machine, whose servers may trust local clients.

    Nothing is sent: the kernel only selects the source address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((address, port or 1))
        return str(asking.getsockname()[0]) == address
    return False
