"""Parses web addresses written by users, models and pages."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from flowengine.sdk.errors import Refused
from flowengine.sdk.texts.validation_messages import parser_reason
from flowengine.sdk.texts.visible_text import DISGUISING, printable

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


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


PORTS = {"http": 80, "https": 443}
_LONGEST = 8_000
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HOST_AND_PORT = re.compile(
    r"(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+):[0-9]{1,5}(?:[/?#]|$)", re.ASCII | re.IGNORECASE
)
_JOINERS = re.compile("[\t\n\u200c\u200d]")
_UNRESERVED = "!#$%&'()*+,/:;=?@[]~-._"
_SHOWN = 200


class UrlRefused(Refused):
    """The address is invalid, or the policy forbids it. The message contains the reason."""

    type = "UrlRefused"


class Url(NamedTuple):
    """A web address."""

    scheme: str
    host: str
    """Normalized host: lower case, ASCII, an address in its usual form."""
    port: int
    target: str
    """Path and query, in ASCII."""
    credentials: str = ""
    """`user:password`, not encoded. It is never shown."""
    note: str = ""
    """An assumption made, or another remark."""

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    @property
    def origin(self) -> str:
        """Scheme and host, with the port unless it is the default."""
        port = "" if PORTS[self.scheme] == self.port else f":{self.port}"
        return f"{self.scheme}://{self.bracketed}{port}"

    @property
    def bracketed(self) -> str:
        """The host as written in addresses."""
        return f"[{self.host}]" if ":" in self.host else self.host


def scheme_of(text: str) -> str:
    """Return the scheme of an address in lower case, or an empty string."""
    match = _SCHEME.match(text)
    if match is None or (_HOST_AND_PORT.match(text) and "://" not in text):
        return ""
    return match[1].lower()


def read_url(text: str, base: Url | None = None, longest: int = _LONGEST) -> Url:
    """Parse a web address.

    Args:
        text: The address as written.
        base: The page that contained it, for relative addresses.
        longest: Maximum number of characters.

    Returns:
        The address. If the scheme is missing, HTTPS is assumed and recorded in `note`.

    Raises:
        UrlRefused: It is invalid or not a web address. The message states the correct form.
    """
    text = text.strip(" \t\r\n")
    if not text:
        raise UrlRefused("the address is empty: write https://example.org/page")
    if len(text) > longest:
        raise UrlRefused(f"the address has {len(text):,} characters: the limit is {longest:,}")
    if DISGUISING.search(text) or _JOINERS.search(text):
        raise UrlRefused(f"{text[:_SHOWN]!r} has invisible characters in it")
    if "\\" in text.partition("?")[0]:
        raise UrlRefused(f"'{_shown(text)}' has a backslash in it: write /")
    if base is not None:
        try:
            text = urljoin(str(base), text)
        except ValueError as error:
            raise UrlRefused(
                f"'{_shown(text)}' is not an address: {parser_reason(error)}"
            ) from None
    note = ""
    scheme = scheme_of(text)
    if not scheme:
        text, scheme = f"https://{text.removeprefix('//')}", "https"
        note = "no scheme was given, so https was tried"
    if scheme not in PORTS:
        raise UrlRefused(f"'{scheme}:' addresses are not fetched: write https:// or http://")
    return _split(text, scheme, note)


def _split(text: str, scheme: str, note: str) -> Url:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UrlRefused(f"'{_shown(text)}' is not an address: {parser_reason(error)}") from None
    try:
        port = parts.port
    except ValueError:
        raise UrlRefused(
            f"'{_shown(text)}' is not an address: its port must be a number up to 65535"
        ) from None
    credentials, _, host = parts.netloc.rpartition("@")
    if not host.endswith("]"):
        host = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    if not host or port == 0:
        raise UrlRefused(f"'{_shown(text)}' has no host: write https://example.org/page")
    if "%" in host:
        raise UrlRefused(f"the host of '{_shown(text)}' is percent-encoded: write it decoded")
    try:
        name = spelled(host)
    except BadHost as error:
        raise UrlRefused(str(error)) from None
    if not host.isascii() or "xn--" in name:
        note = "; ".join(filter(None, [note, f"the host is {name}, shown as {_unicode(name)}"]))
    target = quote(parts.path or "/", safe=_UNRESERVED)
    if parts.query:
        target += f"?{quote(parts.query, safe=_UNRESERVED)}"
    return Url(scheme, name, port or PORTS[scheme], target, unquote(credentials), note)


def _unicode(name: str) -> str:
    import idna

    try:
        return idna.decode(name)
    except (idna.IDNAError, UnicodeError):
        return name


def _shown(text: str) -> str:
    """Return an address for a message: without credentials, and truncated."""
    return re.sub(r"//[^/?#]*@", "//", text)[:_SHOWN]
