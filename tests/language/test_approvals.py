"""Approvals: content, decisions, and expiry (F40, F42)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import Conflict, InputError
from flowengine.engines.infos import WaitInfo
from flowengine.engines.results import Update
from flowengine.kernel.notation.times import format_time, parse_time
from tests.language.stage import START, Stage

EVERYTHING = """
inputs:
  who: {type: string, default: ana}
  amount: {type: integer, default: 900}
  days: {type: integer, default: 2}
steps:
  - id: quote
    run: {script: printf offer > offer.txt, files: {offer: offer.txt}}
  - id: sign
    approval:
      title: Expense of ${{ inputs.amount }} by ${{ inputs.who }}
      body: "**Please** look at ${{ steps.quote.output.files.offer.name }}."
      subject: {amount: "${{ inputs.amount }}", account: travel}
      edit: [amount]
      form:
        properties:
          cost_center: {type: string, pattern: "^[0-9]{4}$"}
          urgent: {type: boolean, default: false}
        required: [cost_center]
      choices:
        - approve
        - {id: refuse, label: "Refuse ${{ inputs.who }}", counts_as: reject, comment: required}
        - {id: ask, label: Send back}
      assignees: ["group:finance", "user:${{ inputs.who + '_boss' }}"]
      exclude: ["user:${{ inputs.who }}"]
      need: "${{ inputs.amount > 1000 ? 2 : 1 }}"
      expires: "${{ string(inputs.days) + 'd' }}"
      on_expire: refuse
      batch: expenses
      attachments: ["${{ steps.quote.output.files.offer }}"]
    next: {outcome: {approve: booked, ask: end}}
  - {id: booked, output: "${{ steps.sign.output }}"}
outputs: {booked: "${{ steps.booked.output }}"}
"""


def test_question_carries_all_that_is_asked_and_of_whom(stage: Stage) -> None:
    result = stage.run(EVERYTHING)
    [wait] = result.waits
    offer = wait["attachments"][0]
    assert {key: wait[key] for key in wait if key not in {"id", "execution", "since", "due"}} == {  # type: ignore[literal-required]
        "flow": "flow",
        "kind": "approval",
        "address": "sign",
        "step": "sign",
        "title": "Expense of 900 by ana",
        "body": "**Please** look at offer.txt.",
        "subject": {"amount": 900, "account": "travel"},
        "edit": ["amount"],
        "edit_schema": {"type": "object", "properties": {"amount": {"type": "integer"}}},
        "form": {
            "type": "object",
            "properties": {
                "cost_center": {"type": "string", "pattern": "^[0-9]{4}$"},
                "urgent": {"type": "boolean", "default": False},
            },
            "required": ["cost_center"],
        },
        "choices": [
            {"id": "approve", "label": "Approve", "counts_as": "approve", "comment": "optional"},
            {
                "id": "refuse",
                "label": "Refuse ana",
                "counts_as": "reject",
                "comment": "required",
            },
            {"id": "ask", "label": "Send back", "counts_as": "other", "comment": "optional"},
        ],
        "assignees": ["group:finance", "user:ana_boss"],
        "exclude": ["user:ana"],
        "need": 1,
        "votes": [],
        "batch": "expenses",
        "attachments": [offer],
        "on_expire": "refuse",
        "status": "pending",
    }
    assert (offer["name"], offer["size"]) == ("offer.txt", 5)
    since = stage.engine.executions.show(result.execution)["waits"][0]["since"]
    assert wait["since"] == since
    assert wait["due"] == format_time(parse_time(since) + 2 * 86_400_000)


def test_need_that_is_computed_counts_votes(stage: Stage) -> None:
    stage.run(EVERYTHING, {"amount": 1001})
    first = stage.decide("sign", "approve", by="user:ana_boss", form={"cost_center": "4711"})
    assert first.result is not None
    assert first.result.status == "waiting"
    [wait] = first.result.waits
    assert [vote["by"] for vote in wait["votes"]] == ["user:ana_boss"]


def test_silence_takes_the_choice_that_on_expire_names(stage: Stage) -> None:
    result = stage.run(EVERYTHING)
    ended = stage.later(result.execution, 2 * 86_400)
    assert ended.error is not None
    assert (ended.error["type"], ended.error["data"]["choice"]) == ("Rejected", "refuse")
    assert (ended.error["data"]["by"], ended.error["data"]["via"]) == ("system", "expiry")


EDIT = """
steps:
  - {id: look, python: "tools:act"}
  - id: sign
    approval:
      title: Right?
      subject: ${{ steps.look.output }}
      edit: true
  - {id: use, python: "tools:act", with: {value: "${{ steps.sign.output.subject }}"}}
