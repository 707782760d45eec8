"""Approval of environments before they are opened: the topic of a question, and its fields.

A question is about one spec for one owner: the step or map item, the region, or the execution,
depending on how the environment is shared. `permissions` has the waiting units and the effects of
an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Consult
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, regions
from flowengine.kernel.graph.compiled import Plain, SecretText
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import call_questions
from flowengine.kernel.waiting.approvals import fill_in, notify
from flowengine.kernel.waiting.shared_questions import (
    About,
    NeededPermission,
    answer_about,
    close_question,
    new_question,
)

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Unit, Wait

LONGEST = 200
"""Maximum length of a configuration text in a question."""
MOST = 20
"""Maximum number of entries of a list or map in a question."""
_SHOWN = ("provider", "policy", "limits", "requires", "args", "config")


def needs(tx: Transition, unit: Unit) -> Iterator[NeededPermission]:
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
            yield NeededPermission(about, partial(_ask, tx, unit, use, about))


def _ask(tx: Transition, unit: Unit, use: dict[str, Plain], about: About) -> Wait:
    """Open the question about a use."""
    spec, name = use["spec"], use["spec"]["resource_key"]
    wait = new_question(tx, about, tx.address(unit), tx.node(tx.act_of(unit)).id)
    subject = {"kind": spec["kind"], "scope": use["scope"]}
    subject |= {key: _summary(spec[key]) for key in _SHOWN if spec.get(key)}
    wait["record"]["environment"] = name
    asked = {"title": f"Open the environment {name!r}?", "subject": subject}
    given = {key: value for key, value in use["approval"].items() if value is not None}
    try:
        fill_in(tx, wait, {**asked, **given}, name)
    except StepFailure:
        close_question(tx, wait, "withdrawn")
        raise
    region = about[0] if use["scope"] == "region" else 0
    wanted = {"scope": use["scope"], "spec": spec}
    step, reason = tx.act_of(unit)["step"], given.get("body")
    required = bool(given.get("required"))
    tx.commands.append(Consult(wait["id"], unit["id"], step, region, wanted, reason, required))
    notify(tx, wait, "opened")
    return wait


def _about(tx: Transition, unit: Unit, use: dict[str, Plain]) -> About:
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


def with_answers(tx: Transition, unit: Unit, environments: dict[str, Plain]) -> dict[str, Plain]:
    """Return the environments of a unit, with the answers in place of the questions.

    Args:
        unit: A unit whose attempt may begin.
        environments: The evaluated declaration of its step.
    """
    return {name: _with_answer(tx, unit, use) for name, use in environments.items()}


def _with_answer(tx: Transition, unit: Unit, use: dict[str, Plain]) -> dict[str, Plain]:
    given = None
    if "approval" in use and use["approval"].get("when", True):
        given = answer_about(tx, _about(tx, unit, use))
    spec = use["spec"]
    if "mounts" in spec:
        mounts = {inside: _with_answer(tx, unit, mount) for inside, mount in spec["mounts"].items()}
        spec = {**spec, "mounts": mounts}
    if given is None:
        return {"scope": use["scope"], "spec": spec}
    approved = {key: given[key] for key in ("by", "policy") if key in given}
    return {"scope": use["scope"], "spec": spec, "approved": approved}
