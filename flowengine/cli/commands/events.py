"""`flowengine events`: the journal of an execution."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, flag, section
from flowengine.cli.session import NEWEST, CliSession, session_command
from flowengine.cli.terminal.output import (
    error_text,
    first_line,
    flush,
    out,
    out_json,
)
from flowengine.flow.export.yaml_text import inline
from flowengine.sdk.texts.visible_text import printable
from flowengine.telemetry.otlp_json import traces_data
from flowengine.telemetry.spans import recorded_spans

SHOWN = (
    *("why", "value", "error", "choice", "by", "form", "edits", "comment", "data", "inputs"),
    "reason",
)
"""The fields of an event that are shown, in this order. `--json` prints all."""


@session_command(
    "show the journal of an execution: every event, in order",
    """\
flowengine events 01k8xq7mf4jb --follow
flowengine events 01k8xq7mf4jb --type failed --since 1h
flowengine --json events 01k8xq7mf4jb --from-seq 40""",
    arg("execution ID", NEWEST, nargs="?"),
    flag("--otel", "print a trace in the JSON form of OTLP instead"),
    section(
        "without --otel",
        flag("--follow", "keep printing new events until the execution ends"),
        arg("--step ADDRESS", "only events that began, changed or ended this step"),
        arg("--type TYPE", "only events of this type, such as failed"),
        arg("--since TIME", "only those since: 1h, or a time", type=read.moment),
        arg("--from-seq SEQ", "number of the first event (default: 0)", type=int, default=0),
    ),
)
def events_command(session: CliSession, arguments: Namespace) -> None:
    if arguments.otel:
        # The spans that have ended, for `curl` or a file.
        execution = session.execution(arguments.execution)
        return out_json(traces_data(recorded_spans(session.engine, execution)))
    entries = session.engine.executions.events(
        session.execution(arguments.execution),
        from_seq=arguments.from_seq,
        follow=arguments.follow,
        step=arguments.step,
        type=arguments.type,
        since=arguments.since,
    )
    for entry in entries:
        out_json(entry) if arguments.json else out(line(entry))
        flush()


def line(entry: dict[str, Any]) -> str:
    """Return an entry of the journal as one line."""
    what = printable(f"{entry['type']:10} {entry.get('address') or entry.get('signal') or ''}")
    shown = {key: entry[key] for key in SHOWN if entry.get(key) not in (None, "", {}, [])}
    if "error" in shown:
        shown["error"] = error_text(shown["error"])
    if entry["type"] == "warning":
        return f"{entry['seq']:>5}  {entry['at']:24}  {what}  {first_line(entry['message'], 500)}"
    fields = "  ".join(f"{key}={first_line(inline(value), 100)}" for key, value in shown.items())
    return f"{entry['seq']:>5}  {entry['at']:24}  {what}  {fields}".rstrip()
