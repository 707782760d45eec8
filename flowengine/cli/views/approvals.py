"""Approvals and questions in readable form: one in detail, or many in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import first_line, paint, table, when
from flowengine.cli.views.waits import answering, is_overdue, times, undecidable
from flowengine.engines.people.approvals import participle
from flowengine.engines.results import RequestInfo, WaitInfo
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.notation.addresses import flow_name
from flowengine.sdk.texts.visible_text import printable, shortened

WIDTH = 11
LONGEST = 500
"""Characters of a value that are shown."""
LONGEST_BLOCK = 20_000
"""Characters of a value of several lines that are shown as such."""

_BOUNDS = (
    ("default", "default {}"),
    ("const", "always {}"),
    ("enum", "one of {}"),
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "greater than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "minimum length {}"),
    ("maxLength", "maximum length {}"),
    ("pattern", "pattern {}"),
    ("format", "format {}"),
    ("minItems", "minimum length {}"),
    ("maxItems", "maximum length {}"),
)
"""Keywords of the schema of a form's field → how they are shown."""


def rows(session: CliSession, waits: list[WaitInfo]) -> list[str]:
    """Return waits as a table.

    Args:
        session: Shortens ids.
        waits: The waits to show.
    """
    head = ["ID", "EXECUTION", "FLOW", "SINCE", "EXPIRES", "TITLE"]
    decided = any("decision" in wait for wait in waits)
    if decided:
        head[4] = "DECIDED"
    claimed = any("claimed_by" in wait for wait in waits)
    if claimed:
        head.insert(5, "CLAIMED BY")
    return table(
        [
            [
                session.short_wait(wait["id"]),
                session.short(wait["execution"]),
                flow_name(wait["flow"]),
                when(wait["since"]),
                standing(wait) if decided else _due(wait),
                *([wait.get("claimed_by", "-")] if claimed else []),
                first_line(wait.get("title", wait["address"]), 80),
            ]
            for wait in waits
        ],
        head,
    )


def _due(wait: WaitInfo) -> str:
    """Return when a wait expires, and whether it is overdue."""
    due = wait.get("due", "-")
    return f"{when(due)} overdue" if "due" in wait and is_overdue(due) else when(due)


def standing(wait: WaitInfo) -> str:
    """Return the state of a wait: pending, or the decision and its author."""
    decision = wait.get("decision")
    if decision is None:
        return (
            "pending" if wait.get("status") == "pending" else printable(wait.get("how", "closed"))
        )
    choice = decision.get("choice")
    what = participle(choice) if choice else "expired"
    return printable(f"{what} by {decision['by']}")


def with_tool(decided: str, step: str, call: Mapping[str, Any]) -> str:
    """Return the decision on a call, with the name of the tool if its step is a server's.

    Args:
        decided: The decision and its author.
        step: Id of the step. That of a server makes the calls of all its tools.
        call: The call that it carries out.
    """
    tool = str(call.get("entry", {}).get("name", ""))
    return printable(f"{tool} {decided}") if tool.startswith(f"{step}.") else decided


def expiry(kind: str, outcome: str | None, output: Any) -> str:
    """Return that the approval of a step expired, or an empty text if it was decided.

    Args:
        kind: Kind of the step.
        outcome: Its outcome.
        output: Its output, unless the step replaces that.
    """
    if kind != "approval" or outcome is None:
        return ""
    via = output.get("via") if isinstance(output, Mapping) else None
    if outcome == "expired":
        return "expired"

    return f"expired: {printable(participle(outcome))}" if via == "expiry" else ""