outputs: {used: "${{ steps.use.output }}", asked: "${{ steps.sign.output.original }}"}
"""
SUBJECT = {"total": 10, "lines": [{"name": "tea", "price": 2.5}], "paid": False}


def _asked(stage: Stage, subject: Any) -> WaitInfo:
    stage.world.script = {"look": subject}
    [wait] = stage.run(EDIT).waits
    return wait


def test_edited_subject_goes_on_and_both_versions_stay_in_the_history(stage: Stage) -> None:
    wait = _asked(stage, SUBJECT)
    decision = stage.decide("sign", "approve", edit={"total": 12, "paid": True})
    assert decision.result is not None
    edited = {**SUBJECT, "total": 12, "paid": True}
    assert decision.result.outputs == {"used": edited, "asked": SUBJECT}
    sign = stage.engine.executions.show(wait["execution"], step="sign")["steps"][0]
    assert sign["output"]["original"] == SUBJECT
    assert sign["output"]["subject"] == edited
    assert sign["output"]["edited"] is True
    [closed] = stage.engine.approvals.list(status="closed").items
    assert closed["subject"] == SUBJECT
    assert closed["decision"]["edits"] == {"total": 12, "paid": True}
    [entry] = [
        e for e in stage.engine.executions.events(wait["execution"]) if e["type"] == "decided"
    ]
    assert entry["edits"] == {"total": 12, "paid": True}


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ({"total": "12"}, "total"),
        ({"total": 12.5}, "total"),
        ({"total": None}, "total"),
        ({"paid": 1}, "paid"),
        ({"lines": "tea"}, "lines"),
        ({"lines": [{"name": 7, "price": 2.5}]}, "lines"),
        ({"nothing": 1}, "nothing"),
    ],
)
def test_edit_that_does_not_fit_is_refused_and_the_question_stays_open(
    stage: Stage, edits: dict[str, Any], field: str
) -> None:
    wait = _asked(stage, SUBJECT)
    with pytest.raises(InputError) as caught:
        stage.decide("sign", "approve", edit=edits)
    assert field in str(caught.value.field) + str(caught.value)
    assert stage.engine.approvals.show(wait["id"])["status"] == "pending"
    assert stage.decide("sign", "approve").first


def test_edited_number_stays_as_whole_or_fractional_as_it_was(stage: Stage) -> None:
    _asked(stage, {"whole": 10, "part": 2.5, "list": [1.5]})
    edits = {"whole": 12.0, "part": 3, "list": [1, 2]}
    result = stage.decide("sign", "approve", edit=edits).result
    assert result is not None
    assert result.outputs is not None
    used = result.outputs["used"]
    assert used == {"whole": 12, "part": 3.0, "list": [1.0, 2.0]}
    assert [type(v) for v in (used["whole"], used["part"], used["list"][0])] == [int, float, float]


def test_items_of_an_edited_list_are_like_those_before(stage: Stage) -> None:
    _asked(stage, {"lines": [{"name": "tea"}, 7, []]})
    wrongs: list[Any] = [[{"name": 1}], ["x"], [{}], [None]]
    for wrong in wrongs:
        with pytest.raises(InputError, match=r"lines\.0"):
            stage.decide("sign", "approve", edit={"lines": wrong})
    edits = {"lines": [8, {"name": "x", "more": 1}, [1, "a"], 9]}
    result = stage.decide("sign", "approve", edit=edits).result
    assert result is not None
    assert result.outputs is not None
    assert result.outputs["used"] == edits


def test_approval_without_edit_takes_none(stage: Stage) -> None:
    text = EDIT.replace("      edit: true\n", "")
    stage.world.script = {"look": SUBJECT}
    stage.run(text)
    with pytest.raises(InputError, match="total"):
        stage.decide("sign", "approve", edit={"total": 12})


@pytest.mark.parametrize(
    "field",
    [
        'title: "${{ steps.look.output.nothing }}"',
        'title: a\n      expires: "${{ steps.look.output.soon }}"',
        'title: a\n      subject: "${{ steps.look.output.nothing }}"',
        'title: a\n      assignees: ["${{ steps.look.output.nothing }}"]',
        'title: a\n      remind: "${{ steps.look.output.soon }}"',
        'title: a\n      escalate: [{after: "${{ steps.look.output.soon }}", to: ["user:x"]}]',
    ],
)
def test_question_that_cannot_be_asked_fails_the_step_and_opens_nothing(
    stage: Stage, field: str
) -> None:
    text = f"""
steps:
  - {{id: look, python: "tools:act"}}
  - id: sign
    approval:
      {field}
    on_error: [{{type: [ExpressionError, ValidationError], output: "${{{{ error.step }}}}"}}]
