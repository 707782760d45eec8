"""Human decisions about questions of every kind.

All interfaces, such as the command line and the Python API, read a wait once (`standing`) and call
`decide`. It checks the wait, the user, the choice, the form, the edits, the comment and the files,
in this order. `running.answers` then records the decision. The first decision counts. Repeating it
returns the recorded one. A different decision is refused with the recorded choice, its user and its
time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.executions.parts import has_expired
from flowengine.engines.host import Host, KeptFiles
from flowengine.engines.people.approval_ownership import (
    check_assignee,
    check_claim,
    hand,
    standing,
)
from flowengine.engines.people.edits import fitting
from flowengine.engines.people.grants import checked_grant, checked_images, digests, name_of, view
from flowengine.engines.people.waits import stored_wait_view
from flowengine.engines.results import Answering, Decision, DecisionGiven, WaitInfo
from flowengine.engines.running.answers import answer_open, record, to_keep
from flowengine.engines.running.driving import Driving
from flowengine.engines.starting.inputs import fill_defaults
from flowengine.errors import Conflict, FlowEngineError, Hint, InputError, NotAllowed
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import ListedWait
from flowengine.journal.shapes import damage, unpack_event
from flowengine.journal.store import Store
from flowengine.kernel.notation.grants import FLOW
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import DECIDABLE, RESPOND, counting, only_choice
from flowengine.sdk.files.file_names import SIGNATURES
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.values.validation import as_plain, validate
from flowengine.settings import Settings

_OTHERS = {
    "timer": "time",
    "signal": "a message",
    "state": "a value in the state",
    "worker": "a worker that offers what its step needs",
}
MAX_FILES = 10
LONGEST_PART = 200
"""Maximum length of a part of a decision in a message."""
LONGEST = 500
"""Maximum length of the journal's note on a refused decision."""
MAX_FILE_BYTES = 20 * 1024 * 1024


def record_decision(
    host: Host, named: str, choice: str, answer: Answering, who: Actor, *, counts: bool = False
) -> tuple[Decision, bool]:
    """Record a decision, or note in the journal that it was refused.

    Args:
        host: Provides the store.
        named: Id of the wait, or an unambiguous prefix of it.
        choice: Id of the choice.
        answer: Further parts of the answer.
        who: The actor who decides.
        counts: `choice` is `approve` or `reject`: the only choice of the wait that counts as this.

    Returns:
        The decision that counts, and whether its execution is to be resumed.
    """
    wait = standing(host.store, host.store.find_wait(named))
    given: DecisionGiven = {
        **answer,
        "choice": _choice_of(named, wait.record, choice) if counts else choice,
    }
    try:
        decision = decide(host, wait, given, who)
    except (Conflict, InputError, NotAllowed) as error:
        error.wait = wait.id
        _note_refused(host, wait, who, error)
        raise
    if decision.first and (answer.get("grant") or {}).get("scope") == FLOW:
        for other in answer_open(host, wait.flow, wait.record["tool"]):
            if other != decision.execution:
                host.woken[other] = True
    return decision, answer.get("resume", True)


def _choice_of(named: str, wait: Mapping[str, Any], counts_as: str) -> str:
    """Return the only choice of a wait that counts as approval or rejection.

    Raises:
        InputError: The wait has no such choice, or several.
        Conflict: A wait of this kind is not decided on.
    """
    check_decidable(named, wait["kind"])
    if (choice := only_choice(wait, counts_as)) is not None:
        return str(choice["id"])
    choices = wait.get("choices") or []
    known = ", ".join(choice["id"] for choice in choices) or "none"
    is_counted = any(choice.get("counts_as") == counts_as for choice in choices)
    how_many = "several choices count" if is_counted else "no choice counts"
    raise InputError(
        f"{named}: {how_many} as '{counts_as}'",
        field="choice",
        hint=f"decide with one of: {known}",
    )


