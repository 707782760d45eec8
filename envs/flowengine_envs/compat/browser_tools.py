"""Tools for agents over a `RequestsMarkdownBrowser`, which is `context_variables["file_env"]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.sdk import StepError
from flowengine.sdk.untrusted import marked_failure
from flowengine_envs.compat.markdown_browser import RequestsMarkdownBrowser
from flowengine_envs.compat.python_envs import with_env

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
