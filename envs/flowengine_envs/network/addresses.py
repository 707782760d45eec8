"""Classifies IP addresses as public or not."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
)

from flowengine.sdk.web.hosts import Address

_RANGES_4 = {
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
"""IANA's special-purpose ranges. The tables of `ipaddress` differ between versions of Python."""
_RANGES_6 = {
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
