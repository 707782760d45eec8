"""Permissions: questions that must be answered before an attempt begins. See docs/language.md.

    attempt ─► may it be called? ─► may its environments be opened? ─► budget, lock, action
                  │ not answered: ask, or wait for the answer to the same question      │
                  └─► parked ─► approved: the attempt begins                            │
                       ▲        otherwise it fails: `Rejected`, `Refused`, `Expired`    │
                       └─ the event `asked`: the engine was about to run it ◄───────────┘

The topics are in `call_questions`, and those of environments below. A rejection is valid as long
as its owner exists. After an expiry, the next unit with the same need asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from flowengine.kernel.commands import Run
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import Asked
from flowengine.kernel.expressions.names import Names, evaluate, regions
from flowengine.kernel.graph.compiled import EvaluationError, Plain, SecretText
from flowengine.kernel.limits import call_counts, locks
from flowengine.kernel.limits.locks import park, unpark
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import RESPOND, View
from flowengine.kernel.waiting import call_questions, grants, input_questions
from flowengine.kernel.waiting.approvals import answer, fill_in, notify
from flowengine.kernel.waiting.call_questions import (
    About,
    NeededPermission,
    Opens,
    about_of,
    answer_about,
    close_question,
    keep_answer,
    leave_questions,
    new_question,
)
from flowengine.kernel.waiting.waits import start_hits_anew

LONGEST = 200
"""Maximum length of a configuration text in a question."""
MOST = 20
"""Maximum number of entries of a list or map in a question."""
_SHARED = frozenset({"when", "required", "title", "body", "batch"})
"""Keys of an environment's approval that leave the approvers to the call which opens it."""
_SHOWN = ("provider", "policy", "limits", "needs", "args", "config")


