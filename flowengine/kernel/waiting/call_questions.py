"""Asking people before a call is made: of which tool, with which arguments.

The question belongs to the unit that calls, and is about one call: one tool in one version of its
declaration, and one set of arguments. These are evaluated when it is asked, and it is they that
run once they are approved, with the edits of whoever approved, whatever becomes of the state
meanwhile. So a call runs what people have seen. The approval covers the retries of the call; the
next round of a loop, and an operator's retry, ask anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Consult
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.graph.rules import Verdict, strictest
from flowengine.kernel.graph.values import digest, masked
from flowengine.kernel.limits import call_counts
from flowengine.kernel.notation.grants import ONLY_PEOPLE
from flowengine.kernel.state import entries
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.view import RESPOND, call_names, edited
from flowengine.kernel.waiting import grants
from flowengine.kernel.waiting.approvals import fill_in
from flowengine.kernel.waiting.shared_questions import (
    Need,
    answer_about,
    close_question,
    keep_answer,
    new_question,
    take_back_answer,
)
from flowengine.kernel.waiting.waits import show

if TYPE_CHECKING:
    from flowengine.kernel.events import Asked, Described
    from flowengine.kernel.state.records import Unit, Wait

CALL = "call"
"""Stands where other questions have the digest of what they are about: a unit makes one call."""
LONGEST_ABOUT = 4000
"""Characters of each text about what led to a call that its question keeps."""
CHOICES = [
    {"id": id, "label": id.capitalize(), "counts_as": counts_as, "comment": "optional"}
    for id, counts_as in (("approve", "approve"), ("reject", "reject"), (RESPOND, "other"))
]
"""What can be answered about a call of which its flow says nothing."""
_WHY = ("rule", "difference", "found")
"""What an event may say about why somebody is asked late."""
_PLAIN: dict[str, Plain] = {
    "bind": {}, "schema": None, "returns": None, "required": False, "edit": False,
}  # fmt: skip


def needs(tx: Transition, unit: Unit) -> list[Need]:
    """Return the permission that a unit needs for its call; none, if nobody has to be asked.

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
        return [Need(about, lambda: _ask(tx, unit, {}, {}, {}))]
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
    return [Need(about, lambda: _ask(tx, unit, asked, args, why))]


def _granted(tx: Transition, unit: Unit, asked: dict[str, Plain], args: Plain) -> bool:
    """Return whether a grant answers the question about a call."""
    if "grants" not in tx.state:
        return False
    people = grants.people(asked["fields"])
    kept = grants.use(tx, asked["tool"], asked["version"], args, people)
    if kept is not None:
        keep_answer(tx, (unit["id"], CALL), kept)
    return kept is not None


def answer_by_grant(tx: Transition, wait: Wait) -> Plain:
    """Return what a grant answers to an open question about a call; None: nothing."""
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
    """Return whether people are asked: a rule decides, else the tool; nothing allows `required`."""
    if rule is not None and rule.do == "ask":
        return True
    allowed = rule is not None and not asked["required"]
    return bool(asked.get("when", True)) and not allowed


def _look_at_rules(
    tx: Transition, unit: Unit, args: Plain, *, changed: bool = False
) -> Verdict | None:
    """Return what the rules say about a call.

    Args:
        unit: It calls.
        args: The arguments.
        changed: It was approved before.

    Raises:
        StepFailure: `Refused`: they deny it.
    """
    node = tx.node(tx.act_of(unit))
    if not node.policies:
        return None
    tool = str(_part(tx, unit, "tool"))
    names = Names(tx, None, extra=call_names(unit, args))
    rule = strictest(node.policies, lambda number: holds(names, number), tool)
    if rule is not None and rule.do == "deny":
        data = {"tool": tool, "rule": rule.rule, "policy_changed": changed}
        message = f"{tool!r} was not called: {rule.rule} refuses it"
        raise StepFailure("Refused", message, data, retryable=False)
    return rule


def _asked(tx: Transition, unit: Unit, args: Plain) -> dict[str, Plain]:
    """Return what people are asked about a call that has an approval, by its arguments."""
    act = tx.act_of(unit)
    approval = tx.node(act).approval
    assert approval is not None
    asked: dict[str, Plain] = evaluate(Names(tx, act, unit, extra=call_names(unit, args)), approval)
    return asked


def _part(tx: Transition, unit: Unit, name: str) -> Plain:
    """Return a part of what is asked about a call that does not depend on its arguments."""
    act = tx.act_of(unit)
    approval = tx.node(act).approval
    assert approval is not None
    tag, parts = approval
    return parts[name] if tag == "const" else evaluate(Names(tx, act, unit), parts[name])


def _check(tx: Transition, node: Node, asked: dict[str, Plain], args: dict[str, Plain]) -> None:
    """Refuse what the tool does not take: people are asked only about what can run."""
    if asked["schema"] is not None:
        given = {name: value for name, value in args.items() if name not in asked["bind"]}
        fault = tx.graph.validate(asked["schema"], given)
        message = f"arguments of {asked['tool']!r}: {fault}"
        require(fault is None, "ValidationError", message)


