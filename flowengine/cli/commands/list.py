"""`flowengine list`: executions, newest first."""

from __future__ import annotations

from argparse import Namespace
from typing import get_args

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, flag, many, section
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    err,
    out,
    out_json,
    out_result,
    paint,
    results,
    table,
    when,
)
from flowengine.engines.infos import told_by
from flowengine.engines.results import Status
from flowengine.kernel.notation.addresses import flow_name
from flowengine.sdk.texts.visible_text import one_line

STATUSES = [*get_args(Status)]
_TITLE = 50
"""Characters of the title of an execution."""
MOST = 5
"""Commands that are suggested below the list."""


@session_command(
    "list executions, newest first",
    """\
flowengine list --status waiting
flowengine list --flow expense --label team=sales --since 1d
flowengine list --search "invoice 4711"
flowengine list --counts""",
    arg("--flow F", "only those of the flow with this id"),
    flag("--counts", "only how many executions there are with each status, of all flows or --flow"),
    section(
        "without --counts",
        arg("--status S", f"only with this status: {', '.join(STATUSES)}", choices=STATUSES),
        many("--label K=V", "only those with this label", type=read.assignment),
        arg("--since TIME", "only those started since: 1d, or a time", type=read.moment),
        arg(
            "--search TEXT",
            "only those with these words in title, key inputs, error, flow or labels, or with an "
            "id that begins so",
        ),
        read.LIMIT,
    ),
    lists=True,
)
def list_command(session: CliSession, arguments: Namespace) -> None:
    if arguments.counts:
        counts = session.engine.executions.counts(arguments.flow)
        numbers = [[name, str(count)] for name, count in counts.items()]
        return out_result(arguments, counts, table(numbers, ["STATUS", "COUNT"]))
    page = session.engine.executions.list(
        flow=arguments.flow,
        status=arguments.status,
        labels=dict(arguments.label),
        since=arguments.since,
        search=arguments.search,
        limit=arguments.limit,
    )
    for item in page.items:
        session.make_pasted(item)
    if arguments.json:
        return out_json(page.items)
    if not page.items:
        return err(f"no matching executions in {session.place}")
    rows = [
        [session.short(item["execution"]), flow_name(item["flow"]),
         one_line(", ".join(told_by(item)), _TITLE), item["status"],
         when(item["started_at"]), when(item.get("ended_at", "-")),
         " ".join(f"{name}={value}" for name, value in item["labels"].items())]
        for item in page.items
    ]  # fmt: skip
    columns = ["ID", "FLOW", "TITLE", "STATUS", "STARTED", "ENDED", "LABELS"]
    if not any(row[2] for row in rows):
        columns, rows = columns[:2] + columns[3:], [row[:2] + row[3:] for row in rows]
    head, *lines = table(rows, columns)
    out(head)
    for line, row in zip(lines, rows, strict=True):
        before, status, after = line.rpartition(f"  {row[-4]}  ")
        painted = paint(row[-4], STATUS_COLOURS[row[-4]], results())
        out(before + status.replace(row[-4], painted) + after)
    left = [item for item in page.items if "command" in item]
    if left and session.is_remote and not session.is_served:
        start = session.command("worker")
        err(f"a worker begins the recorded executions. To start a worker: {start}")
        left = []
    for info in left[:MOST]:
        what = "begin" if info["status"] == "recorded" else "resume"
        err(f"{info['status']}; to {what} it: {info['command']}")
    if len(left) > MOST:
        more = session.command("list", "--status", left[MOST]["status"])
        err(f"and {len(left) - MOST} more: {more}")
    if page.next is not None:
        err(read.more(arguments.limit))
