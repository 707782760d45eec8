"""Approval of tool calls before they are made.

A question belongs to the calling unit and is about one call: a tool in one version of its
declaration, and one set of arguments. The arguments are evaluated when the question is asked. After
approval the call runs with exactly these arguments, including the approver's edits, even if the
state has changed since then. The approval covers retries of the call. The next round of a loop and
an operator's retry require a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flowengine.kernel.commands import Consult
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import Asked, Described
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.graph.compiled import Plain, digest, masked, telling
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.graph.rules import Verdict, strictest
from flowengine.kernel.limits import call_counts
from flowengine.kernel.notation.grants import ONLY_PEOPLE
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.view import RESPOND, View, call_names, edited
from flowengine.kernel.waiting import grants
from flowengine.kernel.waiting.approvals import fill_in, notify
from flowengine.kernel.waiting.waits import add_wait, close_wait, show

About = tuple[int, str]
"""Owner and digest of a topic."""


class NeededPermission(NamedTuple):
    """A permission that an attempt needs."""

    about: About
    ask: Callable[[], Wait]
    """Opens the question, if it was not asked before."""
    use: dict[str, Plain] = {}  # noqa: RUF012 - it is not changed
    """The use of an environment that it is about. Empty for a call."""


class Opens(NamedTuple):
    """An environment that a call opens, in the question about the call."""

    name: str
    shown: dict[str, Plain]


# Questions


def new_question(tx: Transition, about: About, address: str, step: str) -> Wait:
    """Add a new question and return it. The caller fills in the rest of its record."""
    wait = add_wait(tx, "permission", 0, "approval", address, step)
    wait["asks"], wait["units"] = list(about), {}
    keep_answer(tx, about, wait["id"])
    return wait


def leave_questions(tx: Transition, unit: Unit) -> None:
    """Remove a unit from its questions, and withdraw those without other units."""
    for number in unit.pop("asks"):
        wait = tx.state["waits"][number]
        del wait["units"][unit["id"]]
        if not wait["units"]:
            close_question(tx, wait, "withdrawn")


def close_question(tx: Transition, wait: Wait, how: str, result: Plain = None) -> None:
    """Close a question. If no answer was stored, the next unit with the same need asks again."""
    about = about_of(wait)
    if answer_about(tx, about) == wait["id"]:
        take_back_answer(tx, about)
    close_wait(tx, wait, how, result)


def about_of(wait: Wait) -> About:
    """Return the topic of a question."""
    owner, digest = wait["asks"]
    return owner, digest


# Answers


def answer_about(tx: View, about: About) -> Any:
    """Return the answer, the number of the question while it is open, or None if there was none."""
    owner, digest = about
    return tx.state.get("answers", {}).get(owner, {}).get(digest)


def keep_answer(tx: Transition, about: About, answer: Any) -> None:
    """Store an answer, or the number of an open question."""
    owner, digest = about
    tx.state.setdefault("answers", {}).setdefault(owner, {})[digest] = answer


def take_back_answer(tx: Transition, about: About) -> None:
    """Remove an answer, or the number of a question."""
    owner, digest = about
    answers = tx.state["answers"]
    del answers[owner][digest]
    if not answers[owner]:
        forget_answers(tx, owner)


def forget_answers(tx: Transition, owner: int) -> None:
    """Remove all answers of a step or region that has ended."""
    answers = tx.state.get("answers")
    if answers is not None and answers.pop(owner, None) is not None and not answers:
        del tx.state["answers"]


CALL = "call"
"""Used in place of the digest that other questions have, because a unit makes one call."""
LONGEST_ABOUT = 4000
"""Maximum length of each text in `about`, the context of a call."""
CHOICES = [
    {"id": id, "label": id.capitalize(), "counts_as": counts_as, "comment": "optional"}
    for id, counts_as in (("approve", "approve"), ("reject", "reject"), (RESPOND, "other"))
]
"""Choices for a call whose flow declares no approval."""
_TOLD, _SHORT = 3, 40
"""Number and length of the arguments in a title. If all are longer, it has the first one."""
_WHY = ("rule", "difference", "found")
"""Keys of an event that can explain a late question."""
_PLAIN: dict[str, Plain] = {
    "bind": {}, "schema": None, "returns": None, "required": False, "edit": False,
}  # fmt: skip


def needs(
    tx: Transition, unit: Unit, opened: Callable[[], dict[About, Opens]]
) -> list[NeededPermission]:
    """Return the permission that a unit needs for its call, if any.

    Args:
        unit: The calling unit.
        opened: Returns what a question about the call includes.

    Raises:
        StepFailure: The arguments do not fit the tool.
        EvaluationError: An expression has no value.
    """
    node = tx.node(tx.act_of(unit))
    if node.approval is None:
        return []
    unit.pop("responded", None)
    about = (unit["id"], CALL)
    kept = answer_about(tx, about)
    if isinstance(kept, dict) and kept["approved"]:
        if kept["version"] == _part(tx, unit, "version"):
            call_counts.count(tx, unit, kept["args"], str(_part(tx, unit, "tool")))
            _look_at_rules(tx, unit, kept["args"], changed=True)
            return []
        forget_question(tx, unit)
    elif kept is not None:
        return [NeededPermission(about, lambda: _ask(tx, unit, {}, {}, {}, {}))]
    args = {} if node.args is None else evaluate(Names(tx, tx.act_of(unit), unit), node.args)
    call_counts.count(tx, unit, args, str(_part(tx, unit, "tool")))
    rule = _look_at_rules(tx, unit, args)
    asked = _asked(tx, unit, args)
    if not _must_ask(asked, rule):
        return []
    _check(tx, node, asked, args)
    if not asked["required"] and _granted(tx, unit, asked, args):
        return []
    why = {"rule": rule.rule} if rule is not None and rule.do == "ask" else {}
    included = opened()
    return [NeededPermission(about, lambda: _ask(tx, unit, asked, args, why, included))]


def _granted(tx: Transition, unit: Unit, asked: dict[str, Plain], args: Plain) -> bool:
    """Return whether a grant covers a call."""
    if "grants" not in tx.state:
        return False
    people = grants.people(asked["fields"])
    kept = grants.use(tx, asked["tool"], asked["version"], args, people)
    if kept is not None:
        keep_answer(tx, (unit["id"], CALL), kept)
    return kept is not None


def answer_by_grant(tx: Transition, wait: Wait) -> Plain:
    """Return a grant's answer to an open question about a call, or None."""
    record = wait["record"]
    only_people = not record.keys().isdisjoint(ONLY_PEOPLE) or (record.get("need") or 1) > 1
    if only_people or not wait["shown"]:
        return None
    [number] = wait["units"]
    args = tx.state["units"][number].get("args")
    args = record["subject"] if args is None else args
    return grants.use(
        tx, record["tool"], record["version"], args, grants.people(record), record.get("source")
    )


