"""Filters of lists, row by row, for stores that read them completely."""

from __future__ import annotations

from flowengine.journal.filters import may_answer, text_of, words_of
from flowengine.journal.records import ExecutionFilter, ExecutionRecord, ListedWait, WaitFilter


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
