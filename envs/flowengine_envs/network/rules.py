"""What a policy allows to be reached.

`network` is `none`, `any`, `public`, or a list of destinations, one of which may be `public`:

| destination | what may be reached |
|---|---|
| `db.example.org:5432` | that host at that port, whatever its address |
| `example.org` | that host at ports 80 and 443, whatever its address |
| `*.example.org`, `*.example.org:8443` | hosts below it, at public addresses |
| `public` | any host at a public address |

`deny_network` has destinations that may not be reached all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowengine_envs.network.addresses import spelled

PUBLIC = "public"
_WEB = frozenset({80, 443})


class Destination(NamedTuple):
    """A host, or the hosts below one, and the port."""

    host: str
    port: int | None
    below: bool

    @classmethod
    def of(cls, text: str) -> Destination:
        """Return what a policy names.

        Raises:
            ValueError: This is no destination.
        """
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text, ""
        below = host.startswith("*.")
        return cls(spelled(host.removeprefix("*.")), int(port) if port else None, below)

    def names(self, host: str) -> bool:
        """Return whether a host, as `spelled` returns it, is meant."""
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def allows(self, host: str, port: int) -> bool:
        """Return whether it allows a connection; without a port, it allows those of the web."""
        return self.names(host) and (port in _WEB if self.port is None else port == self.port)

    def denies(self, host: str, port: int) -> bool:
        """Return whether it denies a connection; without a port, it denies all."""
        return self.names(host) and self.port in {None, port}


@dataclass(frozen=True)
class Rules:
    """What may be reached."""

    any: bool = False
    public: bool = False
    allowed: tuple[Destination, ...] = ()
    denied: tuple[Destination, ...] = ()

    @classmethod
    def of(cls, network: str | Iterable[str] | None, deny: Iterable[str] | None = None) -> Rules:
        """Return the rules of a policy.

        Args:
            network: Its `network`; None is `none`.
            deny: Its `deny_network`.

        Raises:
            ValueError: Something in it is no destination.
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
        """Whether there is anything at all that may be reached."""
        return self.any or self.public or bool(self.allowed)

    def denies(self, host: str, port: int) -> bool:
        """Return whether a host, or an address of one, is denied."""
        return any(each.denies(host, port) for each in self.denied)

    def trusts(self, host: str, port: int) -> bool:
        """Return whether a host may be reached whatever its address is."""
        exact = (each for each in self.allowed if not each.below)
        return self.any or any(each.allows(host, port) for each in exact)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host may be reached if its address is public."""
        return self.public or any(each.allows(host, port) for each in self.allowed)


def needs_proxy(policy: Any) -> bool:
    """Return whether a policy allows what only a proxy can: names that are not known beforehand.

    Args:
        policy: An object with `network`.
    """
    network = getattr(policy, "network", None)
    if not isinstance(network, list):
        return network == PUBLIC
    return any(each == PUBLIC or each.startswith("*.") or ":" not in each for each in network)