def _must_ask(asked: dict[str, Plain], rule: Verdict | None) -> bool:
    """Return whether a call needs an approval.

    Rules override the tool, except its `required`.
    """
    if rule is not None and rule.do == "ask":
        return True
    allowed = rule is not None and not asked["required"]
    return bool(asked.get("when", True) or asked.get("also")) and not allowed


def _look_at_rules(
    tx: Transition, unit: Unit, args: Plain, *, changed: bool = False
) -> Verdict | None:
    """Apply the rules to a call.

    Args:
        unit: The calling unit.
        args: The arguments.
        changed: The call was approved before.

    Raises:
        StepFailure: `Refused`: the rules deny the call.
    """
    node = tx.node(tx.act_of(unit))
    if not node.rules:
        return None
    tool = str(_part(tx, unit, "tool"))
    names = Names(tx, None, extra=call_names(unit, args))
    rule = strictest(node.rules, lambda number: holds(names, number), tool)
    if rule is not None and rule.do == "deny":
        data = {"tool": tool, "rule": rule.rule, "rules_changed": changed}
        message = f"{tool!r} was not called: {rule.rule} refuses it"
        raise StepFailure("Refused", message, data, retryable=False)
    return rule


def _asked(tx: Transition, unit: Unit, args: Plain) -> dict[str, Plain]:
    """Evaluate the approval of a call with its arguments."""
    act = tx.act_of(unit)
    approval = tx.node(act).approval
    assert approval is not None
    asked: dict[str, Plain] = evaluate(Names(tx, act, unit, extra=call_names(unit, args)), approval)
    if made_call(tx, unit).get("asks"):
        asked["also"] = True
    return asked


def _part(tx: Transition, unit: Unit, name: str) -> Plain:
    """Return a part of the approval of a call that does not depend on its arguments."""
    act = tx.act_of(unit)
    approval = tx.node(act).approval
    assert approval is not None
    tag, parts = approval
    return parts[name] if tag == "const" else evaluate(Names(tx, act, unit), parts[name])


def _check(tx: Transition, node: Node, asked: dict[str, Plain], args: dict[str, Plain]) -> None:
    """Reject arguments that the tool does not accept, so that only valid calls need an approval."""
    if asked["schema"] is not None:
        given = {name: value for name, value in args.items() if name not in asked["bind"]}
        fault = tx.graph.validate(asked["schema"], given)
        message = f"arguments of {asked['tool']!r}: {fault}"
        require(fault is None, "ValidationError", message)


