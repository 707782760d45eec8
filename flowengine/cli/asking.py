"""Asks the user at the terminal what an execution waits for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flowengine.cli.arguments import by_type
from flowengine.cli.output import clean, err, paint
from flowengine.cli.program import show_error
from flowengine.errors import Conflict, InputError, NotFound

if TYPE_CHECKING:
    from flowengine.cli.session import Session
    from flowengine.engines.results import Decision, Result, WaitInfo

KINDS = ("approval", "ask", "question")


class Left(Exception):
    """The user leaves a question open."""


def ask_all(session: Session, result: Result) -> Result:
    """Ask for every open question that the user may answer, and go on after each answer.

    Args:
        session: Of the user.
        result: How the execution stands.

    Returns:
        How it stands when all is answered or left open.
    """
    left: set[str] = set()
    while not result.ended:
        wait = _next(session, result.execution, left)
        if wait is None:
            return result
        left.add(wait["id"])
        try:
            decision = ask(session, wait)
        except Left:
            continue
        except EOFError:
            err()
            return result
        if decision is None:
            continue
        gone_on, _ = session.follow(partial(session.engine.resume, decision.execution))
        assert gone_on is not None
        result = gone_on
    return result


def ask(session: Session, wait: WaitInfo) -> Decision | None:
    """Ask one question until there is an answer that fits.

    Args:
        session: Of the user.
        wait: What is asked.

    Returns:
        What was recorded; None if somebody else was first.
    """
    from flowengine.cli.inbox import details

    err()
    for line in details(session, wait):
        err(line)
    while True:
        try:
            choice = _choice(wait)
            answer = _filled(wait, choice)
            return session.engine.decide(wait["id"], choice["id"], **answer, resume=False)
        except InputError as error:
            show_error(error)
        except (Conflict, NotFound) as error:
            show_error(error)
            return None


def _next(session: Session, execution: str, left: set[str]) -> WaitInfo | None:
    """Return the next question for this user that is not left open."""
    engine = session.engine
    after = None
    while True:
        page = engine.waits(execution=execution, assignee=engine.user, kinds=KINDS, after=after)
        for wait in page.items:
            if wait["id"] not in left:
                return wait
        if page.next is None:
            return None
        after = page.next


def _choice(wait: WaitInfo) -> Mapping[str, Any]:
    """Ask which choice is taken.

    Returns:
        The choice.

    Raises:
        Left: None.
    """
    choices: list[dict[str, Any]] = wait.get("choices", [])
    if len(choices) == 1:
        return choices[0]
    names = [str(choice["id"]) for choice in choices]
    while True:
        said = _read(f"{', '.join(names)}? (Enter leaves it open) ").strip()
        if not said:
            raise Left
        found = [name for name in names if name == said] or [
            name for name in names if name.startswith(said)
        ]
        if len(found) == 1:
            return choices[names.index(found[0])]
        err(f"  one of {', '.join(names)}, or their first letters")


def _filled(wait: WaitInfo, choice: Mapping[str, Any]) -> Any:
    """Ask for what comes with a choice: edits, the form, a comment."""
    answer: dict[str, Any] = {}
    if choice.get("counts_as") == "approve" and wait.get("edit"):
        answer["edits"] = _edits(wait)
    if "form" in wait and (choice.get("counts_as") == "approve" or wait["kind"] == "ask"):
        answer["form"] = _form(wait["form"])
    if wait["kind"] == "question" and choice["id"] == "result":
        answer["value"] = by_type({}, _read("output of the step (JSON or text): "), "output", "")
    if wait["kind"] != "ask" and choice.get("comment", "optional") != "none":
        required = choice.get("comment") == "required"
        answer["comment"] = _field("comment", "", required=required)
    return answer


def _edits(wait: WaitInfo) -> dict[str, Any]:
    """Ask which fields of the subject are changed, and to what."""
    subject = wait.get("subject")
    allowed = wait["edit"]
    if allowed is True:
        allowed = list(subject) if isinstance(subject, dict) else []
    edits: dict[str, Any] = {}
    while allowed:
        name = _read(f"edit {', '.join(map(str, allowed))}? (Enter: no more) ").strip()
        if not name:
            break
        if name.split(".")[0] not in allowed:
            err(f"  may be edited: {', '.join(map(str, allowed))}")
            continue
        edits[name] = edited_value(subject, name, _read(f"{name}: "))
    return edits


def edited_value(subject: Any, path: str, text: str) -> Any:
    """Read the new value of a field by the type that it has.

    Args:
        subject: What is decided on.
        path: The field, as a dotted path.
        text: As given.

    Returns:
        Plain data.
    """
    old = subject
    for part in path.split("."):
        old = old.get(part) if isinstance(old, dict) else None
    names = {str: "string", bool: "boolean", int: "number", float: "number"}
    names |= {list: "array", dict: "object"}
    kind = names.get(type(old))
    return by_type({"type": kind} if kind else {}, text, f"'{path}'", path)


def _form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for each field of a form."""
    form: dict[str, Any] = {}
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        while True:
            said = _field(name, _about(field), required=name in required and "default" not in field)
            if not said:
                break
            try:
                form[name] = by_type(field, said, f"'{name}'", name)
                break
            except InputError as error:
                show_error(error)
    return form


def _about(field: Any) -> str:
    """Return what is said of a field: its title, the values it takes, its default."""
    from flowengine.cli.yaml_text import inline

    if not isinstance(field, Mapping):
        return ""
    parts = [str(field["title"])] if "title" in field else []
    if "enum" in field:
        parts.append(" | ".join(map(inline, field["enum"])))
    if "default" in field:
        parts.append(f"Enter: {inline(field['default'])}")
    return clean(", ".join(parts))


def _field(name: str, about: str, *, required: bool) -> str:
    """Ask for the text of one field; what is required is asked until it is given."""
    note = about or ("" if required else "Enter: none")
    prompt = f"{clean(name)}{f' ({note})' if note else ''}: "
    while True:
        said = _read(prompt).strip()
        if said or not required:
            return said
        err(f"  {clean(name)} is required; Ctrl-D leaves it open")


def _read(prompt: str) -> str:
    """Return a line from the terminal.

    Raises:
        EOFError: The user has ended the input.
    """
    sys.stderr.write(paint(prompt, "bold"))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