def needs(tx: View, unit: Unit) -> Iterator[NeededPermission]:
    """Yield the permissions that a unit needs for its environments.

    Raises:
        StepFailure: A use of an environment is not valid.
        EvaluationError: An expression has no value.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    if not node.asks:  # an upgrade can remove the approval
        return
    assert node.input is not None
    names = Names(tx, act, unit)
    if node.args is not None:
        names.extra = {"args": call_questions.arguments(tx, unit, names)}
    pending = list(evaluate(names, node.input[1]["environments"]).values())
    while pending:
        use = pending.pop(0)
        pending.extend(use["spec"].get("mounts", {}).values())
        if "approval" in use and use["approval"].get("when", True):
            about = _about(tx, unit, use)
            # Only a transition asks.
            yield NeededPermission(about, partial(_ask, tx, unit, use, about), use)  # type: ignore[arg-type]


def waiting_run(view: View, unit: Unit) -> Run | None:
    """Return the attempt that a waiting call would make now, with its environments only.

    Args:
        view: The execution.
        unit: The unit of a step with environments.

    Returns:
        The attempt. None: one of its environments may only be opened after an approval.

    Raises:
        StepFailure: A use of an environment is not valid.
        EvaluationError: An expression has no value.
    """
    act = view.act_of(unit)
    node = view.node(act)
    assert node.input is not None
    answers = [answer_about(view, need.about) for need in needs(view, unit)]
    if not all(isinstance(answer, dict) and answer["approved"] for answer in answers):
        return None
    names = Names(view, act, unit)
    if node.args is not None:
        names.extra = {"args": call_questions.arguments(view, unit, names)}
    given: Any = evaluate(names, node.input)
    environments = without_approvals(given["environments"])
    address, around = view.address(unit), regions(view, unit)
    return Run(
        unit["id"], unit["attempt"], act["step"], address, None, None, None, around, environments
    )


def _ask(tx: Transition, unit: Unit, use: dict[str, Plain], about: About) -> Wait:
    """Open the question about a use."""
    name = use["spec"]["resource_key"]
    wait = new_question(tx, about, tx.address(unit), tx.node(tx.act_of(unit)).id)
    wait["record"]["environment"] = name
    asked = {"title": f"Open the environment {name!r}?", "subject": _shown(use)}
    given = {key: value for key, value in use["approval"].items() if value is not None}
    try:
        fill_in(tx, wait, {**asked, **given}, name)
    except StepFailure:
        close_question(tx, wait, "withdrawn")
        raise
    notify(tx, wait, "opened")
    return wait


def _shown(use: dict[str, Plain]) -> dict[str, Plain]:
    """Return what an approver sees of a use."""
    spec = use["spec"]
    shown = {"kind": spec["kind"], "scope": use["scope"]}
    return shown | {key: _summary(spec[key]) for key in _SHOWN if spec.get(key)}


def _about(tx: View, unit: Unit, use: dict[str, Plain]) -> About:
    """Return the topic of a question about a use: the owner of the environment, and its digest."""
    digest = _digest([use["scope"], use["spec"]])
    if use["scope"] == "step":
        return unit["id"], digest
    if use["scope"] != "region":
        return 0, digest
    around = regions(tx, unit) or (0,)
    asked = [owner for owner in around if answer_about(tx, (owner, digest)) is not None]
    return (asked or around)[0], digest


def _digest(value: Plain) -> str:
    import hashlib
    import json

    def as_plain(secret: Any) -> Plain:
        assert isinstance(secret, SecretText)
        return {"text that names secrets": secret.parts}

    text = json.dumps(value, sort_keys=True, default=as_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(value: Plain) -> Plain:
    """Return a setting for display, without secrets and with limited size."""
    if isinstance(value, SecretText):
        value = "".join([part if isinstance(part, str) else "***" for part in value.parts])
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    if isinstance(value, dict):
        shown = {key: _summary(value[key]) for key in list(value)[:MOST]}
        return shown if len(value) <= MOST else {**shown, "…": f"{len(value) - MOST} more"}
    if isinstance(value, list):
        items = [_summary(part) for part in value[:MOST]]
        return items if len(value) <= MOST else [*items, f"… {len(value) - MOST} more"]
    return value


def without_approvals(environments: dict[str, Plain]) -> dict[str, Plain]:
    """Return the environments of an attempt that may begin, as the engine opens them."""
    return {name: _without_approval(use) for name, use in environments.items()}


def _without_approval(use: dict[str, Plain]) -> dict[str, Plain]:
    spec = use["spec"]
    if "mounts" in spec:
        mounts = {inside: _without_approval(mount) for inside, mount in spec["mounts"].items()}
        spec = {**spec, "mounts": mounts}
    return {"scope": use["scope"], "spec": spec}


def _included(tx: Transition, unit: Unit) -> dict[About, Opens]:
    """Return the environments that a question about a call of a unit includes.

    Those that declare their own approvers, or that another question is about, are asked about once
    the call is approved.

    Raises:
        StepFailure: One of them was rejected before.
    """
    needed = list(needs(tx, unit))
    _raise_rejections(tx, needed)
    return {
        need.about: Opens(need.use["spec"]["resource_key"], _shown(need.use))
        for need in needed
        if not _has_own(need.use["approval"]) and answer_about(tx, need.about) is None
    }


def may_begin(tx: Transition, unit: Unit) -> bool:
    """Return whether the attempt of a unit may begin. If not, it is parked or has failed.

    Args:
        unit: In phase `ready` or `pause`.
    """
    try:
        calls = call_questions.needs(tx, unit, partial(_included, tx, unit))
        # A call that is not made causes no questions about its environments.
        open_ = _open_questions(tx, calls) or _open_questions(tx, needs(tx, unit))
    except (StepFailure, EvaluationError) as failure:
        _fail(tx, unit, failure)
        return False
    if open_:
        _park(tx, unit, open_)
        return False
    unit.pop("asks", None)
    return True


def _open_questions(tx: Transition, needed: Iterable[NeededPermission]) -> list[int]:
    """Return the open questions about these needs. New questions are opened where necessary.

    Raises:
        StepFailure: A need was rejected before.
    """
    needs = list(needed)
    _raise_rejections(tx, needs)
    permissions = []
    for need in needs:
        given = answer_about(tx, need.about)  # two needs may be the same
        if not isinstance(given, dict):
            permissions.append(given if given is not None else need.ask()["id"])
    return permissions


def _has_own(approval: dict[str, Plain]) -> bool:
    """Return whether an approval declares more than that an approver decides: who, how, or when."""
    own = approval.keys() - _SHARED
    return bool(own - {"choices"}) or approval["choices"] != call_questions.CHOICES[:-1]


def _raise_rejections(tx: Transition, needed: Iterable[NeededPermission]) -> None:
    for need in needed:
        before = answer_about(tx, need.about)
        if isinstance(before, dict) and not before["approved"]:
            raise StepFailure(before["type"], before["message"], before["output"])


def ask_late(tx: Transition, unit: Unit, event: Asked) -> None:
    """Ask about a call whose attempt was about to begin. That attempt is not counted.

    Args:
        unit: In phase `ready`.
        event: The request.
    """
    if "timer" in unit:
        tx.clear_timer(unit.pop("timer"))
    lock = tx.node(tx.act_of(unit)).lock
    if lock is not None and not lock.get("ordered"):
        locks.leave_lock(tx, unit)  # do not block others during a human decision
    unit["tries"] -= 1
    try:
        if "input" in event:
            wait: Wait | None = input_questions.ask(tx, unit, event)
        else:
            wait = call_questions.ask_late(tx, unit, event)
    except (StepFailure, EvaluationError) as failure:
        _fail(tx, unit, failure)
        return
    if wait is None:
        tx.agenda.append(entries.attempt(unit["id"]))
    else:
        _park(tx, unit, [wait["id"]])


def _park(tx: Transition, unit: Unit, open_: list[int]) -> None:
    unit["asks"] = list(dict.fromkeys(open_))
    move(unit, "asked")
    for number in unit["asks"]:
        tx.state["waits"][number]["units"][unit["id"]] = True
    tx.note(tx.act_of(unit), "waiting", unit=unit)
    park(tx, unit)


def _fail(tx: Transition, unit: Unit, failure: StepFailure | EvaluationError) -> None:
    """Fail the attempt before its action has started."""
    call_counts.uncount(tx, unit)
    unit.pop("asks", None)
    unit["attempt"] += 1
    unit["tries"] += 1
    tx.agenda.append(entries.attempt_failed(unit["id"], failure))


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Close a question. The waiting units continue, or fail."""
    if input_questions.is_for_input(wait):
        input_questions.settle(tx, wait, how, decision)
        return
    output = answer(tx.state["execution"]["id"], wait["record"], decision, tx.now)
    units = [tx.state["units"][number] for number in wait["units"]]
    for unit in units:
        start_hits_anew(tx, wait, unit)
        unit["asks"].remove(wait["id"])
    responds = output["choice"] == RESPOND
    failure = None if output["approved"] or responds else _refusal(wait, output, decision)
    if output["choice"] is not None and not responds:
        keep_answer(tx, about_of(wait), _kept(tx, wait, output, decision, failure))
    close_question(tx, wait, how, output)
    for unit in units:
        if failure is not None:
            leave_questions(tx, unit)
        elif unit["asks"]:
            continue
        move(unit, "ready")
        unpark(tx, unit)
        if failure is not None:
            _fail(tx, unit, failure)
        elif responds:
            call_questions.respond(tx, unit, decision.get("value"))
        else:
            tx.agenda.append(entries.attempt(unit["id"]))
    if output["approved"]:
        for owner, digest in wait.get("opens", ()) if how == "decided" else ():
            _approve_opening(tx, (owner, digest), output)
        if decision.get("grant") is not None:
            _answer_by_grants(tx)