def ask_late(tx: Transition, unit: Unit, event: Asked) -> Wait | None:
    """Open a question about a call right before it is made. None: a grant covers it.

    Args:
        unit: The calling unit, with its attempt prepared.
        event: The request.

    Raises:
        StepFailure: The question cannot be asked.
        EvaluationError: An expression has no value.
    """
    node = tx.node(tx.act_of(unit))
    forget_question(tx, unit)
    why = {key: value for key in _WHY if (value := event.get(key)) is not None}
    if node.approval is not None:
        args = given = unit["args"]
        asked = _asked(tx, unit, args)
    else:
        unit["shown"] = True
        args, given = unit.get("args"), event["subject"]
        found: Any = event.get("found") or {}
        # What an environment needs before it opens is no call, so no response can take its place.
        choices = CHOICES[:-1] if "environment" in found else CHOICES
        fields = {"subject": given, "choices": choices, "title": found.get("title")}
        asked = {**_PLAIN, "tool": event["tool"], "version": event["version"], "fields": fields}
    is_new = not ONLY_PEOPLE.isdisjoint(event) or asked["required"]
    if not is_new and _granted(tx, unit, asked, given):
        return None
    return _ask(tx, unit, asked, args, why, {})


def _ask(
    tx: Transition,
    unit: Unit,
    asked: dict[str, Plain],
    args: Plain,
    why: dict[str, Plain],
    opened: dict[About, Opens],
) -> Wait:
    """Open the question about a call.

    Args:
        why: Fields of its record that explain the question, in addition to those of the tool.
        opened: What is approved with the call.
    """
    tool = asked["tool"]
    node = tx.node(tx.act_of(unit))
    wait = new_question(tx, (unit["id"], CALL), tx.address(unit), node.id)
    unit["args"] = args
    record = wait["record"]
    record["tool"], record["version"] = tool, asked["version"]
    shown = masked({**(args or {}), **asked["bind"]})
    about = [tool, asked["version"], args, asked["bind"]]
    record["digest"] = digest([*about, why["found"]] if "found" in why else about)
    record.update(why)
    show_origin(tx, unit, wait)
    if asked["required"]:
        record["required"] = True
    if asked["bind"]:
        record["bound"] = sorted(asked["bind"])
    if asked["returns"] is not None:
        record["returns"] = asked["returns"]
    default = {
        "title": _title(asked, args, why),
        "subject": shown,
        "edit": _editable(asked, args),
    }
    given = {key: value for key, value in asked["fields"].items() if value is not None}
    if asked["schema"] is not None and default["edit"]:
        default["edit_schema"] = asked["schema"]
    if opened:
        _include(wait, opened, default, given)
    try:
        fill_in(tx, wait, {**default, **given}, node.id)
    except StepFailure:
        close_question(tx, wait, "withdrawn")
        raise
    step, required = tx.act_of(unit)["step"], bool(asked["required"])
    tx.commands.append(Consult(wait["id"], unit["id"], step, required))
    notify(tx, wait, "opened")  # a rule or a grant that the engine knows may answer it first
    return wait


def _include(
    wait: Wait, opened: dict[About, Opens], default: dict[str, Plain], given: dict[str, Plain]
) -> None:
    """Add the environments that a call opens to the question about it."""
    import json

    names = [one.name for one in opened.values()]
    wait["opens"] = [list(about) for about in opened]
    wait["record"]["opens"] = names
    noun = "environment" if len(names) == 1 else "environments"
    default["title"] = (
        f"{default['title'][:-1]}, and open the {noun} {', '.join(map(repr, names))}?"
    )
    body = [] if "body" not in given else [str(given["body"])]
    for name, shown in opened.values():  # one line each, so that no value ends the code block
        settings = [f"    {key}: {json.dumps(value)}" for key, value in shown.items()]
        body += [f"It opens the environment {name!r}:", "\n".join(settings)]
    given["body"] = "\n\n".join(body)


def show_origin(tx: Transition, unit: Unit, wait: Wait) -> None:
    """Add the texts that led to a call of an agent to a question about it."""
    about = _about_call(tx, unit)
    if about:
        shown = {name: _beginning(masked(text)) for name, text in about.items() if text}
        wait["record"]["about"] = shown


def _about_call(tx: View, unit: Unit) -> dict[str, str]:
    """Return the context of a call, as given by the task that makes it."""
    act = tx.act_of(unit)
    told = made_call(tx, unit).get("about")
    if not told:
        return {}
    spec = tx.node(tx.act_of(tx.state["units"][tx.scope_of(act)["unit"]])).exchange
    assert spec is not None
    messages: Any = tx.vars_of(tx.frame_of(act))[spec["answers"]][0]
    texts = [_text(messages[part]) if isinstance(part, int) else part or "" for part in told]
    return dict(zip(spec["about"], texts, strict=False))


