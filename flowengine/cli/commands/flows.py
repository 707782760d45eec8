"""`flowengine flows`: the deployed flows, and the schedules that start them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import unified_diff
from time import time
from typing import Any, NamedTuple

from flowengine.cli.commands.run import load
from flowengine.cli.driving.drive import drive_recorded
from flowengine.cli.driving.resuming import leave_recorded
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.arguments import is_deployed
from flowengine.cli.parsing.declared import Added, arg, command, exits, flag
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, flush, out, out_json, out_table, when
from flowengine.cli.views.outcome import EXIT_CODES
from flowengine.engines.flows import load as load_here
from flowengine.engines.infos import DeployedInfo, ScheduledStart, StartInfo
from flowengine.errors import InputError
from flowengine.flow.export.definition import definition
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import printable
from flowengine.util.blocking import run_on_new_loop

_HASH_SHOWN = 12


def _schedule(note: str) -> Added:
    """Return the option that names a schedule of the flow."""
    return arg("--schedule EXPR", f"the expression of a schedule ({note})")


_FLOW = arg("flow FLOW", "its id")


@session_command(
    "list the deployed flows, with the signals and schedules that start them",
    "flowengine flows list",
)
def flows_list_command(session: CliSession, arguments: Namespace) -> int:
    """List the current version of each."""
    flows = [flow for flow in session.engine.flows.versions() if flow["current"]]
    if arguments.json:
        starts = session.engine.flows.starts()
        mine = ([start for start in starts if start["flow"] == flow["flow"]] for flow in flows)
        out_json([{**flow, "starts": starts} for flow, starts in zip(flows, mine, strict=True)])
        return 0
    if not flows:
        err("no flow is deployed: flowengine deploy FILE")
    return show(session, flows)


def show(session: CliSession, flows: Sequence[DeployedInfo]) -> int:
    """Print deployed versions and what starts them: a line for each signal and schedule."""
    rows = []
    for flow in flows:
        starts = session.engine.flows.starts(flow["flow"]) if flow["current"] else []
        for by in [_started_by(start) for start in starts] or ["-"]:
            row = [flow["flow"], flow["version"], flow["hash"][:_HASH_SHOWN]]
            rows.append([*row, when(flow["deployed_at"]), by])
    if rows:
        out_table(rows, "FLOW", "VERSION", "HASH", "DEPLOYED", "STARTED BY")
    return 0


def show_schedules(session: CliSession, starts: Sequence[StartInfo]) -> None:
    """Print the schedules of a flow, with their next times."""
    if session.arguments.json:
        out_json(starts)
    else:
        for start in starts:
            if "schedule" in start:
                out(_started_by(start))


def _started_by(start: StartInfo) -> str:
    """Describe what starts a flow, with the next time of a schedule."""
    if "signal" in start:
        return printable(f"signal {start['signal']}")
    following = f"next {when(start['due'])}" if "due" in start else "paused"
    return f"{printable(start['schedule'])} {printable(start['timezone'])}, {following}"


_FACTS = ("flow", "version", "title", "hash", "inputs", "modules")


@session_command(
    "show a deployed flow: its versions, what starts it, its inputs and Python modules",
    """\
flowengine flows show report
flowengine flows show report@1""",
    arg("name NAME", "a deployed flow: ID, ID@VERSION or hash"),
)
def flows_show_command(session: CliSession, arguments: Namespace) -> int:
    engine = session.engine
    facts = _facts(session, arguments.name)
    versions = engine.flows.versions(facts["flow"])
    if arguments.json:
        out_json({**facts, "starts": engine.flows.starts(facts["flow"]), "versions": versions})
        return 0
    for name in ("title", "hash", "inputs", "modules"):
        if fact := facts[name]:
            out(f"{name:8}  {fact if isinstance(fact, str) else inline(fact)}")
    return show(session, versions)


def _facts(session: CliSession, name: str) -> dict[str, Any]:
    """Return the flow, its inputs and its imports."""
    if session.is_served:
        client: Any = session.engine
        item = client.flows.show(name)
        return {fact: item[fact] for fact in _FACTS}
    flow = session.engine.flows.find(name)
    title = flow.compiled.get("title", "")
    parts = (flow.id, flow.version, title, flow.form, flow.inputs, flow.modules)
    return dict(zip(_FACTS, parts, strict=True))


SAME, DIFFER = 0, 1


@command(
    "compare the definitions of two deployed versions or files",
    """\
