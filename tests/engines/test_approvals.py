"""Decisions: permissions, valid choices, and conflicts (F4, F40-F44, F99)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from flowengine.engines.deciding import PARTS
from flowengine.engines.engine import Engine
from flowengine.engines.infos import Answering, WaitInfo
from flowengine.errors import Conflict, InputError, NotAllowed, NotFound, UsageError
from tests.engines import world

EXPENSE = """
inputs:
  amount: {type: integer, default: 900}
steps:
  - id: sign
    approval:
      title: Expense of ${{ inputs.amount }}
      subject: {amount: "${{ inputs.amount }}", account: travel, place: {city: Oslo}}
      edit: [amount, place]
      form:
        properties:
          cost_center: {type: string, minLength: 4}
          urgent: {type: boolean, default: false}
        required: [cost_center]
      choices: [approve, {id: reject, comment: required}, {id: later, comment: none}]
      assignees: ["group:finance", "user:cfo"]
      exclude: ["user:ana"]
    next: {outcome: {approve: done, reject: refused, later: end}}
  - id: refused
    output: ${{ steps.sign.output.comment }}
    next: end
  - id: done
    output: ${{ steps.sign.output.subject.amount }}
outputs:
  decision: ${{ steps.sign.output }}
"""
FORM = {"cost_center": "4711"}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "flowengine").mkdir(parents=True)
    settings = 'groups: {finance: [ben, "group:board"], board: [cleo, ana]}\n'
    (tmp_path / "config" / "flowengine" / "settings.yaml").write_text(settings)
    with Engine(None, user="user:ben") as engine:
        yield engine


def ask(engine: Engine, tmp_path: Path, text: str = EXPENSE) -> WaitInfo:
    """Run a flow up to its approval, and return that."""
    result = engine.run(world.make(tmp_path, text))
    assert result.status == "waiting"
    (wait,) = result.waits
    return wait


DECLARED = """
inputs:
  amount: {type: number}
  count: {type: integer, default: 3}
  note: {type: [string, "null"], default: null}
  lines: {type: array, items: {type: object, properties: {price: {type: number}}}, default: []}
state:
  total: {type: number, default: 10}
steps:
  - id: sign
    approval:
      title: Right?
      subject:
        amount: ${{ inputs.amount }}
        count: ${{ inputs.count }}
        note: ${{ inputs.note }}
        lines: ${{ inputs.lines }}
        total: ${{ state.total }}
      edit: true
outputs:
  subject: ${{ steps.sign.output.subject }}
  double: ${{ steps.sign.output.subject.amount * 2.0 }}
