"""`RequestsMarkdownBrowser`: web pages and documents, one viewport at a time.

A thin object over the kind `documents` that adds the reader's position. The position is plain data
(`state`), so it can be stored and restored in another process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from flowengine.agents.models.registry import describe_document
from flowengine.sdk import Plain, StepError, ValidationError
from flowengine.sdk.environments import background
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.texts.untrusted import marked_failure
from flowengine_documents.pages import CHARACTERS as LONGEST_PAGE
from flowengine_documents.pages import LINES, NoSuchPage, Pages
from flowengine_envs.compat.python_envs import Unmanaged, sandbox_of, with_env
from flowengine_envs.documents.provider import DocumentsProvider
from flowengine_envs.documents.reader import Documents
from flowengine_envs.documents.visits import OpenedDocument, Page

_NOWHERE = "no page is open: call visit_page first"
_MOST_REMEMBERED = 100
"""Maximum number of addresses for going back, and of addresses recorded as visited."""
_Done = TypeVar("_Done")


class _Place(NamedTuple):
    """A position of the reader."""

    address: str
    page: int


class RequestsMarkdownBrowser(Unmanaged[Documents]):
    """Reads web pages, files and directories as Markdown. Creating one opens nothing.

    Args:
        viewport_size: Lines of a page.
        downloads_folder: Directory for downloaded files, created on first use. Paths are relative
            to its parent directory.
        network: Places that may be reached, as in `policy`.
        provider: `namespace` or `host`. The latter needs `network: any`.
        limits: Limits for one document: `time`, `memory`.
        vision_model: `provider/model` that describes images. Without one, they are not described.
        state: The `state` of another object to restore.

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
        limits: ResourceLimits | None = None,
        vision_model: str | None = None,
        state: Mapping[str, Plain] | None = None,
    ) -> None:
        if isinstance(viewport_size, bool) or viewport_size < 1:
            raise ValidationError(f"viewport_size is at least 1 line, not {viewport_size!r}")
        self.viewport_size = viewport_size
        self.downloads_folder = downloads_folder
        self._vision_model = vision_model
        self._at: OpenedDocument | None = None
        self._address = ""
        self._history: list[_Place] = []
        self._visits: dict[str, int] = {}
        self._left: dict[str, Any] = dict(state or {})
        self._turn = asyncio.Lock()
        downloads = os.path.basename(os.path.normpath(downloads_folder))
        super().__init__(
            sandbox_of(provider), os.path.join(downloads_folder, os.pardir), network=network,
            config={"downloads": downloads, "vision_model": vision_model}, limits=limits,
        )  # fmt: skip
        if self._left:
            self._recall(self._left)

    def __enter__(self) -> RequestsMarkdownBrowser:
        return self

    def visit_page(self, path_or_url: str) -> str:
        """Open an address and return its first page.

        Args:
            path_or_url: `https://...`, or a path: below the workspace, or from the current
                directory to a file of the workspace.

        Returns:
            `[Page 1/3]`, an empty line, and the page.

        Raises:
            UrlRefused: The policy forbids it.
            UnreadableDocument: It cannot be read.
            HttpError: The request failed.
        """
        return self._run(lambda: self._visit_page(path_or_url)).shown

    def page_down(self) -> str:
        """Go to the next page, if there is one, and return it."""
        return self._run(self._page_down).shown

    def page_up(self) -> str:
        """Go to the previous page, if there is one, and return it."""
        return self._run(self._page_up).shown

    def page_to(self, number: int) -> str:
        """Go to a page and return it, or return the valid page numbers."""
        return self._run(lambda: self._page_to(number)).shown

    def find_on_page(self, text: str) -> str:
        """Search from the current page on, and return the page that contains the text.

        Args:
            text: The text to search for, in which `*` matches any text.
        """
        return self._run(lambda: self._find_on_page(text)).shown

    def find_next(self) -> str:
        """Search for the same text again."""
        return self._run(self._find_next).shown

    def back(self) -> str:
        """Return to the previous address, and to the page last read there."""
        return self._run(self._back).shown

    @property
    def page_title(self) -> str:
        """The title of the open document."""
        return self._at.visit.document.title if self._at else ""

    @property
    def address(self) -> str:
        """The open address, or an empty string."""
        return self._address

    @property
    def state(self) -> dict[str, Plain]:
        """The reader's position as plain data, without any text of documents."""
        if self._at is None:
            return dict(self._left)
        return {
            "address": self._address,
            "page": self._at.pages.current,
            "sha256": self._at.visit.document.sha256,
            "history": [[*place] for place in self._history],
            "visits": dict(self._visits),
        }

    def answer(self, verb: str, *args: Any) -> str:
        """Call a method, and return its page for a model: in a marked block, with its address.

        Args:
            verb: `visit_page`, `page_down`, …
            args: Its arguments.
        """
        moved: Callable[..., Coroutine[Any, Any, ReaderView]] = getattr(self, f"_{verb}")
        return self._run(lambda: moved(*args)).as_text()

    def _run(self, work: Callable[[], Coroutine[Any, Any, _Done]]) -> _Done:
        async def alone() -> _Done:
            async with self._turn:
                return await work()

        return background().run(alone(), "await asyncio.to_thread(…)")

    async def _open(self, address: str, page: int = 1) -> OpenedDocument:
        resource = await self._ready()
        opened = await resource._call(
            lambda: resource._opened(address, "", "", self.viewport_size, 0)
        )
        if self._vision_model:
            opened.describe = partial(describe_document, self._vision_model)
            document = opened.visit.document
            if document.pictures:
                await opened.describe(document)
                pages = Pages(document.markdown, self.viewport_size, LONGEST_PAGE)
                pages.more, opened.pages = opened.pages.more, pages
        await self._reach(opened, page)
        opened.pages.current = min(page, len(opened.pages))
        return opened

    async def _reach(self, opened: OpenedDocument, page: int) -> None:
        resource = await self._ready()
        await resource._call(lambda: opened.reach(page))

    async def _visit_page(self, address: str) -> ReaderView:
        if not isinstance(address, str):
            raise ValidationError(f"an address is text, not {address!r:.50}")
        if "://" not in address:
            address = self._from_workspace(address)
        at = await self._open(address)
        if self._address and self._at:
            self._history.append(_Place(self._address, self._at.pages.current))
            del self._history[:-_MOST_REMEMBERED]
        before = self._visits.pop(at.visit.address, 0)
        self._visits[at.visit.address] = before + 1
        while len(self._visits) > _MOST_REMEMBERED:
            self._visits.pop(next(iter(self._visits)))
        self._at, self._address, self._left = at, address, {}
        return _seen(at, remark=f"Visited before: {before} times" if before else "")

    async def _resumed(self) -> tuple[OpenedDocument | None, str]:
        """Return the open document, reopened after a resume, and a remark about that."""
        if self._at is None and self._left:
            left = self._left
            self._at = await self._open(self._address, int(left["page"]))
            self._left = {}
            if self._at.visit.document.sha256 != left["sha256"]:
                return self._at, "(this document has changed since it was last read)"
        return self._at, ""

    async def _page_down(self) -> ReaderView:
        return await self._moved(lambda pages: pages.current + 1, lambda pages: pages.down())

    async def _page_up(self) -> ReaderView:
        return await self._moved(lambda pages: pages.current, lambda pages: pages.up())

    async def _page_to(self, number: int) -> ReaderView:
        return await self._moved(lambda pages: number, lambda pages: pages.go_to(number))

    async def _moved(self, to: Callable[[Pages], int], move: Callable[[Pages], str]) -> ReaderView:
        at, note = await self._resumed()
        if at is None:
            return ReaderView(None, _NOWHERE)
        try:
            await self._reach(at, to(at.pages))
            move(at.pages)
        except (NoSuchPage, TypeError) as error:
            known = f"pages are 1 to {len(at.pages)}"
            outcome = str(error) if isinstance(error, NoSuchPage) else known
            return ReaderView(None, _lines(note, outcome))
        return _seen(at, note)

    async def _find_on_page(self, text: str) -> ReaderView:
        at, note = await self._resumed()
        if at is None:
            return ReaderView(None, _NOWHERE)
        resource = await self._ready()
        text = text or at.pages.searched
        position = await resource._call(lambda: at.find(text)) if text else None
        if position is None:
            outcome = f"{text!r} was not found" if text else "there is nothing more to find"
            return ReaderView(None, _lines(note, outcome))
        return _seen(at, note, f"Found on page {at.pages.current}")

    async def _find_next(self) -> ReaderView:
        return await self._find_on_page("")

    async def _back(self) -> ReaderView:
        if not self._history:
            return ReaderView(None, "there is no page before")
        place = self._history[-1]
        at = await self._open(place.address, place.page)
        self._history.pop()
        self._at, self._address = at, place.address
        return _seen(at)

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