def _note_refused(host: Host, wait: ListedWait, who: Actor, error: FlowEngineError) -> None:
    """Record in the journal of an execution, for audits, that a decision was refused."""
    at = host.clock.now()
    # Typed input may contain anything, including a secret, so only the field is recorded.
    why = f"'{error.field}' is not valid" if isinstance(error, InputError) else error.message
    message = f"{who.user} tried to decide on {wait.id}: {why}"[:LONGEST]
    event = {"type": "warning", "at": at, "about": "decision", "message": message}
    with suppress(Conflict):  # it has ended, and accepts no more messages
        host.store.send(wait.execution, pack(event), at, host.ids.message())


def hand_over(
    host: Host, driving: Driving, wait: str, what: str, who: Actor, **more: str | None
) -> WaitInfo:
    """Record that an approval changes hands, and journal it unless another process does.

    Args:
        host: Provides the store.
        driving: Drives the engine's executions.
        wait: Id of the wait, or an unambiguous prefix of it.
        what: `claimed`, `released` or `delegated`.
        who: The actor.
        **more: Further fields of the event.

    Returns:
        The wait afterwards.
    """
    event = {"type": what, "at": host.clock.now(), **who.fields(), **more}
    id = host.store.find_wait(wait)
    try:
        after = hand(host.store, host.settings, id, event)
    except FlowEngineError as error:
        error.wait = id
        raise
    driving.take_hands(after.execution)
    return stored_wait_view(after)


def check_decidable(id: str, kind: str) -> None:
    """Check that a wait is decided on by users.

    Raises:
        Conflict: Waits of this kind are not decided on.
    """
    if kind not in DECIDABLE:
        raise Conflict(
            f"{id} waits for {_OTHERS[kind]}, not for a decision",
            hint=Hint(
                f"see what ends it: flowengine show {id}",
                http=f"see what ends it: GET /v1/approvals/{id}",
            ),
        )


def decide(host: Host, wait: ListedWait, given: DecisionGiven, who: Actor) -> Decision:
    """Decide on a wait. Every decision passes through this function.

    Args:
        host: Provides the store, and the settings with the groups.
        wait: The wait, from `standing`.
        given: The submitted decision.
        who: The actor who decides.

    Returns:
        The decision that counts, and whether it is this one.

    Raises:
        Conflict: It was decided differently, closed without a decision, or has expired, even if no
            process has closed it yet.
    """
    store, id, now = host.store, wait.id, host.clock.now()
    check_decidable(id, wait.record["kind"])
    files = check_files(given.get("attach") or ())
    if not wait.open:
        return _agreed(store, wait, given, who, files)
    if has_expired(wait.record, now):
        raise Conflict(
            f"{id} expired at {format_time(wait.record['due'])}",
            hint=Hint(
                f"resume the execution: flowengine resume {wait.execution}",
                http=f"resume the execution: POST /v1/executions/{wait.execution}/resume",
            ),
        )
    decision = _checked(wait.record, given, who, host.settings)
    choice = given["choice"]
    if "found" in wait.record and counting(dict(wait.record), choice) == "approve":
        check_logged_in(id, wait.record)
    images = given.get("images") or ()
    contents = checked_images(wait.record, choice, images) if images else []
    if (grant := given.get("grant")) is not None:
        decision["grant"] = checked_grant(wait.record, choice, grant, now)
    check_claim(wait.record, id, who.user)
    keeper = KeptFiles(store, wait.execution)
    decision["attachments"] = [keeper.put(Path(path), os.path.basename(path)) for path in files]
    if contents:
        decision["images"] = [keeper.put(image, name_of(image)) for image in contents]
    event, accepted, after = record(store, id, wait.record, decision, now, to_keep(wait, decision))
    if accepted:
        return _decision(wait, event, first=True)
    return _agreed(store, after, given, who, files)


