"""`flowengine show` and `why`: an execution with its open waits, or an approval."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, get_args

from flowengine.agents.actions import text_in, told, usage_of
from flowengine.agents.calls_of_rounds import call_in
from flowengine.cli.parsing.declared import arg
from flowengine.cli.session import NEWEST, CliSession, session_command
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    duration,
    error_text,
    first_line,
    marked_lines,
    out,
    out_json,
    out_result,
    paint,
    results,
    when,
)
from flowengine.cli.views.approvals import (
    decision_lines,
    details,
    edits,
    expiry,
    standing,
    with_tool,
)
from flowengine.cli.views.outcome import output_entry
from flowengine.cli.views.waits import (
    again_lines,
    answers,
    described,
    evidence_lines,
    is_overdue,
    log_lines,
    undecidable,
    undelivered,
)
from flowengine.engines.infos import BudgetInfo, ExecutionInfo, StepInfo, StepOrder
from flowengine.engines.results import WaitInfo
from flowengine.errors import NotFound, UsageError
from flowengine.flow.export.yaml_text import entry, inline
from flowengine.kernel.notation.addresses import flow_name
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.sdk.texts.visible_text import printable


@session_command(
    "show an execution: its status, steps, waits, outputs and error, or an approval",
    """\
flowengine show 01k8xq7mf4jb
flowengine show a7f3
flowengine show 01k8xq7mf4jb --step each[invoice.pdf]/read
flowengine show 01k8xq7mf4jb --sort time --limit 10""",
    arg("execution ID", f"{NEWEST}, or that of an approval", nargs="?"),
    arg("--step ADDRESS", "only this step, with its input, and each attempt with its log"),
    arg("--status STATUS", "only steps with this status"),
    arg("--kind KIND", "only steps of this kind"),
    arg(
        "--sort ORDER",
        "steps by time (what has not ended, then the slowest), attempts, tokens, cost or error",
        choices=get_args(StepOrder),
    ),
    arg("--limit N", "maximum number of steps", type=int),
)
def show_command(session: CliSession, arguments: Namespace) -> None:
    named = _named(session, arguments)
    if not isinstance(named, str):
        return _show_wait(session, named)
    info = session.engine.executions.show(
        named,
        step=arguments.step,
        status=arguments.status,
        kind=arguments.kind,
        sort=arguments.sort,
        limit=arguments.limit,
    )
    session.make_pasted(info)
    lines = _step_lines(info["steps"]) if arguments.step else _lines(session, info)
    return out_result(arguments, info, lines)


_WAIT_ID = re.compile("[0-9a-f]+")
"""The form of the ids of approvals. The id of an execution may have it, too."""


def _named(session: CliSession, arguments: Namespace) -> str | WaitInfo:
    """Return the id of the execution, or the approval, that the command line names.

    Raises:
        NotFound: There is none.
        UsageError: The id is a prefix of both.
    """
    id = arguments.execution
    options = ("step", "status", "kind", "sort", "limit")
    of_execution = any(getattr(arguments, option) is not None for option in options)
    if id is None or of_execution or not _WAIT_ID.fullmatch(id):
        return session.execution(id)
    found: dict[str, str | WaitInfo] = {}
    hint = None
    try:
        execution = session.execution(id)
        found[execution] = execution
    except NotFound as error:
        hint = error.hint
    with suppress(NotFound):
        wait = session.engine.approvals.show(id)
        found[wait["id"]] = wait
    if not found:
        place = session.place
        raise NotFound(f"there is no execution or approval {id!r} in {place}", hint=hint)
    if len(found) > 1 and id not in found:
        raise UsageError(
            f"{id!r} is a prefix of several ids: {', '.join(found)}", hint="use a longer prefix"
        )
    return found.get(id) or next(iter(found.values()))


def _show_wait(session: CliSession, wait: WaitInfo) -> None:
    """Print an approval, the decision, or the commands that decide."""
    if session.arguments.json:
        return out_json(wait)
    for line in details(session, wait):
        out(line)
    if wait.get("status") == "closed":
        for line in decision_lines(wait):
            out(line)
        return
    short = session.short_wait(wait["id"])
    for name, words in answers(session, wait, short):
        if name != "show":
            out(f"  {name:11} {session.command(*words)}")
    for words in edits(wait, short):
        out(f"  {'edit':11} {session.command(*words)}")


def _lines(session: CliSession, info: ExecutionInfo) -> Iterator[str]:
    """Yield the lines that describe an execution."""
    yield from _head(session, info)
    if info.get("inputs"):
        yield "inputs"
        yield from (
            f"  {first_line(entry(name, value), 500)}" for name, value in info["inputs"].items()
        )
    if info["steps"]:
        yield "steps"
        steps = info["steps"]
        width = max(14, *(len(step["address"]) for step in steps))
        results = {step["address"]: step.get("output") for step in info["steps"]}
        for step in steps:
            call = call_in(results.get(step["address"].rpartition("/")[0]), step["address"])
            yield _step(step, call, min(width, 40))
    usage, _ = usage_of(step.get("output") for step in info["steps"])
    if usage.input_tokens:
        yield f"models      {usage}"
    if info["waits"]:
        yield "waits"
        yield from described(session, info["execution"], info["waits"])
    if info.get("undelivered"):
        yield "undelivered"
        yield from (f"  {undelivered(sent)}" for sent in info["undelivered"])
    if info.get("warnings"):
        yield "warnings"
        yield from (f"  {first_line(warning['message'], 500)}" for warning in info["warnings"])
    if outputs := info.get("outputs"):
        yield "outputs"
        yield from (
            f"  {first_line(output_entry(name, value), 500)}" for name, value in outputs.items()
        )
    error: Any = info.get("error")
    if error is not None and "message" in error:
        first, *more = marked_lines(error_text(error, error.get("step")))
        yield from (f"error       {first}", *more)
    if info["status"] == "failed":
        yield from again_lines(session, info)


def _head(session: CliSession, info: ExecutionInfo) -> Iterator[str]:
    version = f" version {info['version']}" if info["version"] not in ("", "0") else ""
    status = paint(info["status"], STATUS_COLOURS.get(info["status"]), results())
    yield f"execution   {info['execution']}"
    yield f"flow        {printable(flow_name(info['flow']))}{printable(version)}"
    yield f"status      {status}"
    if info["status"] in ("interrupted", "quarantined") and "command" in info:
        yield f"resume      {info['command']}"
    yield f"started     {when(info['started_at'])} by {printable(info['started_by'])}"
    if "ended_at" in info:
        yield f"ended       {when(info['ended_at'])}"
        yield f"took        {_took(info)}"
    if "due" in info:
        yield f"next time   {when(info['due'])}"
    yield f"durability  {info['durability']}"
    for budget in info.get("budgets", ()):
        yield f"budget      {_budget(budget)}"
    labels = " ".join(f"{name}={value}" for name, value in info["labels"].items())
    host = "" if session.is_served else session.flow_of(info["execution"]).on_host
    for name, value in (
        ("labels", labels),
        ("forked from", session.origin(info["forked_from"])),
        ("parent", info["parent"]),
        ("on host", host),
    ):
        if value:
            yield f"{name:12}{printable(value)}"


def _budget(budget: BudgetInfo) -> str:
    """Return one line about a budget: how much of it is used."""
    parts = []
    if "tool_calls" in budget:
        calls = budget["tool_calls"]
        runs = f" ({calls['running']} running)" if calls["running"] else ""
        parts.append(f"{calls['used']} of {calls['limit']} tool calls{runs}")
    if "wall_time" in budget:
        parts.append(f"{budget['wall_time']['used']} of {budget['wall_time']['limit']} wall time")
    if "tokens" in budget:
        parts.append(_amount(budget["tokens"], "{:d}", "tokens"))
    if "cost_usd" in budget:
        parts.append(_amount(budget["cost_usd"], "{:.6g}", "USD"))
    where = f"{budget['address']}: " if budget["address"] else ""
    return printable(f"{where}{', '.join(parts)}; then {budget['then']}")


def _amount(amounts: Mapping[str, float], form: str, noun: str) -> str:
    """Return how much of an amount is used: `1200 of 5000 tokens (300 estimated)`."""
    used, limit = form.format(amounts["used"]), form.format(amounts["limit"])
    marks = [f"{form.format(amounts[name])} {name}" for name in ("running", "estimated")
             if amounts[name]]  # fmt: skip
    remarks = f" ({', '.join(marks)})" if marks else ""
    return f"{used} of {limit} {noun}{remarks}"


def _step(step: StepInfo, call: Mapping[str, Any], width: int) -> str:
    """Return one line about a step, which may carry out a call."""
    status = paint(f"{step['status']:11}", STATUS_COLOURS.get(step["status"]), results())
    error: Any = step.get("error")
    detail = ""
    if error is not None:
        detail = first_line(error_text(error))
    elif expired := expiry(step["kind"], step.get("outcome"), step.get("output")):
        detail = expired
    elif "decision" in step:
        wait: WaitInfo = {"decision": step["decision"]}
        detail = with_tool(standing(wait), step["step"], call)
    elif step["status"] in ("succeeded", "failed") and step.get("output") is not None:
        detail = first_line(step.get("summary", inline(step["output"])), 80)
    notes = [f"{step['attempts']} attempts"] if step["attempts"] > 1 else []
    notes += [f"{step['tokens']} tokens"] if "tokens" in step else []
    notes += [f"{step['cost_usd']:.6g} USD"] if step.get("cost_usd") else []
    if notes:
        detail += f"{'  ' * bool(detail)}({', '.join(notes)})"
    head = f"  {printable(step['address']):{width}} {status}"
    return f"{head} {_took(step):8} {printable(detail)}".rstrip()


def _step_lines(steps: list[StepInfo]) -> Iterator[str]:
    """Yield the lines that describe one step."""
    for step in steps:
        yield f"step        {printable(step['address'])} ({printable(step['kind'])})"
        yield f"status      {paint(step['status'], STATUS_COLOURS.get(step['status']), results())}"
        for name in ("outcome", "started_at", "ended_at"):
            if step.get(name):
                yield f"{name.removesuffix('_at'):11} {printable(step[name])}"
        for name in ("input", "output", "subject", "decision"):
            if name == "output" and (text := told(step.get(name))):
                first, *more = marked_lines(text)
                yield from (f"{name:11} {first}", *more)
            elif step.get(name) is not None:
                yield f"{name:11} {printable(inline(step[name]))}"  # type: ignore[literal-required]
        if "request" in step:
            yield from _request_lines(step["request"])
        for earlier in step.get("earlier_decisions", ()):
            yield f"{'before':11} {printable(inline(earlier))}"
        error: Any = step.get("error")
        if error is not None:
            first, *more = marked_lines(error_text(error))
            yield from (f"error       {first}", *more)
        for attempt in step.get("tries", []):
            failure: Any = attempt.get("error")
            why = first_line(error_text(failure)) if failure else ""
            ended = f" to {attempt['ended_at']}" if "ended_at" in attempt else ""
            span = f"{attempt['started_at']}{ended}"
            yield f"attempt {attempt['attempt']:<3} {attempt['status']:11} {span}  {why}".rstrip()
            yield from evidence_lines(attempt.get("evidence", {}))
            if "log" in attempt:
                yield from log_lines(attempt["log"])


def _request_lines(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a request to a model. JSON has all of it."""
    yield f"{'request':11} {printable(request['model'])}"
    for message in request["messages"]:
        yield f"  {message['role']:10}{first_line(text_in(message), 200)}"
    tools = ", ".join(tool["name"] for tool in request.get("tools", ()))
    for name, value in (("tools", tools), ("choice", request.get("tool_choice"))):
        if value:
            yield f"  {name:10}{printable(value)}"
    for name in ("returns", "settings"):
        if name in request:
            yield f"  {name:10}{printable(inline(request[name]))}"


