"""The part of the public engine with the budgets that executions share."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from flowengine.engines.infos import SharedBudgetInfo
from flowengine.engines.reading import Group
from flowengine.journal.records import UsedBudget
from flowengine.kernel.notation.accounts import UNITS, read_account
from flowengine.kernel.view import as_said


class Budgets(Group):
    """The budgets that executions share, by key and period."""

    def list(
        self, key: str | None = None, *, past: bool = False
    ) -> builtins.list[SharedBudgetInfo]:
        """Return budgets that executions have used, ordered by period and key.

        Args:
            key: Only those with this key.
            past: Include those whose period is over.
        """
        now = self._host.clock.now()
        return [*_shown(self._host.store.budgets(), key, None if past else now)]


def _shown(
    budgets: builtins.list[UsedBudget], key: str | None, since: int | None
) -> Iterator[SharedBudgetInfo]:
    for budget in budgets:
        account = read_account(budget.name)
        is_over = since is not None and account.is_over(since)
        if is_over or key not in (None, account.key):
            continue
        info: SharedBudgetInfo = {"key": account.key, "period": account.period, "amounts": {}}
        if account.resets is not None:
            info |= {"start": account.start, "resets": account.resets}
        used, reserved, limits = map(as_said, budget[1:])
        for meter in UNITS:
            if used.get(meter) or reserved.get(meter) or meter in limits:
                amounts = {"used": used.get(meter, 0), "reserved": reserved.get(meter, 0)}
                if meter in limits:
                    amounts["limit"] = limits[meter]
                info["amounts"][meter] = amounts
        yield info
