"""Commands that decide: approvals and questions, and grants for later calls."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from flowengine.cli import deciding
from flowengine.cli.deciding import FILTERS, for_others
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, fixed, many, section
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, out, out_json, out_result, table, when
from flowengine.cli.views.approvals import link_text, rows
from flowengine.cli.views.waits import answers
from flowengine.engines.infos import LISTED
from flowengine.errors import UsageError

approve_command = command(
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
    fixed(counts_as="approve", choice=None),
)(deciding.run)


reject_command = command(
    "reject, and resume the execution",
    """\
flowengine reject a7f3 --comment "not this year"
flowengine reject a7f3 --attach scan.pdf --as ben""",
    deciding.arguments(fills=False),
    fixed(counts_as="reject", choice=None),
)(deciding.run)


@session_command(
    "list approvals and questions, pending ones by default",
    """\
flowengine approvals list --mine
flowengine approvals list --flow expense --status closed --limit 10""",
    FILTERS,
    arg("--status", "default: pending", choices=["pending", "closed", "all"], default="pending"),
    read.LIMIT,
    lists=True,
)
def approvals_list_command(session: CliSession, arguments: Namespace) -> None:
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


decide_command = command(
    "decide with any choice, of approvals and of questions, and resume the execution",
    """\
flowengine decide a7f3 later
flowengine decide 09be result --value '{"id": 7}'
flowengine decide 4c1d respond --value "done by hand"
flowengine decide --all retry --flow import""",
    deciding.arguments(fills=True),
    arg("choice CHOICE", "id of the choice"),
    arg(
        "--value VALUE|@FILE",
        "with the choice 'result' of a question, or 'respond' of a call, which is then not made: "
        "its output, as JSON, or as the text itself if it may be text",
    ),
)(deciding.run)


@session_command(
    "claim an approval, release it, or delegate it to another user",
    """\
flowengine approvals assign a7f3 --to me
flowengine approvals assign a7f3 --to anyone
flowengine approvals assign a7f3 --to ana --comment "on leave" --as ben""",
    arg("wait ID", "an approval, by any unambiguous prefix"),
    arg(
        "--to USER",
        "me: only I can decide it. anyone: any assignee can, as before. "
        "user:NAME: this user can decide it in my place",
        required=True,
    ),
    arg("--comment TEXT", "the reason, kept with a delegation to another user"),
    read.on_behalf(),
)
def approvals_assign_command(session: CliSession, arguments: Namespace) -> None:
    """Change who decides, and report it, with the ways to decide."""
    approvals = session.engine.approvals
    if arguments.to in ("me", "anyone"):
        if arguments.comment is not None:
            raise UsageError("--comment is kept with a delegation", hint="name a user: --to USER")
        change = approvals.claim if arguments.to == "me" else approvals.release
        wait = change(arguments.wait, by=arguments.by)
    else:
        to = read.user(arguments.to)
        wait = approvals.delegate(arguments.wait, to, comment=arguments.comment, by=arguments.by)
    if arguments.json:
        return out_json(wait)
    short = session.short_wait(wait["id"])
    out(f"{short} {link_text(wait['handed'][-1])}")
    if wait.get("claimed_by") == session.engine.user and not arguments.quiet:
        for name, words in answers(session, wait, short):
            err(f"  {name:11} {session.command(*words)}")


@session_command(
    "list grants, which approve later calls, with their usage, or revoke one",
    """\
flowengine grants 01k8xq3zn3m0
flowengine grants --revoke a7f3""",
    arg("execution ID", "the execution (default: grants for all executions of a flow)", nargs="?"),
    arg(
        "--revoke GRANT", "revoke this grant, by any unambiguous prefix of its id: calls ask again"
    ),
    section("with --revoke", read.on_behalf("revoke it on behalf of another user")),
)
def grants_command(session: CliSession, arguments: Namespace) -> None:
    if arguments.revoke is not None:
        revoked = session.engine.approvals.revoke(arguments.revoke, by=arguments.by)
        if arguments.json:
            return out_json(revoked)
        if not arguments.quiet:
            short = session.short_wait(revoked["id"])
            err(f"{short} was revoked: calls of {revoked['tool']!r} ask again")
        return None
    grants = session.engine.approvals.grants(arguments.execution)
    granted = []
    for grant in grants:
        uses = f"{grant['used']} of {grant['uses']}" if "uses" in grant else str(grant["used"])
        args = ", ".join(f"{name}={value}" for name, value in grant["args"].items())
        holds = f"flow {grant['flow']}" if "flow" in grant else "execution"
        row = [session.short_wait(grant["id"]), grant["tool"], holds, grant["status"], uses]
        granted.append([*row, when(grant.get("until", "-")), grant["by"], args])
    head = ["ID", "TOOL", "HOLDS FOR", "STATUS", "USED", "UNTIL", "BY", "ARGUMENTS"]
    return out_result(arguments, grants, table(granted, head), "nothing was granted")