def ask_late(tx: Transition, unit: Unit, event: Asked) -> Wait | None:
    """Open a question about a call that was about to be made; None: a grant answers it.

    Args:
        unit: With all that its attempt was to be given.
        event: What is asked.

    Raises:
        StepFailure: Nobody can be asked.
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
        fields = {"subject": given, "choices": CHOICES}
        asked = {**_PLAIN, "tool": event["tool"], "version": event["version"], "fields": fields}
    is_new = not ONLY_PEOPLE.isdisjoint(event) or asked["required"]
    if not is_new and _granted(tx, unit, asked, given):
        return None
    return _ask(tx, unit, asked, args, why)


def _ask(
    tx: Transition, unit: Unit, asked: dict[str, Plain], args: Plain, why: dict[str, Plain]
) -> Wait:
    """Open the question about a call.

    Args:
        why: Parts of its record that say why it is asked, besides what the tool says.
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
    if node.about is not None:
        about = evaluate(Names(tx, tx.act_of(unit), unit), node.about)
        record["about"] = {name: _beginning(masked(text)) for name, text in about.items() if text}
    if asked["required"]:
        record["required"] = True
    if asked["bind"]:
        record["bound"] = sorted(asked["bind"])
    if asked["returns"] is not None:
        record["returns"] = asked["returns"]
    default = {"title": _title(tool, why), "subject": shown, "edit": _editable(asked, args)}
    given = {key: value for key, value in asked["fields"].items() if value is not None}
    if asked["schema"] is not None and default["edit"]:
        default["edit_schema"] = asked["schema"]
    try:
        fill_in(tx, wait, {**default, **given}, node.id)
    except StepFailure:
        close_question(tx, wait, "withdrawn")
        raise
    step, required = tx.act_of(unit)["step"], bool(asked["required"])
    tx.commands.append(Consult(wait["id"], unit["id"], step, 0, None, given.get("body"), required))
    return wait


def _beginning(text: Plain) -> str:
    text = str(text)
    return text if len(text) <= LONGEST_ABOUT else f"{text[:LONGEST_ABOUT]} …"


def _title(tool: str, why: dict[str, Plain]) -> str:
    """Return what is asked, in a line."""
    found: Any = why.get("found")
    return f"Call {tool!r}?" if found is None else f"Call {tool!r}: {found['action']:.200}?"


def describe(tx: Transition, wait: Wait, event: Described) -> None:
    """Add to a question what the engine knows of the call."""
    described: dict[str, Any] = {**event}
    for key in ("source", "preview", "note"):
        if key in described:
            wait["record"][key] = described[key]
    show(tx, wait)


def _editable(asked: dict[str, Plain], args: dict[str, Plain]) -> list[str] | None:
    """Return the arguments that whoever approves may change: never those that the flow fixes."""
    editable = asked["edit"]
    if not editable or (asked["fields"].get("need") or 1) > 1:
        return None  # of several voters, all have to have seen the same
    known = (
        [*args, *(asked["schema"] or {}).get("properties", ())] if editable is True else editable
    )
    return [name for name in dict.fromkeys(known) if name not in asked["bind"]]


def approved(tx: Transition, wait: Wait, decision: dict[str, Any]) -> dict[str, Plain]:
    """Return what is kept of a yes to a call: the version of the tool, and what runs."""
    [number] = wait["units"]
    record = wait["record"]
    args = edited(tx.state["units"][number]["args"], decision.get("edits") or {})
    kept: dict[str, Plain] = {"version": record["version"], "args": args}
    if decision.get("via") != "policy":
        kept |= {key: decision[key] for key in ("edits", "comment", "images") if decision.get(key)}
    if "granted" in decision:
        kept["granted"] = decision["granted"]
    return kept | {key: record[key] for key in ("source", "found") if key in record}


def arguments(tx: Transition, unit: Unit, names: Names) -> Plain:
    """Return what a unit calls with: what was approved, or what its step says."""
    node = tx.node(tx.act_of(unit))
    assert node.args is not None
    if node.approval is not None:
        kept = answer_about(tx, (unit["id"], CALL))
        if isinstance(kept, dict) and kept["approved"]:
            return kept["args"]
    return evaluate(names, node.args)


def permission(tx: Transition, unit: Unit) -> Plain:
    """Return what is kept of the yes to the call of a unit; None: nobody was asked."""
    kept = answer_about(tx, (unit["id"], CALL))
    return kept if isinstance(kept, dict) and kept["approved"] else None


def is_about_call(wait: Wait) -> bool:
    """Return whether a question is about a call."""
    return bool(wait["asks"][1] == CALL)


def is_same(tx: Transition, unit: Unit, wait: Wait) -> bool:
    """Return whether the step of a unit would ask the same about its call now.

    Raises:
        StepFailure: It asks nothing: the arguments do not fit.
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
    """Take a result that somebody gives in place of the call, which is not made.

    Args:
        unit: In phase `ready`.
        value: The result.
    """
    del unit["asks"]
    call_counts.uncount(tx, unit)
    unit["responded"] = True
    tx.agenda.append(entries.ended(unit["id"], value, "ok"))


def forget_question(tx: Transition, unit: Unit) -> None:
    """Forget what was answered about a call: another one is made, or the same one again."""
    unit.pop("shown", None)
    about = (unit["id"], CALL)
    if isinstance(answer_about(tx, about), dict):
        take_back_answer(tx, about)