def _took(info: ExecutionInfo | StepInfo) -> str:
    """Return how long attempts ran, or how long a wait lasted. Empty: it has not ended."""
    if "ended_at" not in info:
        return ""
    if "took" in info:
        return duration(parse_duration(info["took"]))
    return duration(parse_time(info["ended_at"]) - parse_time(info["started_at"]))


@session_command(
    "show why each live branch is waiting, since when, and what will resume it",
    "flowengine why 01k8xq7mf4jb",
    arg("execution ID", NEWEST, nargs="?"),
)
def why_command(session: CliSession, arguments: Namespace) -> None:
    execution = session.execution(arguments.execution)
    reasons = session.engine.executions.why(execution)
    for reason in reasons:
        session.make_pasted(reason)
    if arguments.json:
        return out_json(reasons)
    for reason in reasons:
        what = f"{reason['address'] or session.short(execution)}: {reason['what']}"
        for line in marked_lines(when(what)):
            out(line)
        for timer in reason.get("timers", []):
            late = " (overdue)" if is_overdue(timer["due"]) else ""
            out(f"  {timer['what']:11} {when(timer['due'])}{late}")
        if "nobody" in reason:
            whys = undecidable(session, session.engine.approvals.show(reason["wait"]))
            for why in whys or [printable(reason["nobody"])]:
                out(f"  {'nobody':11} {why}")
        commands = reason.get("commands", {})
        for name in ("since", "due", "wakes", "command"):
            if reason.get(name) and not (commands and name == "command"):
                text = when(str(reason[name]))
                late = " (overdue)" if name == "due" and is_overdue(reason["due"]) else ""
                out(f"  {name:11} {text}{late}")
        for choice, command in commands.items():
            out(f"  {choice:11} {command}")
