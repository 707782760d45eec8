"""The engine of a command line that uses a server: the client, called as the engine is."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from flowengine.errors import UsageError

if TYPE_CHECKING:
    from flowengine.client.client import Client
    from flowengine.engines.infos import UpgradeInfo

_OPTIONS = {"attach": "--attach", "by": "--as", "images": "--image"}
"""Arguments that only an engine with a store takes → their options: files, and another user."""


def connect(url: str) -> Client:
    """Return a client of a server, with the token of the environment."""
    from flowengine.client.client import Client

    return Client(url)


class ServedEngine:
    """The methods of the engine that commands use, with a server behind them.

    Args:
        url: Address of the server.
    """

    def __init__(self, url: str) -> None:
        self._client = connect(url)

    def __getattr__(self, name: str) -> Any:
        return partial(_called, getattr(self._client, name))

    @cached_property
    def user(self) -> str:
        """The user of the token."""
        return self._client.user()

    def resume(self, execution: str, *, on_crash: str | None = None) -> Any:
        """Answer the questions about interrupted attempts.

        Raises:
            UsageError: No answer is given. Only the process that drives an execution resumes it.
        """
        if on_crash is None:
            raise UsageError(
                "a server drives no executions: a worker of its store resumes them",
                hint="answer questions about interrupted steps with --on-crash retry or fail",
            )
        return self._client.resume(execution, on_crash=on_crash)

    def upgrade(self, flow: str, *executions: str, **given: Any) -> list[UpgradeInfo]:
        """Move executions, one after the other.

        Raises:
            UsageError: None is named.
        """
        if not executions:
            raise UsageError("against a server, name the executions to move")
        return [_called(self._client.upgrade, flow, execution, **given) for execution in executions]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    leave = close


def _called(method: Any, *args: Any, **given: Any) -> Any:
    """Call a method of the client, without the arguments that only a store takes.

    Raises:
        UsageError: One of them is given.
    """
    for name, option in _OPTIONS.items():
        if given.pop(name, None):
            raise UsageError(f"{option} does not work against a server")
    given.pop("resume", None)
    return method(*args, **{name: value for name, value in given.items() if value is not None})