def _answer_by_grants(tx: Transition) -> None:
    """Answer open questions about calls that a new grant covers."""
    for wait in list(tx.state["waits"].values()):
        if wait["owner"] != "permission" or not call_questions.is_about_call(wait):
            continue
        kept = call_questions.answer_by_grant(tx, wait)
        if kept is None:
            continue
        _approve(tx, wait, kept, "grant")


def _approve_opening(tx: Transition, about: About, output: dict[str, Any]) -> None:
    """Approve an environment with the call that opens it, and thereby for other calls.

    An expiry that approves the call does not: the environment is asked about next.
    """
    known = answer_about(tx, about)
    kept = {"approved": True, "by": output["by"], "at": output["at"]}
    if known is None:
        keep_answer(tx, about, kept)
    elif not isinstance(known, dict):
        _approve(tx, tx.state["waits"][known], kept, output["via"])


def _approve(tx: Transition, wait: Wait, kept: dict[str, Any], via: str) -> None:
    """Close an open question by an approval that was given for another one."""
    record = wait["record"]
    choice = next(option["id"] for option in record["choices"] if option["counts_as"] == "approve")
    decision = {"choice": choice, "by": kept["by"], "via": via}
    units = [tx.state["units"][number] for number in wait["units"]]
    for unit in units:
        start_hits_anew(tx, wait, unit)
        unit["asks"].remove(wait["id"])
    keep_answer(tx, about_of(wait), kept)
    output = answer(tx.state["execution"]["id"], record, decision, tx.now)
    close_question(tx, wait, "decided", output)
    for unit in units:
        if unit["asks"]:
            continue
        _go_on(tx, unit)