def _standing(store: Store, wait: ListedWait, user: str) -> Mapping[str, Any]:
    """Return the decision that counts: the one that settled a wait, or a user's own vote.

    Raises:
        Conflict: The wait was closed without a decision.
    """
    if wait.decision is not None:
        event: Mapping[str, Any] = unpack_event(wait.decision, f"the decision of wait {wait.id}")
        return event
    if not wait.open:
        at = f" at {format_time(wait.closed_at)}" if wait.closed_at is not None else ""
        raise Conflict(
            f"{wait.id} {'expired' if wait.how == 'expired' else 'was withdrawn'}{at}",
            standing=unpack(wait.result) if wait.result else None,
            plain=f"{wait.id} is closed{at}",
        )
    votes = (unpack_event(vote, f"a vote of wait {wait.id}") for vote in wait.votes)
    # After a fork, or a retry of its execution, a vote is only in the journal.
    entries = (
        unpack_event(entry.payload, f"entry {entry.seq} of execution {wait.execution}")
        for entry in reversed(store.events(wait.execution))
    )
    for event in chain(votes, entries):
        if (event["type"], event.get("wait"), event.get("by")) == ("decided", wait.number, user):
            return event
    raise damage(f"the votes of wait {wait.id}", LookupError(f"no entry is that of {user}"))


def _checked(
    wait: Mapping[str, Any], given: DecisionGiven, who: Actor, settings: Settings
) -> dict[str, Any]:
    """Check a submitted decision against its wait.

    Returns:
        The fields of the event `decided` except `type`, `at` and `wait`, without files, images and
            a grant, which are not checked here.
    """
    check_assignee(wait, who.users, settings, "decide on")
    choice = _choice(wait, given["choice"])
    decision: dict[str, Any] = {"choice": given["choice"], **who.fields()}
    decision["comment"] = _comment(choice, given.get("comment"))
    supplies = "result" if wait["kind"] == "question" else RESPOND if "tool" in wait else None
    if given["choice"] == supplies:  # the output of the step
        decision["value"] = _value(wait, given)
        return decision
    if given.get("value") is not None:
        raise InputError(f"'{given['choice']}' takes no value", field="value")
    if wait["kind"] == "question":
        return decision
    decision["form"] = _form(wait, choice, given.get("form"))
    decision["edits"] = fitting(wait, given.get("edit"))
    return decision


