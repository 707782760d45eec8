"""Rules of a policy for the places that may be reached.

`network` is `none`, `any`, `public`, or a list of destinations, one of which may be `public`:

| destination | allowed places |
|---|---|
| `db.example.org:5432` | that host at that port, with any address |
| `example.org` | that host at ports 80 and 443, with any address |
| `*.example.org`, `*.example.org:8443` | hosts below it, at public addresses |
| `public` | any host at a public address |

`deny_network` lists destinations that are forbidden in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowengine.sdk.web.urls import spelled

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
