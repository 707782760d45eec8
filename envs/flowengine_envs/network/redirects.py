"""Where an answer redirects to, and what may be sent there."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from flowengine_envs.network.urls import Url, read_url

MOST = 10
"""Redirects of one request."""
STATUSES = frozenset({301, 302, 303, 307, 308})


def next_url(url: Url, location: str) -> Url:
    """Return where an answer redirects to; credentials stay with the server they are for.

    Args:
        url: What was asked for.
        location: The header of the answer.

    Raises:
        UrlRefused: That is no address of the web.
    """
    try:
        # Servers send UTF-8 where only ASCII may stand.
        text = location.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        text = location
    found = read_url(text, url)
    kept = url.credentials if found.origin == url.origin else ""
    return found._replace(credentials=found.credentials or kept)


def authorization(url: Url) -> Mapping[str, str]:
    """Return the header for the credentials in an address, if it has some."""
    if not url.credentials:
        return {}
    return {"Authorization": f"Basic {b64encode(url.credentials.encode()).decode()}"}
