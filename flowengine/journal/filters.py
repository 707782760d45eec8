"""Evaluation of filters row by row, and positions of pages in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.errors import UsageError
from flowengine.journal.records import ExecutionFilter, ExecutionRecord, ListedWait, WaitFilter

Place = tuple[int, int]
"""The position of a row in a list: its age, then its number."""
_NEVER = 2**52
"""Later than all times, in milliseconds since 1970."""


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


def may_answer(wait: ListedWait, assignees: Sequence[str] | None) -> bool:
    """Return whether one of the assignees, or any user, may answer a wait.

    Args:
        wait: The wait.
        assignees: None: all users.
    """
    wanted = wait.record.get("assignees")
    return assignees is None or not wanted or not set(wanted).isdisjoint(assignees)


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