class ReaderView(NamedTuple):
    """The view of a reader after a move."""

    page: Page | None
    note: str = ""
    """Without a page: why the position did not change."""
    remark: str = ""
    """A remark for models."""

    @property
    def shown(self) -> str:
        """The page, as `visit_page` returns it."""
        if self.page is None:
            return self.note
        note = f"{self.note}\n" if self.note else ""
        pages = f"{self.page.pages}{'+' if self.page.more else ''}"
        return f"{note}[Page {self.page.number}/{pages}]\n\n{self.page.text or '(empty)'}"

    def as_text(self) -> str:
        """The page, in the form for a model."""
        if self.page is None:
            return self.note
        return self.page.as_text(_lines(self.remark, self.note))


def _seen(at: OpenedDocument, note: str = "", remark: str = "") -> ReaderView:
    pages = at.pages
    text = pages.content(pages.current)
    page = Page(at.visit, pages.current, len(pages), text, more=pages.more)
    return ReaderView(page, note, remark)


# Tools for agents over a `RequestsMarkdownBrowser`, which is `context_variables["file_env"]`.

KEY = "file_env"
_DECLARE = f"pass context_variables={{'{KEY}': RequestsMarkdownBrowser()}}"


def _page(env: RequestsMarkdownBrowser, verb: str, *args: Any) -> str:
    try:
        return env.answer(verb, *args)
    except StepError as error:
        source = str(args[0]) if verb == "visit_page" else env.address
        name = error.name or type(error).__name__
        return f"Error: {name}: {marked_failure(error.message, source)}"


