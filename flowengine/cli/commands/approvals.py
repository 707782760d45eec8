"""Commands that decide: approvals and questions, and grants for later calls."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from flowengine.cli import deciding
from flowengine.cli.deciding import FILTERS, for_others
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, fixed, many, section, together
from flowengine.cli.session import CliSession, session_command, session_for_list
from flowengine.cli.terminal.output import err, out, out_json, out_table, when
from flowengine.cli.views.approvals import decision_lines, details, edits, link_text, rows
from flowengine.cli.views.waits import answers
from flowengine.engines.infos import LISTED
from flowengine.engines.results import WaitInfo


@command(
    "approve, and resume the execution",
    """\
flowengine approve a7f3
flowengine approve a7f3 --form cost_center=4711 --edit amount=1200 --comment "as agreed"
flowengine approve --all --batch documents --dry-run""",
    deciding.arguments(fills=True),
    section(
        "later calls of the same tool",
        many(
            "--grant NAME=PATTERN",
            "also approve calls whose argument matches ('*' matches anything but '/', '**' "
            "anything). Arguments that are not named must be the same",
            type=read.assignment,
            default=None,
        ),
        arg("--uses N", "only the next N", type=int),
        arg("--expires DURATION", "only for this long, for example 2h"),
        arg(
            "--scope",
            "calls of this execution (default), or of all executions of the flow",
            choices=["execution", "flow"],
        ),
    ),
    fixed(counts_as="approve"),
)
def approve_command(arguments: Namespace) -> int:
    return deciding.run(arguments, None)


@command(
    "reject, and resume the execution",
    """\
flowengine reject a7f3 --comment "not this year"
flowengine reject a7f3 --attach scan.pdf --as ben""",
    deciding.arguments(fills=False),
    fixed(counts_as="reject"),
)
def reject_command(arguments: Namespace) -> int:
    return deciding.run(arguments, None)


@command(
    "give the result of a call that needs an approval, which is not made, and resume",
    """\
flowengine respond 4c1d --value "done by hand"
flowengine respond 4c1d --value @result.json --comment "paid in cash\"""",
    deciding.arguments(fills=False),
    arg(
        "--value VALUE|@FILE",
        "the result, which the flow or the agent continues with: JSON, or the text itself if "
        "it may be text",
        required=True,
    ),
)
def respond_command(arguments: Namespace) -> int:
    return deciding.run(arguments, "respond")


@command(
    "list approvals and questions, pending ones by default",
    """\
flowengine approvals list --mine
flowengine approvals list --flow expense --status closed --limit 10""",
    FILTERS,
    arg("--status", "default: pending", choices=["pending", "closed", "all"], default="pending"),
    read.LIMIT,
)
def approvals_list_command(arguments: Namespace) -> None:
    session = session_for_list(arguments)
    if session is None:
        return
    with session:
        engine = session.engine
        wanted: Any = {
            "flow": arguments.flow,
            "execution": arguments.execution,
            "batch": arguments.batch,
            "status": arguments.status,
            "kinds": LISTED,
            "limit": arguments.limit,
        }
        page = engine.approvals.list(**wanted, assignee=engine.user if arguments.mine else None)
        if arguments.json:
            return out_json(page.items)
        if not page.items and arguments.mine and (others := engine.approvals.list(**wanted).items):
            return err(f"nothing is waiting for you, but {for_others(session, others)}")
        if not page.items:
            return err(
                f"no approvals or questions are waiting in {session.place}"
                if arguments.status == "pending"
                else "no matching approvals or questions"
            )
        for line in rows(session, page.items):
            out(line)
        if page.next is not None:
            err(read.more(arguments.limit))


@session_command(
    "show an approval: its subject, assignees and decision",
    "flowengine approvals show a7f3",
    arg("wait ID", "its id, or any unambiguous prefix"),
)
def approvals_show_command(session: CliSession, arguments: Namespace) -> None:
    wait = session.engine.approvals.show(arguments.wait)
    if arguments.json:
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


