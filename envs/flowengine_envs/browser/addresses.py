"""Checks addresses, and shortens them for display."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from flowengine_envs.browser.reasons import ActionFailed

_LONGEST_URL = 2000
_SCHEMES = ("http", "https")


def checked_url(url: str) -> str:
    """Return an address that may be opened.

    Raises:
        ActionFailed: It is invalid, or its scheme is not allowed.
    """
    text = url.strip()
    if not text or len(text) > _LONGEST_URL or any(ord(each) < 0x21 for each in text):
        raise ActionFailed(f"'{url:.100}' is not an address; write https://example.org/page")
    if text.lower() == "about:blank":
        return "about:blank"
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        raise ActionFailed(f"'{text:.100}' is not an address") from None
    if parts.scheme.lower() not in _SCHEMES:
        named = f"scheme '{parts.scheme:.20}'" if parts.scheme else "an address without a scheme"
        raise ActionFailed(
            f"UrlRefused: {named} is not opened; only http, https and files of the workspace are"
        )
    if not host:
        raise ActionFailed(f"UrlRefused: '{text:.100}' names no host")
    return text


def is_file(url: str) -> bool:
    """Return whether an address names a file."""
    return url.strip()[:5].lower() == "file:"


def shown_url(url: str) -> str:
    """Return an address for display: without user name and password, and truncated."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url[:_LONGEST_URL]
    if "@" in parts.netloc:
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        url = urlunsplit(parts)
    return url[:_LONGEST_URL]