def _kept(
    tx: Transition,
    wait: Wait,
    output: dict[str, Any],
    decision: dict[str, Any],
    failure: StepFailure | None,
) -> Plain:
    """Return the answer to store for units with the same need later."""
    kept: Plain = {"approved": output["approved"], "by": output["by"], "at": output["at"]}
    if failure is not None:
        return {**kept, "type": failure.type, "message": failure.message, "output": output}
    if call_questions.is_about_call(wait):
        approved = call_questions.approved(tx, wait, decision)
        args = approved["args"] if approved["args"] is not None else wait["record"]["subject"]
        grants.give(tx, wait, decision, args)
        return {**kept, **approved}
    return kept


def _refusal(wait: Wait, output: dict[str, Any], decision: dict[str, Any]) -> StepFailure:
    record = wait["record"]
    if call_questions.is_about_call(wait):
        what = f"{record['tool']!r} was not called"
    else:
        what = f"the environment {record['environment']!r} was not opened"
    if output["choice"] is None:
        return StepFailure("Expired", f"{what}: it expired without a decision", output)
    if decision.get("images"):
        output = {**output, "images": decision["images"]}
    comment = f": {output['comment']}" if output["comment"] else ""
    refused = decision.get("via") == "rule" and decision.get("value") == {"refused": True}
    type, how = ("Refused", "refused") if refused else ("Rejected", "rejected")
    return StepFailure(type, f"{what}: {how} by {output['by']}{comment}", output)


def ask_anew(tx: Transition, unit: Unit) -> None:
    """Withdraw a unit from its questions. Other units that wait for them ask again.

    Args:
        unit: In phase `asked`. The caller decides how it continues.
    """
    waits = [tx.state["waits"][number] for number in unit["asks"]]
    others = dict.fromkeys(number for wait in waits for number in wait["units"])
    leave_questions(tx, unit)
    move(unit, "ready")
    for number in others:
        if number != unit["id"]:
            _begin_again(tx, tx.state["units"][number])


def check_again(tx: Transition, unit: Unit) -> None:
    """Ask the questions of a unit again if its step has other questions now.

    Args:
        tx: Of an execution that continues under another form of its flow.
        unit: In phase `asked`.
    """
    try:
        if _asks_the_same(tx, unit):
            return
    except (StepFailure, EvaluationError):
        pass  # the attempt fails for the same reason
    _begin_again(tx, unit)


def _asks_the_same(tx: Transition, unit: Unit) -> bool:
    wait = tx.state["waits"][unit["asks"][0]]
    if call_questions.is_about_call(wait):
        return call_questions.is_same(tx, unit, wait)
    if input_questions.is_for_input(wait):
        return True  # the server has asked in the call that was made, and the answer is for it
    needed = [answer_about(tx, need.about) for need in needs(tx, unit)]
    return bool(needed) and all(question in unit["asks"] for question in needed)


def _begin_again(tx: Transition, unit: Unit) -> None:
    unit.pop("shown", None)
    leave_questions(tx, unit)
    unit["asks"] = []
    _go_on(tx, unit)


def _go_on(tx: Transition, unit: Unit) -> None:
    move(unit, "ready")
    unpark(tx, unit)
    tx.agenda.append(entries.attempt(unit["id"]))