flowengine flows diff report@1 report@2
flowengine flows diff report report.yaml""",
    exits(f"{SAME} if they are the same, {DIFFER} if not"),
    arg("flow FLOW", "a deployed flow, ID or ID@VERSION, or a file"),
    arg("other OTHER", "the one to compare it with"),
)
def flows_diff_command(arguments: Namespace) -> int:
    """Compare them.

    Returns:
        The exit code: 0 if they are the same, 1 if not.
    """
    names = arguments.flow, arguments.other
    with CliSession(arguments) as session:
        one, other = (_defined(session, name) for name in names)
    before, after = (definition.text.splitlines() for definition in (one, other))
    lines = list(unified_diff(before, after, *names, lineterm=""))
    if arguments.json:
        out_json({"same": not lines, "hashes": [one.hash, other.hash], "lines": lines})
    else:
        for line in lines:
            out(line)
    return DIFFER if lines else SAME


class _Defined(NamedTuple):
    """A flow as text."""

    text: str
    hash: str


def _defined(session: CliSession, name: str) -> _Defined:
    """Return a deployed flow, which a server may have, or that of a file."""
    if session.is_served and is_deployed(name):
        client: Any = session.engine
        found = client.flows.definition(name)
        return _Defined(found["definition"], found["hash"])

    flow = load_here(name) if session.is_served else load(session, name)
    return _Defined(definition(flow.compiled), flow.form)


@session_command(
    "remove a deployed flow: nothing starts it any more, and open executions continue",
    """\
flowengine flows undeploy report
flowengine flows undeploy report@2""",
    arg("name NAME", "its id, or ID@VERSION for an earlier version"),
)
def flows_undeploy_command(session: CliSession, arguments: Namespace) -> None:
    removed = session.engine.flows.undeploy(arguments.name)
    if arguments.json:
        out_json(removed)
    elif not arguments.quiet:
        err(f"no longer deployed: {', '.join(removed)}")


@session_command("pause the schedules of a deployed flow", "flowengine flows pause report", _FLOW)
def flows_pause_command(session: CliSession, arguments: Namespace) -> None:
    return show_schedules(session, session.engine.flows.pause(arguments.flow))


@session_command(
    "resume the schedules of a deployed flow, from their next times on",
    "flowengine flows resume report",
    _FLOW,
)
def flows_resume_command(session: CliSession, arguments: Namespace) -> None:
    return show_schedules(session, session.engine.flows.resume(arguments.flow))


@session_command(
    "run a deployed flow now, with the inputs of its schedule",
    """\
flowengine flows trigger report
flowengine flows trigger report --schedule '0 9 * * 1-5' --no-resume""",
    _FLOW,
    _schedule("required if it has several"),
    flag("--no-resume", "record the execution without running it"),
    read.LINGER,
)
def flows_trigger_command(session: CliSession, arguments: Namespace) -> int:
    execution = session.engine.flows.trigger(arguments.flow, schedule=arguments.schedule)
    if arguments.no_resume or session.is_served:
        leave_recorded(session, [execution])
        return 0
    return drive_recorded(session, execution, lambda: session.engine.resume(execution))


_LIMIT = 1000


@command(
    "run the past times of a deployed flow's schedules, a few at once",
    """\
flowengine flows backfill report --since 7d
flowengine flows backfill report --since 30d --until 7d --concurrency 4""",
    _FLOW,
    arg(
        "--since TIME", "first moment of the range: 7d, or a time", type=read.moment, required=True
    ),
    arg("--until TIME", "last moment (default: now)", type=read.moment, default=None),
    _schedule("default: all of them"),
    arg(
        "--concurrency N",
        "how many executions run at once (default: 1). Executions that wait do not count",
        type=read.count,
        default=1,
    ),
    arg(
        "--limit N",
        f"how many times the range may contain (default: {_LIMIT})",
        type=read.count,
        default=_LIMIT,
    ),
)
def flows_backfill_command(arguments: Namespace) -> int:
    """Run them, and print a line for each when it has ended or waits.

    Returns:
        The exit code: the highest of those that the executions would have.
    """
    moments = arguments.since, arguments.until or int(time() * 1000)
    since, until = (datetime.fromtimestamp(moment / 1000, UTC) for moment in moments)
    arguments.linger = 0.0
    shown: list[dict[str, Any]] = []
    with CliSession(arguments) as session:

        def report(started: ScheduledStart) -> None:
            shown.append(_entry(session, started))
            if not arguments.json:
                out("  ".join(shown[-1].values()))
                flush()  # the next one may take hours

        if session.is_served:
            client: Any = session.engine
            for started in client.flows.record_past(
                arguments.flow, since, until, schedule=arguments.schedule
            ):
                report(started)
        else:
            run_on_new_loop(
                session.engine.flows.backfill_async(
                    arguments.flow,
                    since,
                    until,
                    schedule=arguments.schedule,
                    concurrency=arguments.concurrency,
                    limit=arguments.limit,
                    tell=report,
                )
            )
    if arguments.json:
        out_json(sorted(shown, key=lambda entry: str(entry["time"])))
    elif not shown:
        err("the range contains no time of a schedule")
    if session.is_served:  # the workers run them
        return InputError.exit_code if any(start["status"] == "refused" for start in shown) else 0
    codes = {**EXIT_CODES, "skipped": 0}
    return max((codes.get(entry["status"], InputError.exit_code) for entry in shown), default=0)


def _entry(session: CliSession, started: ScheduledStart) -> dict[str, Any]:
    """Return the outcome of a scheduled time: its execution, or the reason why it has none."""
    entry = {"time": when(format_time(started.time))}
    if started.execution is None and started.error is None:
        return {**entry, "status": "skipped"}
    if started.execution is None:
        return {**entry, "status": "refused", "error": str(started.error)}
    status = session.engine.executions.result(started.execution).status
    return {**entry, "status": status, "execution": started.execution}