"""


def test_field_declared_a_number_takes_a_fraction_also_where_it_was_whole(
    engine: Engine, tmp_path: Path
) -> None:
    flow = world.make(tmp_path, DECLARED)
    (wait,) = engine.run(flow, {"amount": 80, "lines": [{"price": 2}]}).waits
    edits = {"amount": 75.5, "total": 0.25, "lines": [{"price": 2.5}, {"price": 3}], "note": "x"}
    decision = engine.approve(wait["id"], edit=edits)
    assert decision.result is not None
    assert decision.result.outputs == {"subject": {**edits, "count": 3}, "double": 151.0}


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ({"count": 2.5}, "'count' is a whole number and has to stay one"),
        ({"amount": "75"}, "'amount' is a number and has to stay one"),
        ({"amount": None}, "'amount' is a number and has to stay one"),
        ({"note": 7}, "'note' is a text or null and has to stay one"),
        ({"lines": [{"price": "a"}]}, "'lines.0.price' is a number and has to stay one"),
    ],
)
def test_edit_that_is_not_of_the_declared_type_is_refused(
    engine: Engine, tmp_path: Path, edits: dict[str, Any], told: str
) -> None:
    (wait,) = engine.run(world.make(tmp_path, DECLARED), {"amount": 80}).waits
    with pytest.raises(InputError, match=told):
        engine.approve(wait["id"], edit=edits)


def test_approval_with_edit_and_form_goes_on_with_what_was_decided(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    decision = engine.approve(
        wait["id"], form=FORM, edit={"amount": 700, "place.city": "Rome"}, comment="less"
    )
    assert decision.first
    assert decision.result is not None
    assert decision.result.outputs is not None
    output = decision.result.outputs["decision"]
    assert output["subject"] == {"amount": 700, "account": "travel", "place": {"city": "Rome"}}
    assert output["original"] == wait["subject"]
    assert output["edited"]
    assert output["form"] == {"cost_center": "4711", "urgent": False}
    assert (output["by"], output["via"], output["comment"]) == ("user:ben", "python", "less")


def test_same_decision_again_is_fine_and_another_is_told_what_stands(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)["id"]
    first = engine.approve(wait, form=FORM)
    again = engine.approve(wait, by="user:cleo")
    assert not again.first
    assert (again.by, again.at) == ("user:ben", first.at)
    for choice, more in (
        ("reject", {"comment": "no"}),
        ("approve", {"form": {"cost_center": "9"}}),
    ):
        with pytest.raises(Conflict, match="was already approved by user:ben at 20") as caught:
            engine.decide(wait, choice, **more)
        assert caught.value.standing["choice"] == "approve"
        assert caught.value.exit_code == 7


@pytest.mark.parametrize("user", ["user:ana", "user:eve"])
def test_only_assignees_decide_and_exclusion_wins_over_a_group(
    engine: Engine, tmp_path: Path, user: str
) -> None:
    wait = ask(engine, tmp_path)["id"]
    with pytest.raises(NotAllowed, match=user):
        engine.approve(wait, form=FORM, by=user)
    assert engine.wait(wait)["status"] == "pending"
    assert engine.approve(wait, form=FORM, by="user:cleo").first


def test_who_is_excluded_does_not_decide_in_the_name_of_another(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path, EXPENSE.replace("exclude: [", "exclude: [user:ben, "))["id"]
    refusal = r"user:ben may not decide on '.*' on behalf of user:cleo: it excludes user:ben"
    with pytest.raises(NotAllowed, match=refusal):
        engine.approve(wait, form=FORM, by="user:cleo")
    assert engine.wait(wait)["status"] == "pending"


def test_hint_of_an_error_is_beside_its_text_and_in_the_words_of_a_program(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)["id"]
    with pytest.raises(InputError) as caught:
        engine.reject(wait)
    assert str(caught.value) == "'reject' needs a comment"
    assert caught.value.hint == "add comment=TEXT"
    assert format_exception(caught.value)[-1] == "add comment=TEXT\n"
    with pytest.raises(NotAllowed) as refused:
        engine.approve(wait, form=FORM, by="user:zoe")
    assert (refused.value.hint or "").endswith("; by='user:NAME' acts on behalf of another user")


def test_refusal_names_the_group_that_excludes_a_user(engine: Engine, tmp_path: Path) -> None:
    wait = ask(engine, tmp_path, EXPENSE.replace("exclude: [", "exclude: [group:board, "))["id"]
    with pytest.raises(NotAllowed, match="it excludes group:board, which user:ana belongs to"):
        engine.approve(wait, form=FORM, by="user:ana")


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("group:finance", "group:finance is a group, and only users act and decide"),
        ("ana", "'ana' is not a user"),
        ("user:", "'user:' is not a user"),
    ],
)
def test_only_users_decide(engine: Engine, tmp_path: Path, by: str, said: str) -> None:
    wait = ask(engine, tmp_path)["id"]
    with pytest.raises(UsageError, match=said):
        engine.approve(wait, form=FORM, by=by)


@pytest.mark.parametrize("verb", ["approve", "claim", "delegate", "signal", "cancel"])
def test_nobody_acts_for_others_where_the_settings_forbid_it(
    engine: Engine, tmp_path: Path, verb: str
) -> None:
    wait = ask(engine, tmp_path)
    (tmp_path / ".flowengine").mkdir()
    (tmp_path / ".flowengine" / "settings.yaml").write_text(
        "act_for_others: false\ngroups: {finance: [ben, cleo]}\n"
    )
    store: Any = engine.store
    with Engine(store, user="user:ben") as strict:
        acts: dict[str, Callable[[], object]] = {
            "approve": lambda: strict.approve(wait["id"], form=FORM, by="user:cleo"),
            "claim": lambda: strict.claim(wait["id"], by="user:cleo"),
            "delegate": lambda: strict.delegate(wait["id"], "user:dora", by="user:cleo"),
            "signal": lambda: strict.signal("s", execution=wait["execution"], by="user:cleo"),
            "cancel": lambda: strict.cancel(wait["execution"], by="user:cleo"),
        }
        with pytest.raises(NotAllowed, match="user:ben may not act for user:cleo"):
            acts[verb]()
        assert strict.approve(wait["id"], form=FORM, by="user:ben").first


@pytest.mark.parametrize(
    ("choice", "answer", "field"),
    [
        ("approve", {}, "cost_center"),
        ("approve", {"form": {"cost_center": "47"}}, "cost_center"),
        ("approve", {"form": {"cost_center": "4711", "colour": "red"}}, "colour"),
        ("approve", {"form": FORM, "edit": {"account": "sport"}}, "account"),
        ("approve", {"form": FORM, "edit": {"amount": "900"}}, "amount"),
        ("approve", {"form": FORM, "edit": {"amount": True}}, "amount"),
        ("approve", {"form": FORM, "edit": {"place": {"town": "Rome"}}}, "place.city"),
        ("reject", {}, "comment"),
        ("reject", {"comment": "  "}, "comment"),
        ("later", {"comment": "x"}, "comment"),
        ("maybe", {}, "choice"),
    ],
)
def test_answer_that_does_not_fit_is_refused_and_names_the_field(
    engine: Engine, tmp_path: Path, choice: str, answer: dict[str, Any], field: str
) -> None:
    wait = ask(engine, tmp_path)["id"]
    with pytest.raises(InputError) as caught:
        engine.decide(wait, choice, **answer)
    assert caught.value.field.endswith(field)
    assert engine.wait(wait)["status"] == "pending"


def test_every_decision_is_in_the_history_with_who_how_and_why(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    engine.approve(wait["id"], form=FORM, edit={"amount": 1}, comment="ok", by="user:cleo")
    (entry,) = [e for e in engine.events(wait["execution"]) if e["type"] == "decided"]
    assert (entry["by"], entry["via"], entry["entered_by"]) == ("user:cleo", "python", "user:ben")
    assert (entry["address"], entry["comment"]) == ("sign", "ok")
    step = engine.show(wait["execution"])["steps"][0]
    assert step["decision"]["edits"] == {"amount": 1}
    closed = engine.waits(status="closed").items
    assert closed[0]["decision"]["by"] == "user:cleo"


@pytest.mark.endurance
def test_quorum_takes_one_vote_of_each(engine: Engine, tmp_path: Path) -> None:
    text = "steps:\n  - id: sign\n    approval: {title: Sure?, need: 2}\n"
    wait = ask(engine, tmp_path, text)["id"]
    first = engine.approve(wait, by="user:a")
    assert first.result is not None
    assert first.result.status == "waiting"
    assert not engine.approve(wait, by="user:a").first
    with pytest.raises(Conflict, match="already approved by user:a"):
        engine.reject(wait, by="user:a")
    last = engine.approve(wait, by="user:b")
    assert last.result is not None
    assert last.result.status == "succeeded"
    votes = [vote["by"] for vote in engine.show(last.execution)["steps"][0]["output"]["votes"]]
    assert votes == ["user:a", "user:b"]


def test_attachments_are_kept_and_shown(engine: Engine, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("see page 3")
    wait = ask(engine, tmp_path)
    result = engine.approve(wait["id"], form=FORM, attach=[note]).result
    assert result is not None
    assert result.outputs is not None
    (file,) = result.outputs["decision"]["attachments"]
    assert (file["name"], file["size"]) == ("note.txt", 10)
    assert Path(file["path"]).read_text() == "see page 3"
    (entry,) = [e for e in engine.events(wait["execution"]) if e["type"] == "decided"]
    assert entry["attachments"] == [file]
    assert not engine.approve(wait["id"], attach=[note]).first


@pytest.mark.endurance
def test_attachment_of_wrong_type_or_size_leaves_the_question_open(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)["id"]
    image, large = tmp_path / "photo.png", tmp_path / "large.bin"
    image.write_text("no image")
    with large.open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    for path, message in ((image, "not match its name"), (large, "20 MiB"), (tmp_path, "no such")):
        with pytest.raises(InputError, match=message):
            engine.approve(wait, form=FORM, attach=[path])
    with pytest.raises(InputError, match="at most 10"):
        engine.approve(wait, form=FORM, attach=[image] * 11)
    assert engine.wait(wait)["status"] == "pending"


def test_expiry_is_told_apart_from_a_rejection_and_stands_against_a_late_decision(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
steps:
  - id: sign
    approval: {title: Sure?, expires: 10ms}
    next: {outcome: {approve: yes_, reject: no_, expired: late}}
  - {id: yes_, output: yes, next: end}
  - {id: no_, output: no, next: end}
  - {id: late, output: late}
outputs: {how: "${{ steps.late.output }}", choice: "${{ steps.sign.output.choice }}"}
"""
    result = engine.run(world.make(tmp_path, text))
    assert result.outputs == {"how": "late", "choice": None}
    (wait,) = engine.waits(status="closed").items
    assert wait["decision"]["via"] == "expiry"
    with pytest.raises(Conflict, match="expired at"):
        engine.approve(wait["id"])


