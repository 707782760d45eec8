"""Hints about the network policy of an environment, for errors of programs that cannot reach it."""

from __future__ import annotations

import re

from flowengine.sdk.environments import Request

_CUT_OFF = re.compile(
    "name resolution|could ?n[o']t resolve|name or service not known|network is unreachable"
    "|unable to resolve|getaddrinfo|no address associated",
    re.IGNORECASE,
)
"""Output of programs that cannot find or reach a host."""
_LAST = 4096
"""Characters at the end of an output in which that is looked for."""


def reachable(request: Request) -> str | list[str]:
    """Return what programs of an environment may reach: `any`, `none`, `public`, or a list.

    Args:
        request: The request that opened it.
    """
    sandbox = request.sandbox
    if sandbox is None or "network" not in sandbox.capabilities().holds:
        return "any"
    return request.policy.network or "none"


def network_hint(network: str | list[str], *printed: str) -> str:
    """Return why a failed program could not reach the network, or an empty text.

    Args:
        network: The destinations that it may reach.
        printed: Its outputs.
    """
    if network in ("any", "public") or not any(_CUT_OFF.search(item[-_LAST:]) for item in printed):
        return ""
    reached = f"only {', '.join(network)}" if isinstance(network, list) else "no network"
    return f"programs in this environment reach {reached}: allow hosts in policy.network"
