"""Evaluation of filters row by row, and positions of pages in a list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowengine.errors import StoreError, UsageError
from flowengine.journal.encoding import unpack
from flowengine.journal.records import (
    ExecutionFilter,
    ExecutionRecord,
    ListedWait,
    Plain,
    WaitFilter,
)
from flowengine.sdk.texts.visible_text import one_line

Place = tuple[int, int]
"""The position of a row in a list: its age, then its number."""
_NEVER = 2**52
"""Later than all times, in milliseconds since 1970."""
_LONGEST_FAILURE = 300
"""Characters of the message of an error in lists."""
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text: its letters and digits, without case and accents.

    Args:
        text: Any text, also one to search for. Everything else in it separates words.
    """
    if not text.isascii():
        from unicodedata import combining, normalize

        text = "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))
    return _WORD.findall(text.lower())


def searched_text(texts: Iterable[str], values: Iterable[tuple[str, Plain]]) -> str:
    """Return the text of an execution that is searched for words.

    Args:
        texts: Its title, failure and flow.
        values: The names and values of its key inputs and labels.
    """
    return " ".join([*texts, *(f"{name} {value}" for name, value in values)])


def text_of(record: ExecutionRecord) -> str:
    """Return the text of an execution that is searched for words."""
    values = (*record.key_inputs.items(), *record.labels.items())
    return searched_text((record.title, record.failure or "", record.flow), values)


def failure_of(error: bytes | None) -> str | None:
    """Return the message of a packed error in one line, for lists. None: it has none."""
    if error is None:
        return None
    try:
        message = unpack(error)["message"]
    except (StoreError, TypeError, KeyError):  # a store accepts any bytes
        return None
    return one_line(message, _LONGEST_FAILURE) if isinstance(message, str) else None


def turn_of(record: Mapping[str, Any]) -> int:
    """Return the position of a wait by when it is due: then those that are never due, by age.

    Args:
        record: Its record.
    """
    due: int | None = record.get("due")
    return due if due is not None else _NEVER + int(record["since"])


def page_end(place: Place) -> str:
    """Return the end of a page, as text for `after`.

    Args:
        place: The position of its last row.
    """
    return f"{place[0]}.{place[1]}"


def read_page_end(after: str) -> Place:
    """Return the position of the last row of the previous page.

    Args:
        after: A value of `page_end`.

    Returns:
        The position.

    Raises:
        UsageError: It is not such a value.
    """
    age, _, number = after.partition(".")
    try:
        return int(age), int(number)
    except ValueError:
        raise UsageError(
            f"{after!r} is not the end of a page", hint="give `next` of the page before"
        ) from None


def may_answer(wait: ListedWait, assignees: Sequence[str] | None) -> bool:
    """Return whether one of the assignees, or any user, may answer a wait.

    Args:
        wait: The wait.
        assignees: None: all users.
    """
    wanted = wait.record.get("assignees")
    return assignees is None or not wanted or not set(wanted).isdisjoint(assignees)


def is_found(id: str, text: str, search: str) -> bool:
    """Return whether a search finds an execution.

    Args:
        id: Its id.
        text: Its text, from `searched_text`.
        search: See `ExecutionFilter.search`.
    """
    if id.startswith(search.strip()):
        return True
    words, sought = words_of(text), words_of(search)
    return bool(sought) and all(
        any(word.startswith(beginning) for word in words) for beginning in sought
    )


def fits_execution(record: ExecutionRecord, filter: ExecutionFilter) -> bool:
    """Return whether an execution matches a filter.

    Args:
        record: The execution.
        filter: The filter.
    """
    return (
        filter.flow in {None, record.flow}
        and filter.status in {None, record.status}
        and all(record.labels.get(name) == value for name, value in filter.labels.items())
        and (filter.since is None or record.created_at >= filter.since)
        and (
            filter.forked_from is None
            or str(record.forked_from).partition(" ")[0] == filter.forked_from
        )
        and (filter.due is None or (record.due is not None and record.due <= filter.due))
        and (filter.search is None or is_found(record.id, text_of(record), filter.search))
    )


def fits_wait(wait: ListedWait, filter: WaitFilter) -> bool:
    """Return whether a wait matches a filter.

    Args:
        wait: The wait.
        filter: The filter.
    """
    return (
        filter.state in {"all", "pending" if wait.open else "closed"}
        and (not filter.kinds or wait.record["kind"] in filter.kinds)
        and filter.flow in {None, wait.flow}
        and filter.execution in {None, wait.execution}
        and filter.batch in {None, wait.record.get("batch")}
        and may_answer(wait, filter.assignees)
        and (filter.since is None or wait.record["since"] >= filter.since)
        and (filter.before is None or wait.record["since"] <= filter.before)
    )