def check_files(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Check the files attached to a decision.

    Args:
        paths: The paths of the files.

    Returns:
        The paths as text.

    Raises:
        InputError: One is not a file, is too large, or does not match its extension, or there are
            too many.
    """
    if len(paths) > MAX_FILES:
        raise InputError(f"{len(paths)} files are attached: at most {MAX_FILES} are allowed")
    for path in [os.fspath(path) for path in paths]:
        if not os.path.isfile(path):
            raise InputError(f"attachment {path}: there is no such file", field="attach")
        size = os.path.getsize(path)
        if size > MAX_FILE_BYTES:
            most = size_text(MAX_FILE_BYTES)
            raise InputError(f"attachment {path} has {size_text(size)}; at most {most} may be sent")
        beginnings = SIGNATURES.get(os.path.splitext(path)[1].lower())
        if beginnings:
            with open(path, "rb") as file:
                start = file.read(8)
            if not start.startswith(beginnings):
                raise InputError(
                    f"attachment {path} has content that does not match its name", field="attach"
                )
    return [os.fspath(path) for path in paths]


def differences(
    wait: Mapping[str, Any],
    standing: Mapping[str, Any],
    given: DecisionGiven,
    files: Sequence[str],
) -> list[str]:
    """Return the differences between an answer and the recorded decision. Empty: they agree.

    The user, the time and the channel are not compared: two users who approve the same content
    agree. An answer without edits approves the content as shown. A missing comment, file or grant
    is not compared, and the same applies to a missing form that is required.

    Args:
        wait: The wait's record.
        standing: The decision that counts.
        given: The decision submitted now.
        files: Digests of its attached files.
    """
    if standing.get("choice") != given["choice"]:
        return ["choice"]
    mine: dict[str, Any] = {"edits": given.get("edit") or None}
    with suppress(InputError):  # otherwise compared as submitted
        mine["edits"] = fitting(wait, given.get("edit"))
    mine |= {name: given.get(name) for name in ("form", "comment", "value")}
    with suppress(InputError):
        if "form" in wait and wait["kind"] != "question":
            mine["form"] = _form(wait, _choice(wait, given["choice"]), given.get("form"))
    if (grant := given.get("grant")) is not None:
        mine["grant"] = checked_grant(wait, given["choice"], grant, standing["at"])
    mine["images"] = digests(given.get("images") or ())
    mine["attachments"] = sorted(set(files))
    stands = {
        **standing,
        "images": [view(image)["sha256"] for image in standing.get("images") or ()],
        "attachments": sorted({file["sha256"] for file in standing.get("attachments") or ()}),
    }
    return [
        f"{name} there: {_in_one_line(stands.get(name))}, here: {_in_one_line(value)}"
        for name, value in mine.items()
        if stands.get(name) != value and (name == "edits" or value not in (None, []))
    ]


def _in_one_line(value: Any) -> str:
    """Return a part of a decision on one line."""
    if value is None:
        return "none"
    from json import dumps

    text = dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_PART else f"{text[:LONGEST_PART]}…"


def _agreed(
    store: Store, wait: ListedWait, given: DecisionGiven, who: Actor, files: Sequence[str]
) -> Decision:
    """Return the decision that counts, if the submitted one is the same.

    Raises:
        Conflict: It differs. The message contains the recorded choice, its user and its time. Or
            the wait was closed without a decision.
    """
    standing = _standing(store, wait, who.user)
    differ = differences(wait.record, standing, given, [_digest(path) for path in files])
    if not differ:
        return _decision(wait, standing, first=False)
    reason = f": {standing['comment']}" if standing.get("comment") else ""
    settled = f"by {standing['by']} at {format_time(standing['at'])}"
    raise Conflict(
        f"{wait.id} was already {participle(standing['choice'])} {settled}{reason}",
        hint=None if standing["choice"] != given["choice"] else f"it differs: {'; '.join(differ)}",
        standing={key: value for key, value in standing.items() if key != "type"},
        plain=f"{wait.id} was already decided",
    )


def participle(choice: str) -> str:
    """Return a choice as a past participle: `approved`, `rejected`, `decided as 'later'`."""
    return {"approve": "approved", "reject": "rejected", "answer": "answered"}.get(
        choice, f"decided as '{choice}'"
    )


def _decision(wait: ListedWait, event: Mapping[str, Any], *, first: bool) -> Decision:
    return Decision(
        wait.id,
        wait.execution,
        event["choice"],
        event["by"],
        event["at"],
        event["via"],
        event.get("comment"),
        first,
        None,
    )


def _digest(path: str) -> str:
    from hashlib import sha256

    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def _choice(wait: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    choices: list[Mapping[str, Any]] = wait.get("choices") or []
    for choice in choices:
        if choice["id"] == name:
            return choice
    known = ", ".join(choice["id"] for choice in choices)
    raise InputError(f"there is no choice '{name}'", field="choice", hint=f"choices: {known}")


def _comment(choice: Mapping[str, Any], comment: str | None) -> str | None:
    wanted = choice.get("comment", "optional")
    if wanted == "required" and not (comment or "").strip():
        raise InputError(
            f"'{choice['id']}' needs a comment",
            field="comment",
            hint=_part("comment=TEXT", "--comment TEXT", "'comment': TEXT"),
        )
    if wanted == "none" and comment:
        raise InputError(f"'{choice['id']}' takes no comment", field="comment")
    return comment or None


def _part(python: str, cli: str, http: str) -> Hint:
    """Return the hint that a decision needs another part, in the words of each surface."""
    return Hint(f"add {python}", f"add {cli}", f"add {http}")


def _form(wait: Mapping[str, Any], choice: Mapping[str, Any], given: Any) -> Any:
    """Return the completed form, which is required for choices that count as approval.

    The form of a question may have any schema. The given value is then the answer itself.

    Raises:
        InputError: The given form does not match.
    """
    schema = wait.get("form")
    if schema is None:
        if given:
            raise InputError("this approval has no form", field=next(iter(given)))
        return None
    given = None if given is None else as_plain(given, "form")
    if schema.get("type", "object") != "object":
        return validate(schema, given, "answer")
    if given is None and choice.get("counts_as") != "approve" and wait["kind"] != "ask":
        return None
    fields = schema.get("properties", {})
    for name in given or {}:
        if name not in fields and not schema.get("additionalProperties"):
            known = ", ".join(fields) or "none"
            raise InputError(f"the form has no field '{name}'", field=name, hint=f"fields: {known}")
    form = fill_defaults(schema, given or {})
    for name in schema.get("required", ()):
        if name not in form:
            field = f"{{{name!r}: VALUE}}"
            raise InputError(
                f"the form needs '{name}'",
                field=name,
                hint=_part(f"form={field}", f"--form {name}=VALUE", f"'form': {field}"),
            )
    return validate({"type": "object", **schema}, form, "form")


def _value(wait: Mapping[str, Any], given: DecisionGiven) -> Any:
    """Return the output that a user supplies, in place of a call or of an interrupted attempt.

    Raises:
        InputError: It is missing, or has another type than the result of the tool or step.
    """
    is_question = wait["kind"] == "question"
    about, what = ("step", "attempt") if is_question else ("tool", "call")
    schema = wait.get("returns", {})
    give, outline = f"give the result of the {about}", _outline(schema)
    hint = Hint(
        f"{give}: value={outline}", f"{give}: --value '{outline}'", f"{give}: 'value': {outline}"
    )
    if "value" not in given:
        message = f"'{given['choice']}' needs a value: the output to record instead of the {what}'s"
        raise InputError(message, field="value", hint=hint)
    named = f"the result of '{wait['address' if is_question else 'tool']}'"
    try:
        return validate(schema, given["value"], named)
    except InputError as error:
        raise InputError(error.message, field=error.field, hint=error.hint or hint) from None


def _outline(schema: Mapping[str, Any]) -> str:
    """Return an example value of a schema as text, with types in place of values."""
    types = schema.get("type", "json")
    if types == "array":
        return "[…]"
    if types != "object":
        return str(types).upper() if isinstance(types, str) else "JSON"
    fields = schema.get("properties", {})
    required = {name: fields.get(name) for name in schema.get("required", fields)}
    parts = [
        f'"{name}": {_outline(field) if isinstance(field, dict) else "JSON"}'
        for name, field in required.items()
    ]
    return f"{{{', '.join(parts)}}}"


# Logins that executions wait for: an approval of one counts only once a user has logged in.


def login_of(wait: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the login that a wait is about, or None.

    Args:
        wait: The record of the wait, or a view of it.
    """
    found = wait.get("found")
    login = found.get("login") if isinstance(found, dict) else None
    return login if isinstance(login, dict) else None


def is_logged_in(login: Mapping[str, Any]) -> bool:
    """Return whether an execution has the login that it waits for.

    Args:
        login: The login, from `login_of`.
    """
    from flowengine.sdk.files.logins import LoginKey, usable  # few waits are about one

    known = usable(LoginKey.of(login), login["borrower"])
    return known is not None and known.covers(login.get("scopes", ()))


def check_logged_in(id: str, wait: Mapping[str, Any]) -> None:
    """Check that the login that a wait is about has taken place, before it is approved.

    Args:
        id: Full id of the wait.
        wait: Its record.

    Raises:
        Conflict: The login has not taken place.
    """
    login = login_of(wait)
    if login is not None and not is_logged_in(login):
        raise Conflict(
            f"{id} cannot be approved before the login to {login['url']}",
            hint=Hint(
                f"log in: flowengine approve {id}", http="log in on the page of the approval"
            ),
        )
