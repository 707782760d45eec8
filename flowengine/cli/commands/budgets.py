"""`flowengine budgets`: the budgets that executions share."""

from __future__ import annotations

from argparse import Namespace

from flowengine.cli.parsing.declared import arg, flag
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import out_result, table, when
from flowengine.kernel.notation.accounts import UNITS


@session_command(
    "list the budgets that executions share, and what was used of them",
    "flowengine budgets user:ana",
    arg("key KEY", "only budgets with this key", nargs="?"),
    flag("--past", "include those whose period is over"),
)
def budgets_command(session: CliSession, arguments: Namespace) -> None:
    budgets = session.engine.budgets.list(arguments.key, past=arguments.past)
    rows = []
    for budget in budgets:
        for meter, amounts in budget["amounts"].items():
            numbers = [f"{amounts[which]:g}" for which in ("used", "reserved")]
            limit = f"{amounts['limit']:g}" if "limit" in amounts else "-"
            of = [budget["key"], when(budget.get("start", budget["period"]))]
            resets = when(budget.get("resets", "-"))
            rows.append([*of, UNITS[meter], *numbers, limit, resets])
    head = ["KEY", "PERIOD", "OF", "USED", "RESERVED", "LIMIT", "FREE AGAIN"]
    out_result(arguments, budgets, table(rows, head), "no budget was used")