def details(session: CliSession, wait: WaitInfo) -> Iterator[str]:
    """Yield the information that an approver needs.

    Args:
        session: Shortens ids.
        wait: What is asked.

    Yields:
        Lines.
    """
    short = session.short_wait(wait["id"])
    yield f"{paint(short, 'bold')}  {paint(first_line(wait.get('title', wait['address'])), 'bold')}"
    where = f"{wait['flow']} {session.short(wait['execution'])}, step {wait['address']}"
    yield _fact("execution", where)
    yield _fact("since", when(wait["since"]))
    is_open = wait.get("status") != "closed"
    for name, text in times(wait) if is_open else ():
        is_followed = name in ("expires", "overdue") and "on_expire" in wait
        then = f", then it is {participle(wait['on_expire'])}" if is_followed else ""
        yield _fact(name, text + then)
    yield from _deciders(session, wait)
    if "claimed_by" in wait:
        yield _fact("claimed by", wait["claimed_by"])
    elif wait.get("claim") and wait.get("status") != "closed":
        yield _fact("claimed by", "(not claimed yet: it must be claimed before it is decided)")
    for link in wait.get("handed", []):
        why = f": {first_line(link['comment'])}" if link.get("comment") else ""
        yield _fact("history", f"{link_text(link)} via {link.get('via', 'time')}{why}")
    if wait.get("need", 1) > 1:
        yield _fact("votes", f"{len(wait.get('votes', []))} of {wait['need']}")
    if wait.get("body"):
        yield from _quoted(wait["body"])
    for name, label in (("user", "user said"), ("model", "model says")):
        if passage := wait.get("about", {}).get(name):
            yield from _value(label, passage)  # it led to an agent's call
    yield from _subject(wait)
    yield from _preview(wait)
    if is_open:
        yield from _form(wait.get("form", {}))
    for file in wait.get("attachments", []):
        named = isinstance(file, Mapping)
        yield _fact("file", f"{file.get('name', '')}  {file.get('path', '')}" if named else file)
    if is_open:
        yield from _choices(wait)


def _deciders(session: CliSession, wait: WaitInfo) -> Iterator[str]:
    """Yield the users who are allowed to decide, the excluded ones, and why none is allowed."""
    for name, users in (("assignees", wait.get("assignees")), ("excluded", wait.get("exclude"))):
        if users:
            yield _fact(name, ", ".join(users))
    for why in undecidable(session, wait) if wait.get("status") != "closed" else ():
        yield _fact("nobody", why)


def edits(wait: WaitInfo, short: str) -> Iterator[list[str]]:
    """Yield the command that approves with an edit, if a field of the subject may be edited.

    Args:
        wait: What is asked.
        short: Its id, as short as it can be.

    Yields:
        The words after `flowengine`.
    """
    late = "due" in wait and is_overdue(wait["due"])
    names = [] if late else _editable(wait)
    for choice in wait.get("choices", []):
        if names and choice.get("counts_as") == "approve":
            yield [*answering(wait, choice, short), "--edit", f"{names[0]}=VALUE"]
            return


def link_text(link: Mapping[str, Any]) -> str:
    """Return one link of the ownership chain of an approval in readable form."""
    if link["do"] == "escalated":
        text = f"escalated to {', '.join(link['to'])} at {when(link['at'])}"
        return printable(text)
    what = {
        "claimed": f"claimed by {link['by']}",
        "released": f"released by {link['by']}",
        "delegated": f"delegated to {link.get('to')} by {link['by']}",
    }[link["do"]]
    return printable(f"{what} at {when(link['at'])}")


def decision_lines(wait: WaitInfo) -> Iterator[str]:
    """Yield the decision on a wait, with its comment, form and files."""
    decision = wait.get("decision", {})
    at = f" at {when(decision['at'])}" if "at" in decision else ""
    via = f" via {decision['via']}" if "via" in decision else ""
    entered = f", entered by {decision['entered_by']}" if "entered_by" in decision else ""
    yield _fact("status", f"{standing(wait)}{at}{via}{entered}")
    for key in ("comment", "form", "edits", "value"):
        if decision.get(key) not in (None, {}):
            value = decision[key]
            yield _fact(key, value if isinstance(value, str) else inline(value))
    for image in decision.get("images", []):
        text = f"{image['media_type']}  {image['size']} bytes  sha256 {image['sha256']}"
        yield _fact("image", text)
    for file in decision.get("attachments", []):
        yield _fact("file", f"{file['name']}  {file['size']} bytes  sha256 {file['sha256']}")


