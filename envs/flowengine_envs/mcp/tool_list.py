"""The tools of a server: which there are, and how the list has changed since it was read."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from flowengine.sdk import Plain, ToolChanged, ToolError, near_words
from flowengine.sdk.environments import Request
from flowengine.sdk.offered_tools import OfferedTool
from flowengine_envs.mcp.messages import brief, broken

if TYPE_CHECKING:
    from mcp import Client

Tools = list[dict[str, Plain]]
_LONGEST = 256
"""Characters of a tool's name."""
_SHOWN = 10
"""Tools that a message names."""


class Changed(NamedTuple):
    """How a server's list of tools differs from the one before: names, sorted."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class Approved(NamedTuple):
    """What people have approved of a tool whose call is about to be made."""

    source: str | None
    """Digest of what they knew of it; None: the session was not open yet."""


class ToolList:
    """What is known of the tools of one server.

    Args:
        request: What was opened.
        name: Names the server in messages.
        read: Asks the server for all of its tools.
    """

    def __init__(self, request: Request, name: str, read: Callable[[], Awaitable[Tools]]) -> None:
        self._request = request
        self._name = name
        self._read = read
        self._reading = asyncio.Lock()
        self._known: dict[str, str] | None = None
        """Name → digest of all that is said of it."""
        self._offered: dict[str, str] = {}
        """Name → digest of what models are told of it."""
        self._texts: dict[str, str] = {}
        """Name → all that is said of it, for people."""
        self._first: dict[str, str] = {}
        """The same, as it was when the session learned of the tool."""
        self._outdated = True
        self.changed: Changed | None = None
        """The difference that was found last."""

    def forget(self) -> None:
        """Read the list again before the next tool is called."""
        self._outdated = True

    async def all(self) -> Tools:
        """Return all tools, as the server lists them now."""
        async with self._reading:
            return await self._all()

    def text(self, name: str) -> str | None:
        """Return what the server said of a tool when it was asked last; None: nothing."""
        return self._texts.get(name)

    async def check(
        self, name: str, digest: str | None = None, approved: Approved | None = None
    ) -> None:
        """Refuse a tool that the server has not, or has no longer.

        Args:
            name: Its name.
            digest: That of what was offered; None: whatever it is now.
            approved: What people have approved, if they were asked.

        Raises:
            ToolChanged: It is another one now.
            ToolError: There is no such tool.
        """
        async with self._reading:
            # One that is not known may be newer than what the server has told of.
            if self._outdated or self._known is None or name not in self._known:
                await self._all()
        known = self._known or {}
        if name not in known:
            message = f"{self._name}: there is no tool '{name}'{nearest(name, known)}"
            raise ToolError(message, retryable=False)
        if digest is not None and digest != self._offered[name]:
            message = f"{self._name}: the tool '{name}' has changed since it was offered"
            raise ToolChanged(f"{message}; it was not called", retryable=False)
        if approved is not None:
            self._check_approved(name, approved)

    def _check_approved(self, name: str, approved: Approved) -> None:
        """Refuse a tool of which something else is said than what people have approved."""
        now, first = self._texts[name], self._first[name]
        known = approved.source or digest_of(first)
        if digest_of(now) == known:
            return
        # From now on this is what an approval without a text of its own is of.
        self._first[name] = now
        message = f"{self._name}: the tool '{name}' has changed since its call was approved"
        raise ToolChanged(
            f"{message}; it was not called",
            data={"approved": {"before": first, "now": now}},
            retryable=False,
        )

    async def watch(self, client: Client) -> None:
        """Hear of changes, where the revision of the protocol wants that to be asked for.

        Args:
            client: The connection; the watch ends with it.
        """
        self.forget()
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.forget()
        self.forget()

    async def _all(self) -> Tools:
        self._outdated = False  # what changes from here on is not in what is read
        try:
            tools = await self._read()
            self._check_names(tools)
        except BaseException:
            self._outdated = True
            raise
        self._compare({str(tool["name"]): _digest(tool) for tool in tools})
        self._offered = {str(tool["name"]): OfferedTool.of(tool).digest for tool in tools}
        self._texts = {str(tool["name"]): text_of(tool) for tool in tools}
        self._first = {**self._texts, **self._first}
        return tools

    def _check_names(self, tools: Tools) -> None:
        """Refuse names that nobody could read or write."""
        for tool in tools:
            name = str(tool["name"])
            if not 0 < len(name) <= _LONGEST or not name.isprintable():
                why = f"a tool's name is {brief(repr(name[:_LONGEST]))}"
                raise broken(f"{self._name}: list of tools", why)

    def _compare(self, now: dict[str, str]) -> None:
        before, self._known = self._known, now
        if before is None or before == now:
            return
        self.changed = Changed(
            sorted(now.keys() - before.keys()),
            sorted(name for name in now.keys() & before.keys() if now[name] != before[name]),
            sorted(before.keys() - now.keys()),
        )
        self._request.log.warning("the server's tools have changed: %s", self.changed)
        self._request.changed(**self.changed._asdict())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what was probably meant, or what there is, to be put behind a message.

    Args:
        name: What there is not.
        known: What there is.
    """
    names = sorted(known)
    if (near := near_words.did_you_mean(name, names)) is not None:
        return f"; {near}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; it has {', '.join(names[:_SHOWN])}{more}" if names else "; it has none"


def text_of(tool: Mapping[str, Plain]) -> str:
    """Return all that a server says of a tool, as lines that can be compared."""
    rest = {key: value for key, value in tool.items() if key != "description"}
    said = json.dumps(rest, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{tool.get('description') or ''}\n{said}\n"


def digest_of(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _digest(tool: Mapping[str, Plain]) -> str:
    return hashlib.sha256(json.dumps(tool, sort_keys=True).encode()).hexdigest()
