"""The budgets that executions share: what was used of them, and when they are free again."""

from __future__ import annotations

from flowengine.kernel.notation.accounts import UNITS
from flowengine.page.view import PageView, checked
from flowengine.server import administration
from flowengine.server.calls import ApiCall
from flowengine.server.models import BudgetsQuery


def list_budgets(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the shared budgets of a key or of all, and those of past periods if asked for."""
    key, past = given.get("key") or None, given.get("past") == "on"
    query = checked(BudgetsQuery, {"key": key, "past": past})
    items = administration.list_budgets(call._replace(query=query))["items"]
    rows = [
        {"budget": budget, "of": UNITS[meter], **amounts}
        for budget in items
        for meter, amounts in budget["amounts"].items()
    ]
    return PageView("budgets.html", {"rows": rows, "key": key, "past": past})
