"""Sandboxes with separate networks, out of which only this process forwards connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowengine.sdk.environments import Sandbox

if TYPE_CHECKING:
    from flowengine_envs.network.egress import Egress


class OwnNetwork(Sandbox):
    """A sandbox whose outgoing connections are those of `_egress`, which subclasses create."""

    _egress: Egress

    @property
    def forwards(self) -> Sequence[Mapping[str, Any]]:
        """The connections that the supervisor forwards."""
        return self._egress.forwards

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables that name the proxy, if there is one."""
        return self._egress.variables

    @property
    def proxies(self) -> Sequence[str]:
        """Addresses of its proxies inside."""
        return self._egress.proxies

    def refused_connections(self, after: int = 0, proxy: int = 0) -> Sequence[tuple[int, str]]:
        """Return the connections that a proxy refused."""
        return self._egress.refused(after, proxy)

    def judge_connections(self, judge: Callable[[str, int], str] | None, proxy: int = 0) -> None:
        """Let a proxy check each connection with a function."""
        self._egress.judge(proxy, judge)