outputs: {{sign: "${{{{ steps.sign.output }}}}"}}
"""
    assert stage.play(text, {"look": {"soon": "soon"}}).outputs == {"sign": "sign"}
    assert stage.engine.approvals.list(status="all").items == []


def test_reminders_and_escalation_are_told_and_end_with_the_question(stage: Stage) -> None:
    text = """
steps:
  - id: sign
    approval:
      title: Sure?
      assignees: ["user:ana"]
      remind: 8h
      escalate: [{after: 20h, to: ["user:cfo"]}, {after: 30h, to: ["user:ceo"], replace: true}]
      expires: 48h
    next: {outcome: {approve: end, expired: end}}
"""
    told: list[tuple[str, list[str]]] = []

    def note(update: Update) -> None:
        if update.kind == "notify":
            told.append((update.data["why"], update.data["to"]))

    stage.engine.subscribe(note)
    execution = stage.run(text).execution
    for hours in range(2, 48, 2):
        stage.later(execution, 7200)
        who = {True: ["user:ana"]}.get(hours < 20, ["user:ana", "user:cfo"])
        assert stage.engine.approvals.list().items[0]["assignees"] == (
            ["user:ceo"] if hours >= 30 else who
        )
    assert stage.later(execution, 7200).status == "succeeded"
    assert [why for why, _ in told] == [
        "opened", "reminded", "reminded", "escalated", "reminded", "escalated", "reminded",
        "reminded",
    ]  # fmt: skip
    assert told[-1] == ("reminded", ["user:ceo"])


def test_escalation_ends_a_claim_and_asks_again_whom_it_names(stage: Stage) -> None:
    text = """
steps:
  - id: sign
    approval:
      title: Sure?
      assignees: ["user:ana", "user:ben"]
      claim: true
      escalate: [{after: 20h, to: ["user:ana"]}]
    next: {outcome: {else: end}}
"""
    execution = stage.run(text).execution
    (wait,) = stage.engine.approvals.list().items
    stage.engine.approvals.delegate(wait["id"], "user:cleo", by="user:ana")
    stage.engine.approvals.claim(wait["id"], by="user:ben")
    stage.later(execution, 20 * 3600)
    (wait,) = stage.engine.approvals.list().items
    assert "claimed_by" not in wait
    assert [link["do"] for link in wait["handed"]] == ["delegated", "claimed", "escalated"]
    stage.engine.approvals.claim(wait["id"], by="user:ana")
    assert stage.engine.approvals.approve(wait["id"], by="user:ana").first


def test_decision_before_expiry_wins_and_one_after_it_is_told_that_it_is_late(
    stage: Stage,
) -> None:
    text = """
steps:
  - id: sign
    approval: {title: Sure?, expires: 1h}
    next: {outcome: {approve: good, expired: late}}
  - {id: good, output: good, next: end}
  - {id: late, output: late}
outputs: {how: "${{ default(steps.good.output, steps.late.output) }}"}
"""
    result = stage.run(text)
    stage.clock.seconds += 3599
    stage.engine.approvals.approve(result.waits[0]["id"], resume=False)
    assert stage.later(result.execution, 7200).outputs == {"how": "good"}

    result = stage.run(text)
    stage.clock.seconds += 3601
    with pytest.raises(Conflict, match="expired"):
        stage.do(stage.engine.approvals.approve_async(result.waits[0]["id"]))
    assert stage.later(result.execution, 0).outputs == {"how": "late"}


def test_approval_in_a_loop_asks_again_each_round(stage: Stage) -> None:
    text = """
steps:
  - id: sign
    loop: {until: "${{ output.choice == 'approve' }}", max: 3}
    approval:
      title: Round ${{ round.number }}
      choices: [approve, again]
      subject: "${{ round.last == null ? 'nothing' : round.last.comment }}"
outputs: {n: "${{ steps.sign.rounds }}"}
"""
    stage.run(text)
    for n, comment in enumerate(("no", "still no"), 1):
        [wait] = stage.engine.approvals.list().items
        assert (wait["address"], wait["title"]) == (f"sign@{n}", f"Round {n}")
        stage.decide(f"sign@{n}", "again", comment=comment)
    assert stage.engine.approvals.list().items[0]["subject"] == "still no"
    result = stage.decide("sign@3", "approve").result
    assert result is not None
    assert result.outputs == {"n": 3}
    assert stage.clock.now() - START < 10_000


def test_approval_that_was_rejected_is_not_asked_again_by_retry(stage: Stage) -> None:
    text = """
steps:
  - {id: sign, approval: Sure?, retry: 3}
"""
    stage.run(text)
    result = stage.decide("sign", "reject").result
    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "Rejected"
