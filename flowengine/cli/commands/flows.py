"""`flowengine flows`: the deployed flows, and the schedules that start them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

from flowengine.cli.driving.drive import drive_recorded
from flowengine.cli.driving.resuming import leave_recorded
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, one_of, section
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, flush, out, out_json, out_result, out_table, when
from flowengine.cli.views.outcome import EXIT_CODES
from flowengine.engines.infos import DeployedInfo, ScheduledStart, StartInfo
from flowengine.errors import InputError
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import printable
from flowengine.util.blocking import run_on_new_loop


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
            row = [flow["flow"], flow["version"], flow["hash"][:12]]
            rows.append([*row, when(flow["deployed_at"]), by])
    if rows:
        out_table(rows, "FLOW", "VERSION", "HASH", "DEPLOYED", "STARTED BY")
    return 0


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


_MOST = 1000


@command(
    "show, pause or resume the schedules of a deployed flow, or run it now or for past times",
    """\
flowengine flows schedule report
flowengine flows schedule report --pause
flowengine flows schedule report --now --schedule '0 9 * * 1-5' --no-resume
flowengine flows schedule report --since 30d --until 7d --concurrency 4""",
    arg("flow FLOW", "its id"),
    one_of(
        flag("--pause", "pause its schedules"),
        flag("--resume", "resume its schedules, from their next times on"),
        flag("--now", "run it now, with the inputs of its schedule"),
        arg(
            "--since TIME",
            "run the past times of its schedules, from this one on: 7d, or a time",
            type=read.moment,
        ),
    ),
    section(
        "with --now or --since",
        arg(
            "--schedule EXPR",
            "the expression of a schedule (default: all of them. --now needs it if there are "
            "several)",
        ),
    ),
    section(
        "with --now",
        flag("--no-resume", "record the execution without running it"),
        read.LINGER,
    ),
    section(
        "with --since",
        arg("--until TIME", "last moment (default: now)", type=read.moment),
        arg(
            "--concurrency N",
            "how many executions run at once (default: 1). Executions that wait do not count",
            type=read.count,
            default=1,
        ),
        arg(
            "--limit N",
            f"how many times the range may contain (default: {_MOST})",
            type=read.count,
            default=_MOST,
        ),
    ),
)
def flows_schedule_command(arguments: Namespace) -> int:
    if arguments.since is not None:
        arguments.linger = 0.0  # an execution that waits makes room for the next time
    with CliSession(arguments) as session:
        if arguments.since is not None:
            return _run_past(session, arguments)
        if not arguments.now:
            return _schedules(session, arguments)
        execution = session.engine.flows.trigger(arguments.flow, schedule=arguments.schedule)
        if arguments.no_resume or session.is_served:
            leave_recorded(session, [execution])
            return 0
        return drive_recorded(session, execution, lambda: session.engine.resume(execution))


def _schedules(session: CliSession, arguments: Namespace) -> int:
    """Pause or resume the schedules of a flow, if so asked, and show them with their next times.

    Raises:
        NotFound: The flow is not deployed.
    """
    flows = session.engine.flows
    change = flows.pause if arguments.pause else flows.resume if arguments.resume else flows.starts
    starts = [start for start in change(arguments.flow) if "schedule" in start]
    if not starts:
        _facts(session, arguments.flow)
    nothing = f"{arguments.flow} has no schedules"
    out_result(arguments, starts, map(_started_by, starts), nothing)
    return 0


def _run_past(session: CliSession, arguments: Namespace) -> int:
    """Run past times, and print a line for each when it has ended or waits.

    Returns:
        The exit code: the highest of those that the executions would have.
    """
    moments = arguments.since, arguments.until or int(time() * 1000)
    since, until = (datetime.fromtimestamp(moment / 1000, UTC) for moment in moments)
    shown: list[dict[str, Any]] = []

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
