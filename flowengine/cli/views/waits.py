"""The waits of an execution, with the command lines that answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, first_line, marked_lines, paint, when
from flowengine.engines import inspection
from flowengine.engines.executions.parts import failed_at
from flowengine.engines.infos import LogInfo, Reason
from flowengine.engines.results import ExecutionResult, WaitInfo
from flowengine.errors import NotFound
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.notation.times import parse_time
from flowengine.kernel.view import DECIDABLE, is_tried_again, only_choice
from flowengine.sdk.texts.visible_text import printable

NOUNS = {
    "approval": "approval",
    "ask": "question",
    "question": "decision",
    "signal": "signal",
    "timer": "time",
    "state": "condition",
    "session": "message",
    "worker": "worker",
}
_PROGRAM = "the program that started it"
DOES = {"signal": "send", "why": "look", "resume": "resume"}
"""Command → its label."""
MOST = 20
"""How many waits are shown. The others are counted."""


def say_waits(session: CliSession, result: ExecutionResult) -> None:
    """Report on standard error an execution's waits, how to answer, and where it is saved."""
    short = session.short(result.execution)
    head = "stalled: needs" if result.status == "stalled" else "waiting for"
    if result.waits:
        counts = Counter(_noun(wait) for wait in result.waits)
        parts = [
            noun if noun in ("time", _PROGRAM) else f"{n} {noun}{'s' * (n != 1)}"
            for noun, n in counts.items()
        ]
        err(f"{paint(head, 'yellow')} {' and '.join(parts)}")
    for line in described(session, result.execution, result.waits[:MOST]):
        err(line)
    reasons: list[Reason] = []
    if result.status == "waiting":
        # If no step waits, such as for triggers, all reasons are new.
        reasons = session.engine.executions.why(result.execution, waits=not result.waits)
        for reason in reasons:
            if "lock" in reason or not result.waits:
                _say(session, reason)
    if len(result.waits) > MOST:
        more = session.command("approvals", "list", "--execution", short)
        err(f"  … and {len(result.waits) - MOST} more: {more}")
    if session.arguments.quiet:
        return
    due = [reason["due"] for reason in reasons if "due" in reason and not result.waits]
    err(f"saved as {short}; {_what_next(session, result, short, due)}")


def _say(session: CliSession, reason: Reason) -> None:
    """Report the reason of a waiting step, and the command that helps."""
    from shlex import split

    err(when(f"  {reason['address'] or 'flow'}: {reason['what']}"))
    if reason["address"] and reason.get("command"):
        words = split(reason["command"])[1:]
        err(f"    {DOES.get(words[0], words[0]):5} {session.command(*words)}")


def described(session: CliSession, execution: str, waits: Sequence[WaitInfo]) -> Iterator[str]:
    """Yield the lines that show waits of an execution and how to answer them.

    Args:
        session: Makes command lines.
        execution: Id.
        waits: The waits.
    """
    reasons: dict[str, Reason] = {}
    if any(wait["kind"] == "state" for wait in waits):
        whys = session.engine.executions.why(execution)
        reasons = {one["wait"]: one for one in whys if "wait" in one and "signals" in one}
    for wait in waits:
        if wait["kind"] == "state" and wait["id"] in reasons:
            yield from _condition(session, wait, reasons[wait["id"]])
        else:
            yield from _describe(session, wait)


def _condition(session: CliSession, wait: WaitInfo, reason: Reason) -> Iterator[str]:
    """Yield the lines that show a wait for a condition on state, or a paused agent."""
    from shlex import split

    short = session.short_wait(wait["id"])
    what = first_line(f"{reason['address']}: {reason['what']}", 400)
    yield f"  {paint(short, 'bold')}  {what}"
    indent = " " * (len(short) + 4)
    for name, at in (("since", reason.get("since")), ("due", reason.get("due"))):
        if at:
            yield f"{indent}{name:10} {when(at)}"
    if "command" in reason:
        name, *words = split(reason["command"])[1:]
        yield f"{indent}{DOES.get(name, name):10} {session.command(name, *words)}"


