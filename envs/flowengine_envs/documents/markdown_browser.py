"""`RequestsMarkdownBrowser`: pages of the web and documents, one viewport at a time.

A thin object over the kind `documents`: it remembers where its reader is. That position is plain
data (`state`), so it can be kept, and taken up again in another process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from flowengine.sdk import Plain, ValidationError
from flowengine.sdk.environments import Sandbox, background
from flowengine.sdk.models import Limits
from flowengine_envs.documents.page_text import Page
from flowengine_envs.documents.pages import LINES, NoSuchPage, Pages
from flowengine_envs.documents.provider import DocumentsProvider
from flowengine_envs.documents.reader import Documents
from flowengine_envs.documents.visits import Visit
from flowengine_envs.sandboxes.host import Host
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.unmanaged import Unmanaged

_SANDBOXES: Mapping[str, type[Sandbox]] = {"namespace": Namespace, "host": Host}
_NOWHERE = "no page is open: call visit_page first"
_CHANGED = "(this document has changed since it was last read)"
_MOST_REMEMBERED = 100
"""Addresses to go back to, and addresses that are known to have been visited."""
_Done = TypeVar("_Done")


class _Place(NamedTuple):
    """Where a reader was."""

    address: str
    page: int


class RequestsMarkdownBrowser(Unmanaged[Documents]):
    """Reads pages of the web, files and folders as Markdown. Making one opens nothing.

    Args:
        viewport_size: Lines of a page.
        downloads_folder: For files that are downloaded. It is made when it is first used; paths are
            below the folder that it is in.
        network: What may be fetched, as in `policy`.
        provider: `namespace` or `host`; the latter needs `network: any`.
        limits: What one document may take: `time`, `memory`.
        state: Where another one was: its `state`.

    Raises:
        ValidationError: An argument is wrong.
    """

    _provider = DocumentsProvider

    def __init__(
        self,
        viewport_size: int = LINES,
        downloads_folder: str = "./workspace/downloads",
        *,
        network: str | Sequence[str] = "public",
        provider: str = "namespace",
        limits: Limits | None = None,
        state: Mapping[str, Plain] | None = None,
    ) -> None:
        if isinstance(viewport_size, bool) or viewport_size < 1:
            raise ValidationError(f"viewport_size is at least 1 line, not {viewport_size!r}")
        if provider not in _SANDBOXES:
            raise ValidationError(f"provider is 'namespace' or 'host', not {provider!r}")
        self.viewport_size = viewport_size
        self.downloads_folder = downloads_folder
        self._sandbox = _SANDBOXES[provider]
        self._network = network if isinstance(network, str) else [*network]
        self._bounds = limits or Limits()
        self._at: tuple[Visit, Pages] | None = None
        self._address = ""
        self._history: list[_Place] = []
        self._visits: dict[str, int] = {}
        self._left: dict[str, Any] = dict(state or {})
        self._turn = asyncio.Lock()
        super().__init__()
        if self._left:
            self._recall(self._left)

    def __enter__(self) -> RequestsMarkdownBrowser:
        return self

    def visit_page(self, path_or_url: str) -> str:
        """Open an address and return its first page.

        Args:
            path_or_url: `https://...`, or a path.

        Returns:
            `[Page 1/3]`, an empty line, and the page.

        Raises:
            UrlRefused: It may not be reached.
            Unreadable: It cannot be read.
            HttpError: There is no answer.
        """
        return self._run(lambda: self._visit(path_or_url)).shown

    def page_down(self) -> str:
        """Go to the next page, if there is one, and return it."""
        return self._run(lambda: self._moved(lambda pages: pages.down())).shown

    def page_up(self) -> str:
        """Go to the page before, if there is one, and return it."""
        return self._run(lambda: self._moved(lambda pages: pages.up())).shown

    def page_to(self, number: int) -> str:
        """Go to a page and return it, or say which there are."""
        return self._run(lambda: self._moved(lambda pages: pages.go_to(number))).shown

    def find_on_page(self, text: str) -> str:
        """Search from the current page on; return the page on which the text is found.

        Args:
            text: What to look for; `*` is any text.
        """
        return self._run(lambda: self._search(text)).shown

    def find_next(self) -> str:
        """Search for the same again."""
        return self._run(lambda: self._search("")).shown

    def back(self) -> str:
        """Return to the address before, and the page that was read of it."""
        return self._run(self._back).shown

    @property
    def page_title(self) -> str:
        """The title of the document that is open."""
        return self._at[0].document.title if self._at else ""

    @property
    def address(self) -> str:
        """What is open; empty: nothing."""
        return self._address

    @property
    def state(self) -> dict[str, Plain]:
        """Where the reader is, as plain data; it holds no text of documents."""
        if self._at is None:
            return dict(self._left)
        visit, pages = self._at
        return {
            "address": self._address,
            "page": pages.current,
            "sha256": visit.document.sha256,
            "history": [[*place] for place in self._history],
            "visits": dict(self._visits),
        }

    def told(self, verb: str, *args: Any) -> str:
        """Do something, and return its page for a model: in a marked block, with its address.

        Args:
            verb: `visit_page`, `page_down`, …
            args: Its arguments.
        """
        verbs: dict[str, Callable[..., Coroutine[Any, Any, Seen]]] = {
            "visit_page": self._visit,
            "page_down": lambda: self._moved(lambda pages: pages.down()),
            "page_up": lambda: self._moved(lambda pages: pages.up()),
            "page_to": lambda number: self._moved(lambda pages: pages.go_to(number)),
            "find_on_page": self._search,
            "find_next": lambda: self._search(""),
            "back": self._back,
        }
        return self._run(lambda: verbs[verb](*args)).told()

    def _run(self, work: Callable[[], Coroutine[Any, Any, _Done]]) -> _Done:
        async def alone() -> _Done:
            async with self._turn:
                return await work()

        return background().run(alone(), "asyncio.to_thread")

    def _workspace(self) -> str:
        return os.path.dirname(os.path.abspath(os.path.expanduser(self.downloads_folder)))

    def _config(self) -> dict[str, Any]:
        return {"downloads": os.path.basename(os.path.normpath(self.downloads_folder))}

    def _policy(self) -> dict[str, Any]:
        return {"network": self._network}

    def _limits(self) -> Limits:
        return self._bounds

    async def _open(self, address: str, page: int = 1) -> tuple[Visit, Pages]:
        resource = await self._ready()
        visit = await resource._call(lambda: resource._visit(address))
        pages = Pages(visit.document.markdown, self.viewport_size)
        pages.current = min(page, len(pages))
        return visit, pages

    async def _visit(self, address: str) -> Seen:
        if not isinstance(address, str):
            raise ValidationError(f"an address is text, not {address!r:.50}")
        at = await self._open(address)
        if self._address and self._at:
            self._history.append(_Place(self._address, self._at[1].current))
            del self._history[:-_MOST_REMEMBERED]
        before = self._visits.pop(at[0].address, 0)
        self._visits[at[0].address] = before + 1
        while len(self._visits) > _MOST_REMEMBERED:
            self._visits.pop(next(iter(self._visits)))
        self._at, self._address, self._left = at, address, {}
        return _seen(*at, remark=f"Visited before: {before} times" if before else "")

    async def _resumed(self) -> tuple[tuple[Visit, Pages] | None, str]:
        """Return what is open, opened again after a resume, and what is to be said of that."""
        if self._at is None and self._left:
            left = self._left
            self._at = await self._open(self._address, int(left["page"]))
            self._left = {}
            if self._at[0].document.sha256 != left["sha256"]:
                return self._at, _CHANGED
        return self._at, ""

    async def _moved(self, move: Callable[[Pages], str]) -> Seen:
        at, note = await self._resumed()
        if at is None:
            return Seen(None, _NOWHERE)
        try:
            move(at[1])
        except (NoSuchPage, TypeError) as error:
            told = str(error) if isinstance(error, NoSuchPage) else f"pages are 1 to {len(at[1])}"
            return Seen(None, _lines(note, told))
        return _seen(*at, note)

    async def _search(self, text: str) -> Seen:
        at, note = await self._resumed()
        if at is None:
            return Seen(None, _NOWHERE)
        visit, pages = at
        found = pages.find(text) if text else pages.find_next()
        if found is None:
            told = f"{text!r} was not found" if text else "there is nothing more to find"
            return Seen(None, _lines(note, told))
        return _seen(visit, pages, note, f"Found on page {pages.current}")

    async def _back(self) -> Seen:
        if not self._history:
            return Seen(None, "there is no page before")
        place = self._history[-1]
        at = await self._open(place.address, place.page)
        self._history.pop()
        self._at, self._address = at, place.address
        return _seen(*at)

    def _recall(self, state: Mapping[str, Any]) -> None:
        try:
            self._address = str(state["address"])
            self._history = [_Place(str(a), int(p)) for a, p in state.get("history", [])]
            self._visits = {str(a): int(n) for a, n in state.get("visits", {}).items()}
            int(state["page"])
            str(state["sha256"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValidationError(f"this is not the state of a browser: {error!r}") from None


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))


class Seen(NamedTuple):
    """What a reader sees after a move."""

    page: Page | None
    note: str = ""
    """Without a page: why nothing has moved."""
    remark: str = ""
    """For models."""

    @property
    def shown(self) -> str:
        """The page, as `visit_page` returns it."""
        if self.page is None:
            return self.note
        note = f"{self.note}\n" if self.note else ""
        number, pages = self.page.number, self.page.pages
        return f"{note}[Page {number}/{pages}]\n\n{self.page.text or '(empty)'}"

    def told(self) -> str:
        """The page, as a model is shown it."""
        if self.page is None:
            return self.note
        return self.page.told(_lines(self.remark, self.note))


def _seen(visit: Visit, pages: Pages, note: str = "", remark: str = "") -> Seen:
    number = pages.current
    return Seen(Page(visit, number, len(pages), pages.content(number)), note, remark)