def _subject(wait: WaitInfo) -> Iterator[str]:
    """Yield the fields of the subject, and which of them may be edited."""
    if "digest" in wait:
        yield _fact("call", f"{wait['tool']}, sha256 {wait['digest'][:16]}")
        if "rule" in wait:
            yield _fact("asked by", wait["rule"])
        if "difference" in wait:
            yield _fact("changed", "the tool has changed since the call was approved")
            yield from _quoted(wait["difference"])
        if "found" in wait:
            yield _fact("would do", wait["found"]["action"])
            for name, value in wait["found"]["target"].items():
                yield _fact(name, _shown(value))
    elif "tool" in wait:
        yield _fact("call", wait["tool"])
    if "request" in wait:
        yield from _request(wait["request"])
    if "subject" not in wait:
        return
    subject, may_be = wait["subject"], _editable(wait)
    if not isinstance(subject, dict):
        yield _fact("subject", _shown(subject))
        return
    bound = wait.get("bound", ())
    for name, value in subject.items():
        may = "  (may be edited)" if name in may_be else ""
        may = "  (fixed by the flow)" if name in bound else may
        yield from _value(name, value, may)


def _request(request: RequestInfo) -> Iterator[str]:
    """Yield what a call requests while it runs, in the words of the other side."""
    yield _fact("asked by", request["by"])
    yield from _quoted(request["message"])
    if "url" in request:
        yield _fact("opens", request.get("host", ""))
        yield _fact("link", request["url"])
    if note := request.get("note"):
        yield from (_fact("note", line) for line in note.split("\n"))


def _value(name: str, value: Any, note: str = "") -> Iterator[str]:
    """Yield a value: a text of several lines, such as code, as a block of them."""
    text = str(value).rstrip("\n")
    if not isinstance(value, str) or "\n" not in text:
        yield _fact(name, f"{_shown(value)}{note}")
        return
    yield _fact(name, f"{text.count(chr(10)) + 1} lines{note}")
    if len(text) > LONGEST_BLOCK:
        text = _shown(value)
    yield from _quoted(text)


def _editable(wait: WaitInfo) -> list[str]:
    """Return the fields of the subject, as dotted paths, that a decision may change."""
    subject, edit, bound = wait.get("subject"), wait.get("edit") or [], wait.get("bound", ())
    fields = subject if isinstance(subject, dict) else {}
    return [name for name in (fields if edit is True else edit) if name not in bound]


def _preview(wait: WaitInfo) -> Iterator[str]:
    """Yield the tool's preview of a call."""
    if "note" in wait:
        yield _fact("preview", wait["note"])
    if "preview" in wait:
        yield _fact("preview", "the effect of the call, according to the tool")
        yield from _quoted(wait["preview"])


def _quoted(text: str) -> Iterator[str]:
    """Yield a multi-line text, set off from its surroundings."""
    yield ""
    yield from (f"  | {line}".rstrip() for line in str(text).rstrip().split("\n"))
    yield ""


def _shown(value: Any) -> str:
    """Return a value on one line, or the beginning, end, size and digest of a long one."""
    whole = inline(value)
    return shortened(printable(whole), LONGEST, whole)


def _form(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, given in schema.get("properties", {}).items():
        field = given if isinstance(given, Mapping) else {}
        types = field.get("type", "any")
        about = [types if isinstance(types, str) else " or ".join(map(str, types))]
        about += ["required"] if name in required and "default" not in field else []
        about += [str(field[key]) for key in ("title", "description") if key in field]
        about += [words.format(inline(field[key])) for key, words in _BOUNDS if key in field]
        yield _fact("form", f"{name}: {', '.join(about)}")


def _choices(wait: WaitInfo) -> Iterator[str]:
    for choice in wait.get("choices", []):
        label = choice.get("label")
        text = str(choice["id"])
        text += f": {label}" if label and label != text else ""
        text += "  (needs a comment)" if choice.get("comment") == "required" else ""
        yield _fact("choice", text)


def _fact(name: str, value: object) -> str:
    return f"  {printable(name):{WIDTH}} {printable(value)}"