def _describe(session: CliSession, wait: WaitInfo) -> Iterator[str]:
    """Yield the lines that show a wait and how to answer it.

    Args:
        session: Makes command lines.

    Yields:
        Lines, indented.
    """
    short = session.short_wait(wait["id"])
    yield f"  {paint(short, 'bold')}  {_title(wait)}"
    indent = " " * (len(short) + 4)
    if "title" in wait:
        yield from (f"{indent}{name:10} {text}" for name, text in _facts(wait))
        for why in undecidable(session, wait):
            yield f"{indent}{'nobody':10} {why}"
    for name, words in answers(session, wait, short):
        yield f"{indent}{printable(name):10} {session.command(*words)}"


def answers(session: CliSession, wait: WaitInfo, short: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each way to answer a wait: its name, and the words of the command.

    Args:
        short: Its id, as short as it can be.

    Yields:
        Name, and the words after `flowengine`.
    """
    kind, execution = wait["kind"], session.short(wait["execution"])
    if kind in DECIDABLE:
        yield "show", ["show", short]
        if "due" in wait and is_overdue(wait["due"]):
            if _is_by_worker(session):
                return
            yield "resume", ["resume", execution]  # it is too late for a decision
            return
        if is_tried_again(wait) and not inspection.reasons.needs_program(wait):
            yield "try again", ["resume", execution]
        if wait.get("claim") and "claimed_by" not in wait:
            yield "claim", ["approvals", "assign", short, "--to", "me"]
        for choice in wait.get("choices", []):
            if choice["id"] == "retry" and is_tried_again(wait):
                continue  # resuming does that
            yield str(choice["id"]), answering(wait, choice, short)
    elif kind == "signal":
        # The signals of the flow, and of those inside it, that declare data.
        flow: Any = {} if session.is_served else session.flow_of(wait["execution"]).compiled
        declared = [body.get("signals", {}) for body in (flow, *flow.get("flows", ()))]
        with_data = {name for signals in declared for name in signals if "data" in signals[name]}
        for signal in wait.get("signals", []):
            to = [execution] if signal.get("key") is None else ["--key", str(signal["key"])]
            data = ["--data", "JSON"] if signal["signal"] in with_data else []
            yield "send", ["signal", *to, str(signal["signal"]), *data]
    yield from _running(session, wait, execution)


def _running(
    session: CliSession, wait: WaitInfo, execution: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the processes that end a wait by running its execution."""
    if wait["kind"] == "timer" and not _is_by_worker(session):
        yield "resume", ["resume", execution]
    if wait["kind"] == "worker":
        offers = [word for label in wait["needs"] for word in ("--offers", label)]
        yield "start", ["worker", *offers]
        if not session.is_remote:
            yield "or", ["resume", execution, *offers]


def _is_by_worker(session: CliSession) -> bool:
    """Return whether workers resume due executions by themselves, without a command."""
    return session.is_remote and not session.is_served


def undelivered(sent: dict[str, Any]) -> str:
    """Return a line about an undeliverable message."""
    to = {"all": "all", "parent": "its parent"}.get(sent["to"], f"execution {sent['to']}")
    key = "" if sent["key"] is None else f" with key {sent['key']}"
    return first_line(f"signal {sent['signal']}{key} to {to}: {sent['why']}", 500)


def answering(wait: WaitInfo, choice: dict[str, Any], short: str) -> list[str]:
    """Return the words after `flowengine` that make a choice, with its required options."""
    words = ["decide", short, str(choice["id"])]
    for command in ("approve", "reject"):
        if only_choice(wait, command) == choice:
            words = [command, short]
    if choice.get("counts_as") == "approve" or wait["kind"] == "ask":
        form = wait.get("form", {})
        fields = form.get("properties", {})
        filled = {
            name for name, field in fields.items() if isinstance(field, dict) and "default" in field
        }
        for name in form.get("required", ()):
            words += [] if name in filled else ["--form", f"{name}=VALUE"]
    if choice.get("comment") == "required":
        words += ["--comment", "TEXT"]
    gives = "result" if wait["kind"] == "question" else "respond" if "tool" in wait else None
    if choice["id"] == gives:
        words += ["--value", "JSON"]
    return words


def _title(wait: WaitInfo) -> str:
    if "title" in wait:
        return first_line(wait["title"])
    names = [
        f"signal {signal['signal']}"
        + ("" if signal.get("key") is None else f" with key {signal['key']}")
        for signal in wait.get("signals", [])
    ]
    if "due" in wait:
        names.append(f"until {when(wait['due'])}")
    return printable(f"{wait['address']}: {', or '.join(names) or 'a condition on state'}")


def _facts(wait: WaitInfo) -> Iterator[tuple[str, str]]:
    if given := arguments(wait):
        yield "with", given
    if "difference" in wait:
        yield "changed", "the tool has changed since the call was approved"
    if "found" in wait:
        cause = wait["found"]
        yield "would do", first_line(f"{cause['action']}: {inline(cause['target'])}")
    if request := wait.get("request"):
        if "host" in request:
            yield "opens", printable(request["host"])
        if "note" in request:
            yield "note", first_line(request["note"].replace("\n", " "), 400)
    if wait.get("assignees"):
        yield "assignees", printable(", ".join(wait["assignees"]))
    if "claimed_by" in wait:
        yield "claimed by", printable(wait["claimed_by"])
    if wait.get("need", 1) > 1:
        yield "votes", f"{len(wait.get('votes', []))} of {wait['need']}"
    yield from times(wait)


def undecidable(session: CliSession, wait: WaitInfo) -> list[str]:
    """Return why no user may decide on a wait: for each assignee, with the file of its members."""
    if session.is_served:
        return []  # its groups are those of the server

    reason = inspection.reasons.undecidable(wait, session.engine.settings)
    reason |= session.engine.settings.without_members(reason)
    return [printable(why) for why in reason.values()]


def arguments(wait: WaitInfo) -> str:
    """Return the arguments of a call that needs an approval, on a line. Empty: it is not a call."""
    if not wait.get("tool") or not wait.get("subject"):
        return ""

    return first_line(inline(wait["subject"]))


def times(wait: WaitInfo) -> Iterator[tuple[str, str]]:
    """Yield when a wait expires, or that it is overdue, and its other timers.

    Yields:
        Name and text.
    """
    if "due" in wait:
        due = when(wait["due"])
        if is_overdue(wait["due"]):
            yield "overdue", f"since {due}, takes effect when the execution is resumed"
        else:
            yield "expires", due
    for timer in wait.get("timers", []):
        if timer["what"] != "expiry":
            yield timer["what"], when(timer["due"])


def is_overdue(due: str) -> bool:
    """Return whether a time has passed without having taken effect."""
    from time import time

    return parse_time(due) < time() * 1000


def _noun(wait: WaitInfo) -> str:
    if inspection.reasons.needs_program(wait):
        return _PROGRAM
    return "environment" if wait.get("ran") == "no" else NOUNS[wait["kind"]]


def _what_next(session: CliSession, result: ExecutionResult, short: str, due: list[str]) -> str:
    """Return how and when the execution is resumed."""
    timed = due + [
        wait["due"]
        for wait in result.waits
        if wait["kind"] in ("timer", "signal") and "due" in wait
    ]
    if timed:
        if _is_by_worker(session):
            return f"a worker resumes it after {when(min(timed))}"
        return f"to resume after {when(min(timed))}: {session.command('resume', short)}"
    if result.waits and not any(map(is_tried_again, result.waits)):
        return "nothing runs while it waits"
    if all(map(inspection.reasons.needs_program, result.waits)) and result.waits:
        return "only that program can resume it"
    if session.is_served:
        return "a worker of the server's store continues it"
    if session.is_remote and not result.waits:
        return f"a worker continues it. To follow it: {session.command('resume', short)}"
    return f"to resume: {session.command('resume', short)}"


# Evidence of a failure and logs in readable form: traceback, end of the output, lines.

LINES = 10
"""Number of printed lines that are shown at the end of a run. `show --step` shows more."""


def evidence_lines(
    evidence: Mapping[str, Any], *, indent: str = "  ", most: int | None = None, step: str = ""
) -> Iterator[str]:
    """Yield the lines that show evidence.

    Args:
        evidence: As it was journaled with the failure.
        indent: Before each line.
        most: Lines of each stream. None: all lines that are kept.
        step: Address of the failed step, if it must be shown.

    Yields:
        Lines.
    """
    for name in ("traceback", "stdout", "stderr"):
        entries = evidence.get(name) or []
        lines = entries.rstrip().split("\n") if isinstance(entries, str) else entries
        if most is not None and isinstance(entries, str) and len(lines) > most:
            lines = ["…", *lines[-most:]]
        if lines:
            yield f"{indent}{name}{printable(step and f' of {step}')}"
        for line in lines:
            yield f"{indent}  {printable(line)}".rstrip()


def log_lines(log: LogInfo) -> Iterator[str]:
    """Yield the lines that show the log of an attempt.

    Args:
        log: The lines.

    Yields:
        Lines. Those after a line break begin with `|`, so that a text cannot imitate other lines.
    """
    yield "  log"
    if log["left_out"]:
        yield f"    … ({log['left_out']} older lines are not kept)"
    for line in log["lines"]:
        first, *more = marked_lines(line["text"], "  ")
        level = first_line(line["level"], 20)
        yield f"    {when(line['at'])} {level:7} {first}".rstrip()
        yield from more


def evidence_of(
    session: CliSession, execution: str, error: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Return the evidence of the failure that caused an error.

    Args:
        execution: Full id.
        error: The error of the execution.

    Returns:
        The address of the step that failed, and the evidence. Both are empty without evidence.
    """
    for address in failed_at(error):
        try:
            [step] = session.engine.executions.show(execution, step=address)["steps"]
        except NotFound:
            continue
        tries = step.get("tries", [])
        if tries and tries[-1].get("evidence"):
            return address, tries[-1]["evidence"]
    return "", {}


def again_lines(session: CliSession, failed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps that were not undone, and the command that tries again.

    Args:
        session: Makes command lines.
        failed: The failed execution, with the keys of `Again`.

    Yields:
        Lines.
    """
    for address in failed.get("not_undone", ()):
        yield f"not undone  {printable(address)}"
    for address, fork in failed.get("undone_by", {}).items():
        yield f"undone      {printable(address)}, by the fork {printable(fork)}"
    after = ""
    error = failed.get("error")
    budgets, place = _shared_budgets(error), (error or {}).get("step")
    if not budgets and place and failed["error"]["type"] == "BudgetExceeded":
        # The error of an agent's step does not name the budget: that of its last call does.
        steps = session.engine.executions.show(failed["execution"])["steps"]
        inner = [step.get("error") for step in steps if step["address"].startswith(f"{place}/")]
        budgets = _shared_budgets(next(filter(None, reversed(inner)), None))
    for budget in budgets:
        yield f"usage       {session.command('budgets', budget['key'])}"
        after = f", after {when(budget['resets'])}" if budget.get("resets") else ""
    if "command" in failed:
        yield f"try again   {failed['command']}{after}"


def _shared_budgets(error: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the shared budget that a call has exceeded, if that has led to an error."""
    while error:
        data = error.get("data")
        if error["type"] == "BudgetExceeded" and isinstance(data, Mapping) and data.get("key"):
            return [data]
        error = error.get("cause")
    return []
