"""Shared parts of `approve`, `reject` and `decide`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from flowengine.cli.driving.resuming import leave_recorded, resume_decided
from flowengine.cli.login_page import log_in_first
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import Added, arg, flag, many, section, together
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, show_error, when
from flowengine.cli.views.approvals import rows, standing
from flowengine.cli.views.waits import is_overdue
from flowengine.engines.infos import LISTED
from flowengine.engines.people.approvals import participle
from flowengine.engines.results import Decision, WaitInfo
from flowengine.engines.typed_text import edited_field, supplied_value
from flowengine.errors import FlowEngineError, NotFound, UsageError
from flowengine.journal.store import every_item
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import printable

FILTERS = together(
    flag("--mine", "only those that I may decide"),
    arg("--flow F", "only those of the flow with this id"),
    arg("--execution ID", "only those of this execution"),
    arg("--batch B", "only those of this batch (a batch is named after its step by default)"),
)
"""The options that select approvals."""


def arguments(*, fills: bool) -> Added:
    """Return the arguments of a deciding command.

    Args:
        fills: Whether a form can be filled in and the subject edited.
    """
    filling = (
        many("--form FIELD=VALUE", "fill in a field of the form", type=read.assignment),
        many("--edit FIELD=VALUE", "change a field of the subject first", type=read.assignment),
    )
    return together(
        arg("waits ID", "an approval, by any unambiguous prefix of its id", nargs="*"),
        *(filling if fills else ()),
        arg("--comment TEXT", "the reason, kept with the decision"),
        many("--attach FILE", "keep a file with the decision"),
        many("--image FILE", "show an image to the model that made the call", dest="images"),
        read.on_behalf("decide on behalf of another user"),
        read.NO_RESUME,
        read.LINGER,
        section(
            "instead of ids",
            flag("--all", "decide all that match these filters"),
            FILTERS,
            flag("--dry-run", "show them, and decide nothing"),
        ),
    )


def run(arguments: Namespace) -> int:
    """Decide, then resume the executions that were waiting.

    The choice is `arguments.choice`. None: the one that counts as `arguments.counts_as`.

    Returns:
        The exit code: that of the first approval or execution that did not succeed.

    Raises:
        FlowEngineError: There was only one, and it could not be decided.
    """
    with CliSession(arguments) as session:
        waits = _chosen(session, arguments)
        if arguments.dry_run:
            return _show(session, waits)
        codes: list[int] = []
        decisions: list[Decision] = []
        for wait in waits:
            try:
                decision = _decide(session, wait)
            except FlowEngineError as error:
                short = session.short_wait(wait["id"])
                shortened = error.message.replace(wait["id"], short)
                error.message = when(shortened if short in shortened else f"{short}: {shortened}")
                if len(waits) == 1:
                    raise
                show_error(error)
                codes.append(error.exit_code)
                continue
            decisions.append(decision)
            say(session, decision)
        executions: list[dict[str, Any]] = []
        if arguments.no_resume or session.is_served:
            leave_recorded(session, [decision.execution for decision in decisions])
        else:
            executions, further = resume_decided(session, decisions)
            codes += further
        if arguments.json:
            out_json(
                {
                    "decisions": [decision.data for decision in decisions],
                    "executions": executions,
                }
            )
        return next((code for code in codes if code), 0)


def say(session: CliSession, decision: Decision) -> None:
    """Report the decision that counts."""
    if session.arguments.quiet:
        return

    at = format_time(decision.at - decision.at % 1000)
    short, by = session.short_wait(decision.wait), printable(decision.by)
    if session.engine.approvals.show(decision.wait).get("need", 1) != 1:  # one vote of several
        voted = "voted" if decision.first else "had already voted"
        err(f"{short} {by} {voted} '{decision.choice}' at {at}")
        return
    was = "" if decision.first else "was already "
    err(f"{short} {was}{participle(decision.choice)} by {by} at {at}")


def _chosen(session: CliSession, arguments: Namespace) -> list[WaitInfo]:
    """Return the waits that the command line means.

    Raises:
        NotFound: None matches the filters or offers the choice.
        UsageError: It names both approvals and filters, or none of them.
    """
    engine, choice = session.engine, arguments.choice
    if bool(arguments.waits) == arguments.all:
        raise UsageError(
            "give the ids of approvals, or --all with filters",
            hint=f"list pending approvals: {session.command('approvals', 'list')}",
        )
    if arguments.waits:
        return [engine.approvals.show(wait) for wait in dict.fromkeys(arguments.waits)]
    mine = (arguments.by or engine.user) if arguments.mine else None
    # A server asks for an answer to its question, and not for an approval.
    every = _fitting(session, mine)
    waits = [wait for wait in every if choice is not None or "request" not in wait]
    if not waits:
        others = list(_fitting(session, None)) if mine is not None else []
        what = "approval" if choice is None else "approval or question"
        raise NotFound(
            f"no open {what} matches these filters, nothing was decided",
            hint=for_others(session, others) if others else None,
        )
    fitting = [wait for wait in waits if choice is None or choice in _ids(wait)]
    if not fitting:
        offered = ", ".join(dict.fromkeys(id for wait in waits for id in _ids(wait)))
        raise NotFound(
            f"nothing that matches these filters offers the choice '{choice}', nothing was decided",
            hint=f"choices are: {offered}",
        )
    return fitting


def _fitting(session: CliSession, assignee: str | None) -> Iterator[WaitInfo]:
    """Yield all open waits that match the filters. A choice by its id includes questions."""
    arguments = session.arguments
    kinds = ("approval",) if arguments.choice is None else LISTED
    return every_item(
        lambda after: session.engine.approvals.list(
            flow=arguments.flow,
            execution=arguments.execution,
            batch=arguments.batch,
            assignee=assignee,
            kinds=kinds,
            after=after,
        )
    )


def for_others(session: CliSession, waits: Sequence[WaitInfo]) -> str:
    """Return a note that matching approvals are assigned to other users only."""
    count = f"{len(waits)} are waiting" if len(waits) != 1 else "1 is waiting"
    return f"{count} for others: {session.command('approvals', 'list')}"


def _ids(wait: WaitInfo) -> list[str]:
    return [str(choice["id"]) for choice in wait.get("choices", [])]


def _show(session: CliSession, waits: list[WaitInfo]) -> int:
    """Show the approvals that would be decided, and why others would be refused."""
    user = session.arguments.by or session.engine.user
    mine = {wait["id"] for wait in _fitting(session, user)}
    refusals = {wait["id"]: _refusal(wait, user, mine) for wait in waits}
    decided = [wait for wait in waits if refusals[wait["id"]] is None]
    if session.arguments.json:
        out_json(decided)
        return 0

    for line in rows(session, decided) if decided else ():
        out(line)
    err(f"{len(decided)} would be decided, nothing was")
    for wait in waits:
        if (why := refusals[wait["id"]]) is not None:
            err(f"  {session.short_wait(wait['id'])} would be refused: {why}")
    return 0


def _refusal(wait: WaitInfo, user: str, mine: Collection[str]) -> str | None:
    """Return why any decision would be refused. None: it would not.

    Args:
        wait: The approval.
        user: The user who would decide.
        mine: Ids of the open approvals that this user may decide on, once they are claimed.
    """
    if wait.get("status") == "closed":
        return f"it is closed: {standing(wait)}"
    if "due" in wait and is_overdue(wait["due"]):
        return f"it expired at {when(wait['due'])}"
    if wait["id"] not in mine:
        named = wait.get("claimed_by") or ", ".join(wait.get("assignees") or ())
        other = f", but {named}" if named else ", it is excluded"
        return f"{user} is not allowed to decide it{other}"
    if wait.get("claim") and "claimed_by" not in wait:
        return "it must be claimed first"
    return None


def _decide(session: CliSession, wait: WaitInfo) -> Decision:
    arguments, engine = session.arguments, session.engine
    answer: dict[str, Any] = {"resume": False}
    if getattr(arguments, "form", None):
        fields = wait.get("form", {}).get("properties", {})
        answer["form"] = read.assigned(fields, arguments.form, "field")
    if getattr(arguments, "edit", None):
        answer["edit"] = {name: edited_field(wait, name, text) for name, text in arguments.edit}
    if getattr(arguments, "value", None) is not None:
        is_file = arguments.value.startswith("@")
        answer["value"] = (
            read.json_argument(arguments.value, "the value")
            if is_file
            else supplied_value(wait, arguments.value, "the value")
        )
    options = {name: getattr(arguments, name, None) for name in ("scope", "uses", "expires")}
    grant: dict[str, Any] = {name: option for name, option in options.items() if option is not None}
    patterns = getattr(arguments, "grant", None)
    if patterns is not None:
        grant["args"] = dict(patterns)
    if grant:
        answer["grant"] = grant
    for name in ("comment", "attach", "images", "by"):
        if getattr(arguments, name):
            answer[name] = getattr(arguments, name)
    counts_as = getattr(arguments, "counts_as", arguments.choice)
    if "found" in wait and counts_as == "approve":
        log_in_first(session, wait, arguments.by or engine.user)
    if arguments.choice is not None:
        return engine.approvals.decide(wait["id"], arguments.choice, **answer)
    by_kind = engine.approvals.approve if counts_as == "approve" else engine.approvals.reject
    return by_kind(wait["id"], **answer)