@pytest.mark.endurance
def test_unknown_and_other_waits_cannot_be_decided(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        engine.approve("ffff")
    result = engine.run(world.make(tmp_path, "steps:\n  - {id: pause, wait: 1h}\n"))
    with pytest.raises(Conflict, match="waits for time, not for a decision"):
        engine.decide(result.waits[0]["id"], "approve")


def test_list_shows_a_user_what_the_user_may_decide(engine: Engine, tmp_path: Path) -> None:
    wait = ask(engine, tmp_path)["id"]
    for user, sees in (
        ("ben", True),
        ("cleo", True),
        ("cfo", True),
        ("ana", False),
        ("eve", False),
    ):
        found = [w["id"] for w in engine.waits(assignee=f"user:{user}").items]
        assert found == ([wait] if sees else []), user


FORM_OF_QUESTION = "form: {properties: {name: {type: string}}, required: [name]}"


@pytest.mark.parametrize(
    ("form", "answer", "output"),
    [
        ("", {"answer": "Ada"}, "Ada"),
        (f", {FORM_OF_QUESTION}", {"name": "Ada"}, {"name": "Ada"}),
        (", form: {type: string}", "Ada", "Ada"),
    ],
)
def test_output_of_a_question_is_the_answer(
    engine: Engine, tmp_path: Path, form: str, answer: Any, output: Any
) -> None:
    text = f"""
steps:
  - id: name
    call: std.ask
    with: {{question: "Who?"{form}}}
outputs: {{name: "${{{{ steps.name.output }}}}"}}
"""
    wait = ask(engine, tmp_path, text)
    assert wait["kind"] == "ask"
    with pytest.raises(InputError):
        engine.decide(wait["id"], "answer")
    result = engine.decide(wait["id"], "answer", form=answer).result
    assert result is not None
    assert result.outputs == {"name": output}


BOUNDED = """\
inputs:
  amount: {type: number, exclusiveMinimum: 0, default: 10.0}
  tags: {type: array, items: {enum: [a, b]}, default: [a]}
  note: {type: string, default: ""}
steps:
  - id: sign
    approval:
      title: Pay?
      subject:
        amount: ${{ inputs.amount }}
        half: ${{ inputs.amount / 2.0 }}
        tags: ${{ inputs.tags }}
        note: ${{ inputs.note }}
      edit: true
"""


@pytest.mark.parametrize("edit", [{"amount": -3}, {"amount": 0.0}, {"tags": ["c"]}])
def test_an_edited_field_that_is_an_input_stays_within_its_bounds(
    engine: Engine, tmp_path: Path, edit: dict[str, Any]
) -> None:
    wait = ask(engine, tmp_path, BOUNDED)
    with pytest.raises(InputError) as caught:
        engine.approve(wait["id"], edit=edit)
    assert next(iter(edit)) in f"{caught.value.field}{caught.value.message}"
    fits = {"amount": 0.5, "half": -1.0, "tags": ["b", "b"]}
    result = engine.approve(wait["id"], edit=fits).result
    assert result is not None
    assert result.status == "succeeded"


def test_a_second_approver_is_told_in_what_the_standing_decision_differs(
    engine: Engine, tmp_path: Path
) -> None:
    """A plain approval covers the call as shown, not as edited by the first approver."""
    wait = ask(engine, tmp_path, BOUNDED)["id"]
    engine.approve(wait, edit={"amount": 80.0})
    with pytest.raises(Conflict, match="already approved by user:ben") as caught:
        engine.approve(wait, by="user:cleo")
    assert caught.value.exit_code == 7
    assert caught.value.hint == 'it differs: edits there: {"amount": 80.0}, here: none'
    with pytest.raises(Conflict, match="already approved") as caught:
        engine.approve(wait, edit={"note": "größer"}, by="user:cleo")
    assert (caught.value.hint or "").endswith('here: {"note": "größer"}')
    assert not engine.approve(wait, edit={"amount": 80}, by="user:cleo").first


@pytest.mark.parametrize(
    ("keyword", "near"), [("edits", "edit"), ("comments", "comment"), ("user", None)]
)
def test_an_unknown_keyword_of_a_decision_is_an_error_and_decides_nothing(
    engine: Engine, tmp_path: Path, keyword: str, near: str | None
) -> None:
    wait = ask(engine, tmp_path)["id"]
    told = f"a decision has no '{keyword}'; " + (
        f"did you mean '{near}'" if near else "it is one of"
    )
    with pytest.raises(TypeError, match=re.escape(told)):
        engine.approve(wait, form=FORM, **{keyword: "x"})  # type: ignore[arg-type]
    assert engine.wait(wait)["status"] == "pending"


def test_all_parts_of_a_decision_are_known() -> None:
    assert set(PARTS) == Answering.__annotations__.keys()
