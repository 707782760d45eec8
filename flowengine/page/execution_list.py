"""The list of executions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine.engines.results import ENDED, is_found_by
from flowengine.kernel.view import DECIDABLE
from flowengine.page.approval_views import why_not
from flowengine.page.looks import waiting
from flowengine.page.view import LIMIT, PageView, checked_query
from flowengine.server import approvals, executions
from flowengine.server.calls import ApiCall, moment
from flowengine.server.models import CountsQuery, ExecutionsQuery, WaitsQuery

_FILTERS = ("search", "flow", "status", "label", "since", "for")
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KINDS = (*sorted(DECIDABLE), "signal", "timer", "state", "worker")
_MOST_WAITS = 3
"""Waits of an execution in the list."""


def list_executions(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show executions, newest first, or the one whose id begins with the text to search for."""
    filters = filters_in(given)
    page = listed(call, filters, given.get("after"))
    match = [item["execution"] for item in page["items"]]
    if [*filters] == ["search"] and len(match) == 1 and match[0].startswith(filters["search"]):
        return PageView("", {}, redirect=f"/executions/{match[0]}")
    query = CountsQuery(flow=filters.get("flow"))
    counts = executions.count_executions(call._replace(query=query))
    awaited = {
        item["execution"]: _awaited(call, item["execution"])
        for item in page["items"]
        if item["status"] not in ENDED
    }
    others = {name: value for name, value in filters.items() if name != "status"}
    context = {"page": page, "filters": filters, "others": others, "awaited": awaited, **counts}
    is_live = not given.get("after")
    return PageView("executions.html", {**context, "is_live": is_live})


def filters_in(given: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of the list."""
    return {name: given[name].strip() for name in _FILTERS if given.get(name, "").strip()}


def listed(call: ApiCall, filters: dict[str, str], after: str | None, limit: int = LIMIT) -> Any:
    """Return a page of executions: all, or those with an approval for the user, oldest first."""
    if filters.get("for") == "me":
        query = checked_query(
            WaitsQuery,
            {
                "assignee": "me",
                "flow": filters.get("flow"),
                "after": after or None,
                "limit": limit,
            },
        )
        waits = approvals.list_approvals(call._replace(query=query))
        ids = dict.fromkeys(wait["execution"] for wait in waits["items"])
        items = [executions.shown_execution(call, call.engine.executions.summary(id)) for id in ids]
        return {"items": [item for item in items if _fits(item, filters)], "next": waits["next"]}
    wanted: dict[str, Any] = {"after": after or None, "limit": limit}
    wanted |= {name: filters[name] for name in ("search", "flow", "status") if name in filters}
    if "label" in filters:
        wanted["label"] = [filters["label"]]
    if "since" in filters:
        wanted["since"] = _day(filters["since"])
    query = checked_query(ExecutionsQuery, wanted)
    return executions.list_executions(call._replace(query=query))


def _fits(item: Any, filters: dict[str, str]) -> bool:
    """Return whether an execution with an approval for the user fits the other filters."""
    name, _, value = filters.get("label", "").partition("=")
    return (
        filters.get("status", item["status"]) == item["status"]
        and ("search" not in filters or is_found_by(item, filters["search"]))
        and ("label" not in filters or item["labels"].get(name) == value)
        and ("since" not in filters or moment(item["started_at"]) >= moment(_day(filters["since"])))
    )


def _day(text: str) -> str:
    """Return the start of a day in UTC. A full time is unchanged."""
    return f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text


def _awaited(call: ApiCall, execution: str) -> dict[str, Any]:
    """Return what an execution waits for, in a few words each, the oldest wait first."""
    query = checked_query(
        WaitsQuery, {"execution": execution, "kind": [*_KINDS], "limit": _MOST_WAITS + 1}
    )
    waits: list[Any] = approvals.list_approvals(call._replace(query=query))["items"]
    texts = [_in_words(wait) for wait in waits[:_MOST_WAITS]]
    return {
        "texts": texts if len(waits) <= _MOST_WAITS else [*texts, "and more"],
        "badge": waiting(waits, any(not why_not(call, wait) for wait in waits)),
    }


def _in_words(wait: Any) -> str:
    """Return what a wait is for, in a few words."""
    if wait.get("title"):
        return str(wait["title"])
    names = " or ".join(item["signal"] for item in wait.get("signals", ()))
    return f"{wait['kind']} {names or wait['step']}"
