"""`flowengine show`: everything about an execution."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.cli.session import NEWEST, CliSession
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    duration,
    error_text,
    first_line,
    out,
    out_json,
    paint,
    when,
)
from flowengine.cli.terminal.result_stream import results
from flowengine.cli.views.approvals import expiry, standing
from flowengine.cli.views.evidence import again_lines, evidence_lines, log_lines
from flowengine.cli.views.waits import describe, undelivered
from flowengine.sdk.visible_text import printable
from flowengine.yaml_text import entry, inline

if TYPE_CHECKING:
    from flowengine.engines.infos import BudgetInfo, ExecutionInfo, StepInfo, WaitInfo

HELP = "show an execution: its status, steps, waits, outputs and error"
EXAMPLE = """\
flowengine show 01k8xq7mf4jb
flowengine show 01k8xq7mf4jb --step each[invoice.pdf]/read"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", nargs="?", help=NEWEST)
    parser.add_argument(
        "--step",
        metavar="ADDRESS",
        help="only this step, with its input, and each attempt with its log",
    )
    parser.add_argument(
        "--plumbing",
        action="store_true",
        help="include the plumbing: steps that only connect the parts of a generated flow",
    )


def run(arguments: Namespace) -> int:
    """Show it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        found = session.engine.show(
            session.execution(arguments.execution), step=arguments.step, plumbing=arguments.plumbing
        )
        session.make_pasted(found)
        if arguments.json:
            out_json(found)
            return 0
        lines = _step_lines(found["steps"]) if arguments.step else _lines(session, found)
        for line in lines:
            out(line)
    return 0


def _lines(session: CliSession, found: ExecutionInfo) -> Iterator[str]:
    """Yield the lines that describe an execution."""
    yield from _head(session, found)
    if found.get("inputs"):
        yield "inputs"
        yield from (f"  {_value(name, value)}" for name, value in found["inputs"].items())
    if found["steps"]:
        yield "steps"
        width = max(14, *(len(step["address"]) for step in found["steps"]))
        yield from (_step(step, min(width, 40)) for step in found["steps"])
    if found["waits"]:
        yield "waits"
        for wait in found["waits"]:
            yield from describe(session, wait)
    if found.get("undelivered"):
        yield "undelivered"
        yield from (f"  {undelivered(sent)}" for sent in found["undelivered"])
    if found.get("warnings"):
        yield "warnings"
        yield from (f"  {first_line(one['message'], 500)}" for one in found["warnings"])
    if outputs := found.get("outputs"):
        yield "outputs"
        yield from (f"  {_value(name, value)}" for name, value in outputs.items())
    error: Any = found.get("error")
    if error is not None and "message" in error:
        yield f"error       {printable(error_text(error, error.get('step')))}"
    if found["status"] == "failed":
        yield from again_lines(found)


def _head(session: CliSession, found: ExecutionInfo) -> Iterator[str]:
    version = f" version {found['version']}" if found["version"] not in ("", "0") else ""
    status = paint(found["status"], STATUS_COLOURS.get(found["status"]), results())
    yield f"execution   {found['execution']}"
    yield f"flow        {printable(found['flow'])}{printable(version)}"
    yield f"status      {status}"
    if found["status"] in ("interrupted", "quarantined") and "command" in found:
        yield f"resume      {found['command']}"
    yield f"started     {when(found['started_at'])} by {printable(found['started_by'])}"
    if "ended_at" in found:
        took = duration(_time(found["ended_at"]) - _time(found["started_at"]))
        yield f"ended       {when(found['ended_at'])}, after {took}"
    if "due" in found:
        yield f"next time   {when(found['due'])}"
    yield f"durability  {found['durability']}"
    for budget in found.get("budgets", ()):
        yield f"budget      {_budget(budget)}"
    labels = " ".join(f"{name}={value}" for name, value in found["labels"].items())
    host = "" if session.is_served else session.flow_of(found["execution"]).on_host
    for name, value in (
        ("labels", labels),
        ("forked from", session.origin(found["forked_from"])),
        ("parent", found["parent"]),
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


def _step(step: StepInfo, width: int) -> str:
    """Return one line about a step."""
    status = paint(f"{step['status']:11}", STATUS_COLOURS.get(step["status"]), results())
    took = ""
    if "ended_at" in step:
        took = duration(_time(step["ended_at"]) - _time(step["started_at"]))
    error: Any = step.get("error")
    detail = ""
    if error is not None:
        detail = first_line(error_text(error))
    elif expired := expiry(step["kind"], step.get("outcome"), step.get("output")):
        detail = expired
    elif "decision" in step:
        wait: WaitInfo = {"decision": step["decision"]}
        detail = standing(wait)
    elif step["status"] == "succeeded" and step.get("output") is not None:
        detail = first_line(step.get("summary") or inline(step["output"]), 80)
    if step["attempts"] > 1:
        detail += f"{'  ' * bool(detail)}({step['attempts']} attempts)"
    return f"  {printable(step['address']):{width}} {status} {took:8} {printable(detail)}".rstrip()


def _step_lines(steps: list[StepInfo]) -> Iterator[str]:
    """Yield the lines that describe one step."""
    for step in steps:
        yield f"step        {printable(step['address'])} ({printable(step['kind'])})"
        yield f"status      {paint(step['status'], STATUS_COLOURS.get(step['status']), results())}"
        for name in ("outcome", "started_at", "ended_at"):
            if step.get(name):
                yield f"{name.removesuffix('_at'):11} {printable(step[name])}"
        for name in ("input", "output", "subject", "decision"):
            if step.get(name) is not None:
                yield f"{name:11} {printable(inline(step[name]))}"  # type: ignore[literal-required]
        for earlier in step.get("earlier_decisions", ()):
            yield f"{'before':11} {printable(inline(earlier))}"
        error: Any = step.get("error")
        if error is not None:
            yield f"error       {printable(error_text(error))}"
        for attempt in step.get("tries", []):
            failure: Any = attempt.get("error")
            why = first_line(error_text(failure)) if failure else ""
            ended = f" to {attempt['ended_at']}" if "ended_at" in attempt else ""
            span = f"{attempt['started_at']}{ended}"
            yield f"attempt {attempt['attempt']:<3} {attempt['status']:11} {span}  {why}".rstrip()
            yield from evidence_lines(attempt.get("evidence", {}))
            if "log" in attempt:
                yield from log_lines(attempt["log"])


def _value(name: str, value: Any) -> str:
    return first_line(entry(name, value), 500)


def _time(text: str) -> int:
    from flowengine.kernel.notation.times import parse_time

    return parse_time(text)
