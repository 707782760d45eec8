"""Normalizes hosts for comparison."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from flowengine.sdk.visible_text import printable

Address = IPv4Address | IPv6Address

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_LONGEST_HOST = 253


class BadHost(ValueError):
    """The host is invalid. The message contains the reason."""


def literal(host: str) -> Address | None:
    """Return the IP address of a host that is not a name.

    Args:
        host: As `spelled` returns it.
    """
    try:
        return ip_address(host)
    except ValueError:
        return None


def spelled(host: str) -> str:
    """Return a host in normal form: lower case, ASCII, an address in its usual form.

    Args:
        host: A name, an IPv4 address in any form that programs understand (`0x7f.1`), or an IPv6
            address with or without brackets.

    Returns:
        The name without a final dot, or the address without brackets.

    Raises:
        BadHost: It is not a valid name or address.
    """
    if host.startswith("[") != host.endswith("]"):
        raise BadHost(f"'{printable(host[:200])}' is not a host")
    bare = host[1:-1] if host.startswith("[") else host
    if ":" in bare or host.startswith("["):
        try:
            address = IPv6Address(bare)
        except ValueError:
            address = None
        if address is None or address.scope_id is not None:
            raise BadHost(f"'{printable(host[:200])}' is not an IPv6 address")
        return str(address)
    name = _ascii(bare).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return socket.inet_ntoa(socket.inet_aton(name))
        except OSError:
            raise BadHost(f"'{printable(host[:200])}' is not an IPv4 address") from None
    if len(name) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise BadHost(f"'{printable(host[:200])}' is not a host")
    return name


def _ascii(name: str) -> str:
    if name.isascii():
        return name.lower()
    import idna

    try:
        return idna.encode(name, uts46=True, transitional=False).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise BadHost(f"'{printable(name[:200])}' is not a host: {error}") from None
