"""Parses web addresses written by users, models and pages."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from flowengine.sdk.errors import Refused
from flowengine.sdk.validation_messages import parser_reason
from flowengine.sdk.visible_text import DISGUISING
from flowengine.sdk.web.hosts import BadHost, spelled

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
        raise UrlRefused(f"the address has {len(text):,} characters; at most {longest:,} are taken")
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
        raise UrlRefused(f"the host of '{_shown(text)}' is percent-encoded: write it as it is")
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