@command(
    "decide with any choice, including questions about uncertain steps",
    """\
flowengine approvals decide a7f3 --choice later
flowengine approvals decide 09be --choice result --value '{"id": 7}'
flowengine approvals decide 4c1d --choice respond --value "done by hand\"""",
    arg("--choice CHOICE", "id of the choice", required=True),
    deciding.arguments(fills=True),
    arg(
        "--value VALUE|@FILE",
        "with the choice 'result' of a question, or 'respond' of a call: the output to "
        "record for the step, as JSON, or as the text itself if it may be text",
    ),
)
def approvals_decide_command(arguments: Namespace) -> int:
    return deciding.run(arguments, arguments.choice)


_OWNERSHIP = together(arg("wait ID", "an approval, by any unambiguous prefix"), read.on_behalf())


def _say(session: CliSession, wait: WaitInfo) -> None:
    """Report the last change of an approval's ownership, and how to answer it."""
    if session.arguments.json:
        return out_json(wait)
    short = session.short_wait(wait["id"])
    out(f"{short} {link_text(wait['handed'][-1])}")
    if wait.get("claimed_by") == session.engine.user and not session.arguments.quiet:
        for name, words in answers(session, wait, short):
            err(f"  {name:11} {session.command(*words)}")


@session_command(
    "claim an approval so that no other assignee decides it",
    "flowengine approvals claim a7f3",
    _OWNERSHIP,
)
def approvals_claim_command(session: CliSession, arguments: Namespace) -> None:
    wait = session.engine.approvals.claim(arguments.wait, by=arguments.by)
    return _say(session, wait)


@session_command(
    "release an approval that you have claimed", "flowengine approvals release a7f3", _OWNERSHIP
)
def approvals_release_command(session: CliSession, arguments: Namespace) -> None:
    wait = session.engine.approvals.release(arguments.wait, by=arguments.by)
    return _say(session, wait)


@session_command(
    "delegate an approval to another user, who decides in your place",
    """\
flowengine approvals delegate a7f3 --to user:ana
flowengine approvals delegate a7f3 --to ana --comment "on leave" --as ben""",
    _OWNERSHIP,
    arg("--to USER", "who decides instead: user:NAME", required=True, type=read.user),
    arg("--comment TEXT", "the reason, kept with the delegation"),
)
def approvals_delegate_command(session: CliSession, arguments: Namespace) -> None:
    wait = session.engine.approvals.delegate(
        arguments.wait, arguments.to, comment=arguments.comment, by=arguments.by
    )
    return _say(session, wait)


@session_command(
    "list grants: approvals of later calls, and how often they were used",
    "flowengine grants list 01k8xq3zn3m0",
    arg("execution ID", "the execution (default: grants for all executions of a flow)", nargs="?"),
)
def grants_list_command(session: CliSession, arguments: Namespace) -> None:
    grants = session.engine.approvals.grants(arguments.execution)
    if arguments.json:
        return out_json(grants)
    if not grants:
        return err("nothing was granted")
    rows = []
    for grant in grants:
        uses = f"{grant['used']} of {grant['uses']}" if "uses" in grant else str(grant["used"])
        args = ", ".join(f"{name}={value}" for name, value in grant["args"].items())
        holds = f"flow {grant['flow']}" if "flow" in grant else "execution"
        row = [session.short_wait(grant["id"]), grant["tool"], holds, grant["status"], uses]
        rows.append([*row, when(grant.get("until", "-")), grant["by"], args])
    out_table(rows, "ID", "TOOL", "HOLDS FOR", "STATUS", "USED", "UNTIL", "BY", "ARGUMENTS")


@session_command(
    "revoke a grant: the next call needs an approval again",
    "flowengine grants revoke a7f3",
    arg("grant ID", "the grant, by any unambiguous prefix of its id"),
    read.on_behalf(),
)
def grants_revoke_command(session: CliSession, arguments: Namespace) -> None:
    grant = session.engine.approvals.revoke(arguments.grant, by=arguments.by)
    if arguments.json:
        out_json(grant)
    elif not arguments.quiet:
        short = session.short_wait(grant["id"])
        err(f"{short} was revoked: calls of {grant['tool']!r} ask again")