@with_env(KEY, _DECLARE)
def visit_page(path_or_url: str, env: RequestsMarkdownBrowser) -> str:
    """Open a web page, a document or a directory, and show its first page.

    Args:
        path_or_url: https://... or a path.
        env: The browser.
    """
    return _page(env, "visit_page", path_or_url)


@with_env(KEY, _DECLARE)
def page_down(env: RequestsMarkdownBrowser) -> str:
    """Show the next page of the open document."""
    return _page(env, "page_down")


@with_env(KEY, _DECLARE)
def page_up(env: RequestsMarkdownBrowser) -> str:
    """Show the previous page of the open document."""
    return _page(env, "page_up")


@with_env(KEY, _DECLARE)
def page_to(page: int, env: RequestsMarkdownBrowser) -> str:
    """Show a page of the open document by its number.

    Args:
        page: Its number, from 1.
        env: The browser.
    """
    return _page(env, "page_to", page)


@with_env(KEY, _DECLARE)
def find_on_page(text: str, env: RequestsMarkdownBrowser) -> str:
    """Search the open document from the current page on, and show the page with the text.

    Args:
        text: The text to search for, in which * matches any text.
        env: The browser.
    """
    return _page(env, "find_on_page", text)


@with_env(KEY, _DECLARE)
def find_next(env: RequestsMarkdownBrowser) -> str:
    """Search for the same text again, and show the page that contains it."""
    return _page(env, "find_next")


@with_env(KEY, _DECLARE)
def back(env: RequestsMarkdownBrowser) -> str:
    """Return to the previously opened document."""
    return _page(env, "back")


TOOLS: tuple[Callable[..., str], ...] = (
    *(visit_page, page_down, page_up, page_to, find_on_page, find_next, back),
)
