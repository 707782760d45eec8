"""Secrets that the host's settings name: of the proxy, of the OpenID client, of hooks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flowengine.sdk import SecretMissing
from flowengine.secrets import resolve
from flowengine.server.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger("flowengine.server")


def host_secret(
    whose: str, source: Mapping[str, str], read: Callable[[str], bytes] = str.encode
) -> bytes:
    """Return a secret, without white space around it.

    Args:
        whose: Whose it is, for messages: `the proxy`.
        source: `{"env": VARIABLE}` or `{"file": PATH}`.
        read: Returns the bytes that its text stands for. A `ValueError` says why there are none.

    Raises:
        RequestRefused: It is missing or blank, or its text stands for nothing.
    """
    try:
        secret = read(resolve(f"of {whose}", source).strip())
        why = "it is blank"
    except SecretMissing as error:
        secret, why = b"", error.message
    except ValueError as error:
        secret, why = b"", str(error)
    if not secret:
        _log.error("the secret of %s cannot be used: %s", whose, why)
        raise RequestRefused(503, f"the secret of {whose} is not available on the server")
    return secret
