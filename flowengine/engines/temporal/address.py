"""Addresses of stores in Temporal: `temporal://HOST:PORT/NAMESPACE`."""

from __future__ import annotations

import re
from typing import NamedTuple

from flowengine.errors import UsageError
from flowengine.store_folder import REMOTE

_FORM = re.compile(re.escape(REMOTE) + r"(?P<server>[^/@?#\s]+:\d+)/(?P<namespace>[^/?#\s]+)/?\Z")


class Address(NamedTuple):
    """The location of executions."""

    server: str
    """Host and port."""
    namespace: str


def read_address(text: str) -> Address:
    """Return the parts of an address.

    Raises:
        UsageError: The address is not valid.
    """
    match = _FORM.match(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not the address of a store in Temporal",
            hint=f"it has the form {REMOTE}HOST:PORT/NAMESPACE",
        )
    return Address(match["server"], match["namespace"])
