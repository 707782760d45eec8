"""Asking people before an attempt begins: may its environments be opened? See docs/language.md.

    attempt ─► all that it needs is answered? ─ yes ─► lock, action
                   │ no: the first who needs it asks, others wait for the same answer
                   └─► parked ─► approved: the attempt begins
                                 else it has failed: `Rejected`, `Expired`

A question is about one spec for one owner, as far as the environment is shared: the step or map
item, the region, the execution. What was rejected stays so; after expiry the next one asks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Consult
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, regions
from flowengine.kernel.graph.compiled import EvaluationError, Plain, SecretText
from flowengine.kernel.limits.suspension import park, unpark
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.waiting import answers
from flowengine.kernel.waiting.answers import About
from flowengine.kernel.waiting.approvals import answer, expired, fill_in, voted
from flowengine.kernel.waiting.shared_questions import leave_questions, new_question
from flowengine.kernel.waiting.waits import close_wait, start_hits_anew

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided
    from flowengine.kernel.state.records import Unit, Wait

LONGEST = 200
"""Characters of a text of its configuration that a question shows."""
MOST = 20
"""Entries of a list or map that it shows."""
_SHOWN = ("provider", "policy", "limits", "requires", "args", "config")


def may_begin(m: Machine, unit: Unit) -> bool:
    """Return whether the attempt of a unit may begin; if not, it is parked or has failed.

    Args:
        unit: In phase `ready` or `pause`.
    """
    try:
        uses = list(_asked_about(m, unit))
        failure = next((one for _, about in uses if (one := _refused(m, about))), None)
        if failure is not None:
            _fail(m, unit, failure)
            return False
        open_ = [number for use, about in uses if (number := _question(m, unit, use, about))]
    except (StepFailure, EvaluationError) as failure:
        _fail(m, unit, failure)
        return False
    if open_:
        _park(m, unit, open_)
    else:
        unit.pop("asks", None)
    return not open_


def _refused(m: Machine, about: About) -> StepFailure | None:
    """Return the failure of whoever needs what was rejected before."""
    before = answers.found(m, about)
    if not isinstance(before, dict) or before["approved"]:
        return None
    return StepFailure(before["type"], before["message"], before["output"])


def _park(m: Machine, unit: Unit, open_: list[int]) -> None:
    unit["asks"] = list(dict.fromkeys(open_))
    move(unit, "asked")
    for number in unit["asks"]:
        m.state["waits"][number]["units"][unit["id"]] = True
    m.note(m.act_of(unit), "waiting", unit=unit)
    park(m, unit)


def _fail(m: Machine, unit: Unit, failure: StepFailure | EvaluationError) -> None:
    """Fail the attempt before its action has started."""
    unit.pop("asks", None)
    unit["attempt"] += 1
    unit["tries"] += 1
    m.agenda.append(entries.attempt_failed(unit["id"], failure))


def _question(m: Machine, unit: Unit, use: dict[str, Plain], about: About) -> int:
    """Return the question about a use that is open, asked now if nobody has; 0: it is answered."""
    found = answers.found(m, about)
    if found is not None:
        return found if isinstance(found, int) else 0
    spec, name = use["spec"], use["spec"]["resource_key"]
    wait = new_question(m, about, m.address(unit), m.node(m.act_of(unit)).id)
    subject = {"kind": spec["kind"], "scope": use["scope"]}
    subject |= {key: _summary(spec[key]) for key in _SHOWN if spec.get(key)}
    wait["record"]["environment"] = name
    asked = {"title": f"Open the environment {name!r}?", "subject": subject}
    given = {key: value for key, value in use["approval"].items() if value is not None}
    try:
        fill_in(m, wait, {**asked, **given}, name)
    except StepFailure:
        close_wait(m, wait, "withdrawn")
        raise
    region = about[0] if use["scope"] == "region" else 0
    wanted = {"scope": use["scope"], "spec": spec}
    step, reason = m.act_of(unit)["step"], given.get("body")
    required = bool(given.get("required"))
    m.commands.append(Consult(wait["id"], unit["id"], step, region, wanted, reason, required))
    return wait["id"]


def _asked_about(m: Machine, unit: Unit) -> Iterator[tuple[dict[str, Plain], About]]:
    """Yield the environments that a unit needs and people are asked about."""
    act = m.act_of(unit)
    node = m.node(act)
    if not node.asks:  # any more: the flow is another one
        return
    assert node.input is not None
    names = Names(m, act, unit)
    if node.args is not None:
        names.extra = {"args": evaluate(names, node.args)}
    pending = list(evaluate(names, node.input[1]["environments"]).values())
    while pending:
        use = pending.pop(0)
        pending.extend(use["spec"].get("mounts", {}).values())
        if "approval" in use and use["approval"].get("when", True):
            yield use, _about(m, unit, use)


def _about(m: Machine, unit: Unit, use: dict[str, Plain]) -> About:
    """Return what a question about a use is about: for whom it is opened, and what."""
    digest = _digest([use["scope"], use["spec"]])
    if use["scope"] == "step":
        return unit["id"], digest
    if use["scope"] != "region":
        return 0, digest
    around = regions(m, unit) or (0,)
    asked = [owner for owner in around if answers.found(m, (owner, digest)) is not None]
    return (asked or around)[0], digest


def _digest(value: Plain) -> str:
    import hashlib
    import json

    def told(secret: Any) -> Plain:
        assert isinstance(secret, SecretText)
        return {"text that names secrets": secret.parts}

    text = json.dumps(value, sort_keys=True, default=told)
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(value: Plain) -> Plain:
    """Return a setting as a question shows it: no secrets, and not more than can be read."""
    if isinstance(value, SecretText):
        value = "".join([part if isinstance(part, str) else "***" for part in value.parts])
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    if isinstance(value, dict):
        shown = {key: _summary(value[key]) for key in list(value)[:MOST]}
        return shown if len(value) <= MOST else {**shown, "…": f"{len(value) - MOST} more"}
    if isinstance(value, list):
        items = [_summary(one) for one in value[:MOST]]
        return items if len(value) <= MOST else [*items, f"… {len(value) - MOST} more"]
    return value


def granted(m: Machine, unit: Unit, environments: dict[str, Plain]) -> dict[str, Plain]:
    """Return what a unit is to have, with what was answered about it in place of the question.

    Args:
        unit: One whose attempt may begin.
        environments: What its step says, evaluated.
    """
    return {name: _granted(m, unit, use) for name, use in environments.items()}


def _granted(m: Machine, unit: Unit, use: dict[str, Plain]) -> dict[str, Plain]:
    given = None
    if "approval" in use and use["approval"].get("when", True):
        given = answers.found(m, _about(m, unit, use))
    spec = use["spec"]
    if "mounts" in spec:
        mounts = {inside: _granted(m, unit, one) for inside, one in spec["mounts"].items()}
        spec = {**spec, "mounts": mounts}
    if given is None:
        return {"scope": use["scope"], "spec": spec}
    approved = {key: given[key] for key in ("by", "policy") if key in given}
    return {"scope": use["scope"], "spec": spec, "approved": approved}


def decide(m: Machine, wait: Wait, event: Decided) -> None:
    """Count a decision; the units that wait for it go on, or fail, if that settles the question.

    Args:
        wait: An open question.
        event: The decision, already found to be allowed and well-formed.
    """
    decision = voted(m, wait, event)
    if decision is not None:
        _close(m, wait, "decided", decision)


def expire(m: Machine, wait: Wait) -> None:
    """Fail the units that wait for a question because nobody has decided in time."""
    _close(m, wait, "expired", expired(wait))


def _close(m: Machine, wait: Wait, how: str, decision: dict[str, Plain]) -> None:
    output = answer(m.state["execution"]["id"], wait["record"], decision, m.now)
    said = decision["value"] if isinstance(decision.get("value"), dict) else {}  # by a policy
    units = [m.state["units"][one] for one in wait["units"]]
    for unit in units:
        start_hits_anew(m, wait, unit)
        unit["asks"].remove(wait["id"])
    failure = None if output["approved"] else _refusal(wait, output, said)
    if output["choice"] is not None:
        answers.put(m, _thing(wait), _kept(output, said, failure))
    close_wait(m, wait, how, output)
    for unit in units:
        if failure is not None:
            leave_questions(m, unit)
        elif unit["asks"]:
            continue
        move(unit, "ready")
        unpark(m, unit)
        if failure is not None:
            _fail(m, unit, failure)
        else:
            m.agenda.append(entries.attempt(unit["id"]))


def _thing(wait: Wait) -> About:
    owner, digest = wait["asks"]
    return owner, digest


def _kept(output: dict[str, Any], said: dict[str, Any], failure: StepFailure | None) -> Plain:
    """Return what is kept of an answer, for those who need the same thing later."""
    kept: Plain = {"approved": output["approved"], "by": output["by"], "at": output["at"]}
    if failure is not None:
        kept |= {"type": failure.type, "message": failure.message, "output": output}
    elif "policy" in said:
        kept["policy"] = said["policy"]
    return kept


def _refusal(wait: Wait, output: dict[str, Any], policy: dict[str, Any]) -> StepFailure:
    name = wait["record"]["environment"]
    if output["choice"] is None:
        message = f"the environment {name!r} was not opened: nobody decided in time"
        return StepFailure("Expired", message, output)
    said = f": {output['comment']}" if output["comment"] else ""
    type, what = ("Refused", "refused") if policy.get("refused") else ("Rejected", "rejected")
    message = f"the environment {name!r} was not opened: {what} by {output['by']}{said}"
    return StepFailure(type, message, output)


def ask_anew(m: Machine, unit: Unit) -> None:
    """Withdraw what a unit waits for; others who wait for it ask anew, as it does.

    Args:
        unit: In phase `asked`; what follows for itself is left to the caller.
    """
    waits = [m.state["waits"][number] for number in unit["asks"]]
    others = dict.fromkeys(number for wait in waits for number in wait["units"])
    leave_questions(m, unit)
    move(unit, "ready")
    for number in others:
        if number != unit["id"]:
            _begin_again(m, m.state["units"][number])


def look_again(m: Machine, unit: Unit) -> None:
    """Ask anew what a unit waits for, if its step asks otherwise now.

    Args:
        m: Of an execution that goes on under another form of its flow.
        unit: In phase `asked`.
    """
    try:
        uses = [about for _, about in _asked_about(m, unit)]
        if uses and all(answers.found(m, about) in unit["asks"] for about in uses):
            return
    except (StepFailure, EvaluationError):
        pass  # the attempt says so
    _begin_again(m, unit)


def _begin_again(m: Machine, unit: Unit) -> None:
    leave_questions(m, unit)
    unit["asks"] = []
    move(unit, "ready")
    unpark(m, unit)
    m.agenda.append(entries.attempt(unit["id"]))
