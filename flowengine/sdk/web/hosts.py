"""Normalizes hosts for comparison, and classifies IP addresses as public or not."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from flowengine.sdk.visible_text import printable

Address = IPv4Address | IPv6Address

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_LONGEST_HOST = 253
METADATA = "metadata of a cloud"
"""Services at these addresses give this machine's credentials to its programs."""
_RANGES_4 = {
    "100.100.100.200/32": METADATA,
    "168.63.129.16/32": METADATA,
    "169.254.169.254/32": METADATA,
    "169.254.170.2/32": METADATA,
    "169.254.170.23/32": METADATA,
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved",
    "198.51.100.0/24": "reserved",
    "203.0.113.0/24": "reserved",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
"""IANA's special-purpose ranges, after addresses with a use in clouds. The tables of `ipaddress`
differ between versions of Python."""
_RANGES_6 = {
    "fd00:ec2::/32": METADATA,
    "fd20:ce::254/128": METADATA,
    "::/128": "unspecified",
    "::1/128": "loopback",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
    "2001::/32": "tunnelled",
    "2001::/23": "reserved",
    "2001:db8::/32": "reserved",
    "2002::/16": "tunnelled",
    "3fff::/20": "reserved",
}
_NOT_PUBLIC_4 = [(IPv4Network(network), kind) for network, kind in _RANGES_4.items()]
_NOT_PUBLIC_6 = [(IPv6Network(network), kind) for network, kind in _RANGES_6.items()]
_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 addresses that have been allocated."""
_NAT64 = IPv6Network("64:ff9b::/96")
_LAST_32_BITS = 0xFFFFFFFF
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
"""The upper half of interface identifiers that embed an IPv4 address."""


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


def not_public(address: Address) -> str:
    """Return why an address is not public.

    Args:
        address: The address.

    Returns:
        `loopback`, `private`, …, or an empty string if it is public.
    """
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _NOT_PUBLIC_4 if address in network), "")
    inside = _wrapped(address)
    if inside is not None:
        kind = not_public(inside)
        return f"{kind} ({inside})" if kind else ""
    if address.packed[8:12] in _ISATAP:
        return "tunnelled"
    kind = next((kind for network, kind in _NOT_PUBLIC_6 if address in network), "")
    return kind or ("" if address in _UNICAST else "reserved")


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that receives connections to an IPv6 address, if any."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & _LAST_32_BITS)
    return None