def _text(message: Any) -> str:
    """Return the text of a message, whose content can consist of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part["text"]) for part in content if part.get("text"))


def made_call(tx: View, unit: Unit) -> Any:
    """Return the call of a task that a unit carries out, or an empty map."""
    act = tx.act_of(unit)
    return act["local"]["call"] if "call" in act else {}


def _beginning(text: Plain) -> str:
    text = str(text)
    return text if len(text) <= LONGEST_ABOUT else f"{text[:LONGEST_ABOUT]} …"


def _title(asked: dict[str, Plain], args: Plain, why: dict[str, Plain]) -> str:
    """Return the title of a question: the tool, and the preview of the call or its arguments."""
    found, shown = why.get("found"), args or asked["fields"].get("subject")
    own = shown if isinstance(shown, dict) else {}
    own = {name: value for name, value in own.items() if name not in asked["bind"]}
    told = [f"{name} {_in_title(value)}" for name, value in telling(masked(own))]
    short = [text for text in told if len(text) <= _SHORT]
    what = f"{found['action']:.200}" if found is not None else ", ".join(short[:_TOLD] or told[:1])
    return f"Call {asked['tool']}: {what}?" if what else f"Call {asked['tool']}?"


def _in_title(value: Plain) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe(tx: Transition, wait: Wait, event: Described) -> None:
    """Add details from the engine to a question about a call."""
    described: dict[str, Any] = {**event}
    for key in ("source", "preview", "note"):
        if key in described:
            wait["record"][key] = described[key]
    show(tx, wait)


def _editable(asked: dict[str, Plain], args: dict[str, Plain]) -> list[str] | None:
    """Return the arguments that approvers may edit.

    Arguments fixed by the flow are never among them.
    """
    editable = asked["edit"]
    if not editable or (asked["fields"].get("need") or 1) > 1:
        return None  # all voters must have seen the same arguments
    known = (
        [*args, *(asked["schema"] or {}).get("properties", ())] if editable is True else editable
    )
    return [name for name in dict.fromkeys(known) if name not in asked["bind"]]


def approved(tx: Transition, wait: Wait, decision: dict[str, Any]) -> dict[str, Plain]:
    """Return the data to store for an approved call: the tool's version and the arguments."""
    [number] = wait["units"]
    record = wait["record"]
    args = edited(tx.state["units"][number]["args"], decision.get("edits") or {})
    kept: dict[str, Plain] = {"version": record["version"], "args": args}
    if decision.get("via") != "rule":
        kept |= {key: decision[key] for key in ("edits", "comment", "images") if decision.get(key)}
    if "granted" in decision:
        kept["granted"] = decision["granted"]
    return kept | {key: record[key] for key in ("source", "found") if key in record}


def arguments(tx: View, unit: Unit, names: Names) -> Plain:
    """Return the arguments of a unit's call: the approved ones, or those that its step declares."""
    node = tx.node(tx.act_of(unit))
    assert node.args is not None
    kept = None if node.approval is None else permission(tx, unit)
    return evaluate(names, node.args) if kept is None else kept["args"]


def permission(tx: View, unit: Unit) -> Plain:
    """Return the stored approval of a unit's call, or None if no question was asked."""
    kept = answer_about(tx, (unit["id"], CALL))
    return kept if isinstance(kept, dict) and kept["approved"] else None


def is_about_call(wait: Wait) -> bool:
    """Return whether a question is about a call."""
    return bool(wait["asks"][1] == CALL)


def is_same(tx: Transition, unit: Unit, wait: Wait) -> bool:
    """Return whether the step of a unit would ask the same question about its call now.

    Raises:
        StepFailure: It would ask nothing because the arguments do not fit.
        EvaluationError: An expression has no value.
    """
    node = tx.node(tx.act_of(unit))
    if node.approval is None:
        return False
    asked = _asked(tx, unit, unit["args"])
    digest_now = digest([asked["tool"], asked["version"], unit["args"], asked["bind"]])
    rule = _look_at_rules(tx, unit, unit["args"])
    return _must_ask(asked, rule) and digest_now == wait["record"]["digest"]


def respond(tx: Transition, unit: Unit, value: Plain) -> None:
    """Use an approver's result in place of the call, which is not made.

    Args:
        unit: In phase `ready`.
        value: The result.
    """
    del unit["asks"]
    call_counts.uncount(tx, unit)
    unit["responded"] = True
    tx.agenda.append(entries.ended(unit["id"], value, "ok"))


def forget_question(tx: Transition, unit: Unit) -> None:
    """Remove the answer about a call, because another one is made or the same one again."""
    unit.pop("shown", None)
    about = (unit["id"], CALL)
    if isinstance(answer_about(tx, about), dict):
        take_back_answer(tx, about)
