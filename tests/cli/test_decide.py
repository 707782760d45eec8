"""Approvals on the command line: deciding, conflicts, and hints that work."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, also_served, steady
from tests.command_line import Done

APPROVE = ["--form", "cost_center=4711"]


@pytest.fixture
def wait(flowengine: CommandLine, refund: Path) -> str:
    """The short ID of a waiting approval."""
    [found] = flowengine("run", refund, "-i", "amount=80", code=4).ids
    return found


@pytest.fixture
def groups(flowengine: CommandLine) -> Callable[..., None]:
    """Set the members of groups in the user's settings."""

    def write(**members: list[str]) -> None:
        folder = flowengine.folder / "config" / "flowengine"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.yaml").write_text(json.dumps({"groups": members}))

    return write


def hint(done: Done, name: str) -> list[str]:
    """Return the arguments of the `flowengine` command in a hint."""
    [line] = re.findall(rf"^ +{name} +flowengine (.*)$", done.err, re.MULTILINE)
    return shlex.split(line)


def test_an_approval_is_recorded_and_the_execution_goes_on(
    flowengine: CommandLine, wait: str
) -> None:
    done = flowengine("approve", wait, *APPROVE, "--edit", "amount=70", "--as", "ben")

    assert done.out == "paid: 70\n"
    assert steady(done.err).replace(wait, "WAIT") == (
        "WAIT approved by user:ben at TIME\n"
        "execution EXECUTION refund version 3\n"
        "  ask            succeeded   approved by user:ben\n"
        "  pay            succeeded   0.0s\n"
        "succeeded in 0.0s\n"
    )


def test_the_same_decision_again_is_fine_and_another_one_is_refused(
    flowengine: CommandLine, wait: str
) -> None:
    flowengine("approve", wait, *APPROVE, "--as", "user:ben")

    again = flowengine("approve", wait)
    other = flowengine("reject", wait, "--comment", "too late", code=7)

    assert (again.out, steady(again.err).replace(wait, "WAIT")) == (
        "",
        "WAIT was already approved by user:ben at TIME\n",
    )
    assert steady(other.err).replace(wait, "WAIT") == (
        "error: WAIT was already approved by user:ben at TIME\n"
    )


@pytest.mark.parametrize("name", ["show", "approve", "reject", "later"])
def test_each_hint_works_when_it_is_pasted(
    flowengine: CommandLine, refund: Path, name: str
) -> None:
    waiting = flowengine("run", refund, "-i", "amount=80", code=4)

    words = hint(waiting, name)
    done = flowengine(*[word.replace("VALUE", "4711") for word in words])

    expected = {"show": "Refund 80 EUR?", "approve": "paid: 80\n"}
    assert expected.get(name, "paid: 0\n") in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["approve"],
            3,
            "error: WAIT: the form needs 'cost_center'\n  add --form cost_center=VALUE\n",
        ),
        (["approve", "--form", "cost_center=x"], 3, "cost_center"),
        (
            ["approve", "--form", "cost_centre=1"],
            3,
            "error: WAIT: the form has no field 'cost_centre'",
        ),
        (["approve", *APPROVE, "--edit", "amount=much"], 3, "'amount' must be a number, not 'much"),
        (["approve", *APPROVE, "--edit", "account=x"], 3, "'account' may not be edited"),
        (["approve", *APPROVE, "--form", "cost_center=1"], 2, "'cost_center' is given twice"),
        (["reject"], 3, "error: WAIT: 'reject' needs a comment\n  add --comment TEXT\n"),
        (["approve", *APPROVE, "--attach", "none.png"], 3, "attachment none.png: there is no"),
        (
            ["approve", *APPROVE, "--attach", "fake.png"],
            3,
            "fake.png has content that does not match its name",
        ),
    ],
)
def test_an_answer_that_does_not_fit_names_the_field_and_leaves_the_question_open(
    flowengine: CommandLine, wait: str, words: list[str], code: int, said: str
) -> None:
    flowengine.write("fake.png", "no picture")

    done = flowengine(words[0], wait, *words[1:], code=code)

    assert said.replace("WAIT", wait) in done.err
    assert len(flowengine("--json", "approvals", "list").json()) == 1


@also_served
def test_files_that_come_with_a_decision_are_kept_and_shown(
    flowengine: CommandLine, wait: str
) -> None:
    flowengine.write("note.txt", "as agreed")

    flowengine("reject", wait, "--comment", "see the note", "--attach", "note.txt")

    shown = flowengine("approvals", "show", wait).out
    assert "status      rejected by user:ana at" in shown
    assert re.search(r"file +note\.txt  9 bytes  sha256 [0-9a-f]{64}\n", shown)


@also_served
def test_only_assignees_decide_and_those_of_a_group_are_named_by_the_settings(
    flowengine: CommandLine, refund: Path, groups: Callable[..., None]
) -> None:
    groups(it=["ben"])
    assignees = 'assignees=["group:it"]'
    [wait] = flowengine("run", refund, "-i", "amount=80", "-i", assignees, code=4).ids

    refused = flowengine("approve", wait, *APPROVE, code=8)

    assert (
        f"error: {wait}: user:ana may not decide on 'Refund 80 EUR?': assignees are group:it"
        in (refused.err)
    )
    assert flowengine("approvals", "list", "--mine").out == ""
    group = flowengine("approve", wait, *APPROVE, "--as", "group:it", code=2)
    assert group.err == (
        f"error: {wait}: group:it is a group, and only users act and decide\n"
        "  name one of its members\n"
    )
    assert flowengine("approve", wait, *APPROVE, "--as", "ben").out == "paid: 80\n"


def test_check_warns_of_assigned_groups_without_members(
    flowengine: CommandLine, groups: Callable[..., None]
) -> None:
    flowengine.write(
        "sign.yaml",
        "flowengine: 1\nid: sign\nsteps:\n"
        "  - {id: a, approval: {title: Go?, assignees: ['group:it', 'user:ben', 'group:law']}}\n",
    )
    groups(law=["cleo"])
    done = flowengine("check", "--strict", "sign.yaml")
    assert done.out == "sign.yaml: ok\n"
    file = flowengine.folder / "config" / "flowengine" / "settings.yaml"
    assert done.err == (f"warning: sign.yaml: group:it has no members: {file} does not define it\n")
    groups(it=["ben"], law=["cleo"])
    assert flowengine("check", "sign.yaml").err == ""


def test_a_project_puts_nobody_into_a_group(
    flowengine: CommandLine, refund: Path, groups: Callable[..., None]
) -> None:
    """Otherwise write access to the project would include the choice of approvers."""
    ran = flowengine("run", refund, "-i", "amount=80", "-i", 'assignees=["group:it"]', code=4)
    [wait] = ran.ids
    file = flowengine.folder / "config" / "flowengine" / "settings.yaml"
    assert f"      nobody     group:it has no members: {file} does not exist\n" in ran.err
    (flowengine.folder / ".flowengine" / "settings.yaml").write_text("groups: {it: [ana, ben]}")

    refused = flowengine("approve", wait, *APPROVE, code=8)
    nobody = f"group:it has no members: {file} does not exist (the project's settings.yaml cannot"
    assert f"are group:it\n  {nobody} add members)\n" in refused.err
    assert nobody in flowengine("approvals", "show", wait).out
    assert f"  nobody      {nobody}" in flowengine("why").out
    groups(finance=["ben"])
    assert "does not define it (" in flowengine("approve", wait, *APPROVE, code=8).err
    groups(it=["cleo"])
    assert "and the project's settings.yaml name no common ones\n" in flowengine("show").out
    groups(it=["ben", "cleo"])
    assert "nobody" not in flowengine("show").out
    told = f"  user:ana is not in group:it, see {file}; --as USER acts on behalf of another user\n"
    assert told in flowengine("approve", wait, *APPROVE, code=8).err
    flowengine("approve", wait, *APPROVE, "--as", "cleo", code=8)
    assert flowengine("approve", wait, *APPROVE, "--as", "ben").out == "paid: 80\n"


def test_recording_only_leaves_going_on_to_resume(flowengine: CommandLine, wait: str) -> None:
    recorded = flowengine("approvals", "decide", wait, "--choice", "later", "--no-resume")

    assert "decided as 'later' by user:ana" in recorded.err
    resume = recorded.err.rpartition("not resumed, to resume it: flowengine ")[2].split()
    assert flowengine("--json", "list").json()[0]["status"] == "interrupted"
    assert flowengine(*resume).out == "paid: 0\n"


def test_recording_several_tells_one_command_that_resumes_them(
    flowengine: CommandLine, wait: str, refund: Path
) -> None:
    [other] = flowengine("run", refund, "-i", "amount=80", code=4).ids

    words = ["approvals", "decide", wait, other, "--choice", "later", "--no-resume"]
    recorded = flowengine(*words)
    quiet = flowengine("-q", *words)

    assert recorded.err.endswith("not resumed, to resume them: flowengine resume --due\n")
    assert quiet.err == ""
    assert flowengine("resume", "--due").err.count("execution ") == 2


def test_several_are_decided_first_and_the_execution_goes_on_once(
    flowengine: CommandLine, trio: Path
) -> None:
    ids = flowengine("run", trio, code=4).ids

    done = flowengine("approve", *ids[:2], code=4)
    last = flowengine("--json", "approve", ids[2]).json()

    assert done.err.count("execution ") == 1
    assert "waiting for 1 approval\n" in done.err
    assert [one["choice"] for one in last["decisions"]] == ["approve"]
    assert [one["status"] for one in last["executions"]] == ["succeeded"]


def test_one_of_several_that_cannot_be_decided_gives_the_exit_code(
    flowengine: CommandLine, trio: Path
) -> None:
    ids = flowengine("run", trio, code=4).ids
    flowengine("reject", ids[0], code=4)

    done = flowengine("approve", *ids, code=7)

    assert f"error: {ids[0]} was already rejected by user:ana" in done.err
    assert "succeeded in" in done.err


@also_served
def test_what_silence_means_is_shown(flowengine: CommandLine) -> None:
    flowengine.write(
        "silence.yaml",
        "flowengine: 1\nid: silence\nsteps:\n  - id: both\n    parallel:\n"
        "      - {id: a, approval: {title: A?, expires: 1d}}\n"
        "      - {id: b, approval: {title: B?, expires: 1d, on_expire: reject}}\n",
    )
    flowengine("run", "silence.yaml", code=4)

    found = flowengine("--json", "approvals", "list").json()
    said = {one["title"]: flowengine("approvals", "show", one["id"]).out for one in found}
    assert ("Z, then" in said["A?"], "Z, then it is rejected\n" in said["B?"]) == (False, True)


@also_served
def test_mine_are_those_of_whom_is_acted_for_and_that_none_are_is_told(
    flowengine: CommandLine,
) -> None:
    flowengine.write(
        "one.yaml",
        "flowengine: 1\nid: one\nsteps:\n"
        "  - {id: a, approval: {title: A?, assignees: ['user:ben']}}\n",
    )
    flowengine("run", "one.yaml", code=4)

    none = "error: no open approval matches these filters, nothing was decided\n"
    others = "1 is waiting for others: flowengine approvals list\n"
    assert flowengine("approve", "--all", "--mine", code=9).err == f"{none}  {others}"
    assert flowengine("approve", "--all", "--batch", "b", "--as", "ben", code=9).err == none
    assert (
        flowengine("approvals", "list", "--mine").err == f"nothing is waiting for you, but {others}"
    )
    assert "approved by user:ben" in flowengine("approve", "--all", "--mine", "--as", "ben").err


@also_served
def test_all_that_filters_leave_are_decided_after_a_dry_run(
    flowengine: CommandLine, trio: Path, wait: str
) -> None:
    flowengine("run", trio, code=4)

    dry = flowengine("approve", "--all", "--batch", "trio", "--dry-run")
    flowengine("approve", "--all", "--batch", "trio")

    assert [line.split("  ")[-1] for line in dry.out.splitlines()[1:]] == [
        "Keep 0?",
        "Keep 1?",
        "Keep 2?",
    ]
    assert dry.err == "3 would be decided, nothing was\n"
    [left] = flowengine("--json", "approvals", "list").json()
    assert left["id"].startswith(wait)


def test_a_dry_run_promises_only_what_the_user_may_decide(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "a": "{title: Mine?}",
        "b": "{title: Of another?, assignees: ['user:ben']}",
        "c": "{title: Excluded?, exclude: ['user:ana']}",
        "d": "{title: To be claimed?, claim: true}",
        "e": "{title: Late?, expires: 1h}",
    }
    steps = "".join(f"      - {{id: {id}, approval: {text}}}\n" for id, text in asked.items())
    flowengine.write(
        "five.yaml", f"flowengine: 1\nid: five\nsteps:\n  - id: all\n    parallel:\n{steps}"
    )
    flowengine("run", "five.yaml", code=4)
    monkeypatch.setattr("flowengine.cli.deciding.is_overdue", lambda due: True)

    dry = flowengine("approve", "--all", "--dry-run")
    listed = flowengine("--json", "approve", "--all", "--dry-run").json()

    assert [line.split("  ")[-1] for line in dry.out.splitlines()[1:]] == ["Mine?"]
    assert [wait["title"] for wait in listed] == ["Mine?"]
    assert dry.err.startswith("1 would be decided, nothing was\n")
    told = [line.partition(" would be refused: ")[2] for line in dry.err.splitlines()[1:]]
    assert told[:3] == [
        "user:ana may not decide it, but user:ben",
        "user:ana may not decide it, it is excluded",
        "it must be claimed first",
    ]
    assert told[3].startswith("it expired at 20")


@pytest.mark.parametrize("words", [[], ["a7f3", "--all"]])
def test_ids_or_all_have_to_be_given(flowengine: CommandLine, wait: str, words: list[str]) -> None:
    done = flowengine("approve", *words, code=2)

    assert done.err == (
        "error: give the ids of approvals, or --all with filters\n"
        "  list pending approvals: flowengine approvals list\n"
    )


@also_served
def test_lists_show_what_is_pending_and_what_was_decided(
    flowengine: CommandLine, wait: str
) -> None:
    pending = flowengine("approvals", "list", "--flow", "refund")
    flowengine("reject", wait, "--comment", "no")
    closed = flowengine("approvals", "list", "--status", "closed")

    assert pending.out.splitlines()[0].split() == [
        "ID", "EXECUTION", "FLOW", "SINCE", "EXPIRES", "TITLE",
    ]  # fmt: skip
    assert pending.out.splitlines()[1].endswith("Refund 80 EUR?")
    assert "rejected by user:ana" in closed.out
    assert "no approvals or questions are waiting in " in flowengine("approvals", "list").err


def test_all_about_an_approval_is_shown_with_ways_to_answer(
    flowengine: CommandLine, wait: str
) -> None:
    shown = steady(flowengine("approvals", "show", wait).out).replace(wait, "WAIT")

    assert shown == (
        "WAIT  Refund 80 EUR?\n"
        "  execution   refund EXECUTION, step ask\n"
        "  since       TIME\n"
        "  amount      80  (may be edited)\n"
        "  account     travel\n"
        '  form        cost_center: string, required, Cost centre, pattern "^[0-9]{4}$"\n'
        "  choice      approve: Approve\n"
        "  choice      reject: Reject  (needs a comment)\n"
        "  choice      later: Not now\n"
        "  approve     flowengine approve WAIT --form cost_center=VALUE\n"
        "  reject      flowengine reject WAIT --comment TEXT\n"
        "  later       flowengine approvals decide WAIT --choice later\n"
        "  edit        flowengine approve WAIT --form cost_center=VALUE --edit amount=VALUE\n"
    )


@also_served
def test_titles_cannot_control_the_terminal(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "evil.yaml",
        "flowengine: 1\nid: evil\ninputs: {t: {type: string}}\n"
        "steps:\n  - {id: a, approval: '${{ inputs.t }}'}\n",
    )
    evil = json.dumps({"t": "\x1b]0;owned\x07\u202eabc\nsecond line"})
    flowengine.write("evil.json", evil)

    done = flowengine("run", flow, "-i", "@evil.json", code=4)
    listed = flowengine("approvals", "list")

    for text in (done.err, listed.out):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "second line" not in text


@also_served
def test_a_refused_decision_is_kept_but_told_to_nobody_else(
    refund: Path, flowengine: CommandLine
) -> None:
    run = flowengine("run", refund, "-i", "amount=80", code=4)
    execution, [wait] = flowengine.newest(), run.ids
    refused = flowengine("approve", wait, "--form", "covr=1", code=3)

    why = flowengine("why", execution)
    resumed = flowengine("resume", execution, code=4)
    shown = flowengine("show", execution)

    assert "covr" in refused.err
    for told in (why, resumed, shown):
        assert "tried to decide" not in told.out + told.err
    assert "not processed yet" not in why.out
    assert "'covr' is not valid" in flowengine("events", execution).out


@pytest.mark.endurance
def test_a_question_after_a_crash_is_answered_with_the_result(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "pay.yaml",
        "flowengine: 1\nid: pay\nsteps:\n  - {id: pay, run: 'sleep 60'}\n"
        "outputs: {got: '${{ steps.pay.output }}'}\n",
    )
    process = flowengine.spawn("--json", "run", str(flow))
    flowengine.wait_until_running(process)
    process.kill()
    process.communicate()

    stalled = flowengine("resume", flowengine.newest(), code=5)
    [question] = stalled.ids
    done = flowengine("approvals", "decide", question, "--choice", "result", "--value", '{"id": 7}')

    assert "stalled: needs 1 decision\n" in stalled.err
    assert f"result     flowengine approvals decide {question} --choice result --value JSON" in (
        stalled.err
    )
    assert done.out == "got: {id: 7}\n"


@also_served
def test_an_approval_is_claimed_handed_on_and_decided(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flow = tmp_path / "sign.yaml"
    flow.write_text(
        """
flowengine: 1
id: sign
steps:
  - id: sign
    approval: {title: "Sure?", claim: true, assignees: ["user:ben", "user:ana"]}
    next: {outcome: {else: end}}
"""
    )
    run = flowengine("run", flow, code=4)
    [wait] = re.findall(r"approvals claim (\w+)", run.err)
    assert "must be claimed" in flowengine("approvals", "show", wait).out
    assert "has to be claimed" in flowengine("approve", wait, "--as", "ben", code=7).err

    claimed = flowengine("approvals", "claim", wait, "--as", "ben")
    assert steady(claimed.out) == f"{wait} claimed by user:ben at TIME\n"
    assert (
        "claimed by user:ben" in flowengine("approvals", "claim", wait, "--as", "ana", code=7).err
    )
    assert "user:ben" in flowengine("approvals", "list").out
    assert "may not claim" in flowengine("approvals", "claim", wait, "--as", "eve", code=8).err

    handed = flowengine(
        "approvals", "delegate", wait, "--to", "cleo", "--comment", "yours", "--as", "ben"
    )
    assert steady(handed.out) == f"{wait} delegated to user:cleo by user:ben at TIME\n"
    shown = flowengine("approvals", "show", wait).out
    assert "claimed by  user:cleo" in shown
    assert re.search(r"delegated to user:cleo by user:ben at \S+ via cli.*: yours", shown)
    assert "delegated it" in flowengine("approve", wait, "--as", "ben", code=8).err
    assert "no approval" in flowengine("approvals", "claim", "f" * 16, code=9).err

    back = flowengine("approvals", "release", wait, "--as", "cleo")
    assert steady(back.out) == f"{wait} released by user:cleo at TIME\n"
    told = json.loads(flowengine("approvals", "claim", wait, "--as", "cleo", "--json").out)
    assert (told["claimed_by"], len(told["handed"])) == ("user:cleo", 4)
    flowengine("approve", wait, "--as", "cleo")


TIMED = """\
flowengine: 1
id: timed
steps:
  - id: ask
    approval:
      title: Pay?
      expires: EXPIRES
      on_expire: reject
      remind: {every: 1d}
      escalate: [{after: 2d, to: ["user:zoe"]}, {after: 3d, to: ["user:max"]}]
"""


@also_served
def test_what_time_will_do_to_an_approval_is_shown(flowengine: CommandLine) -> None:
    flowengine("run", flowengine.write("timed.yaml", TIMED.replace("EXPIRES", "7d")), code=4)
    newest = flowengine.newest()
    [wait] = flowengine("--json", "show", newest).json()["waits"]

    assert [timer["what"] for timer in wait["timers"]] == ["reminder", "escalation", "expiry"]
    assert wait["timers"][-1]["due"] == wait["due"]
    [reason] = flowengine("--json", "why", newest).json()
    assert reason["timers"] == wait["timers"]
    for view in (["show", newest], ["why", newest], ["approvals", "show", wait["id"]]):
        told = flowengine(*view).out
        for timer in wait["timers"][:2]:
            assert re.search(f"{timer['what']} +{timer['due'][:19]}", told)


def test_the_bounds_of_a_form_are_shown(flowengine: CommandLine) -> None:
    fields = {
        "code": {"type": "string", "minLength": 2, "maxLength": 8, "default": "none"},
        "part": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "days": {"type": "array", "minItems": 1, "maxItems": 5, "items": {"format": "date"}},
        "on": {"type": "string", "format": "date", "description": "From when"},
    }
    form = json.dumps({"type": "object", "required": ["code", "on"], "properties": fields})
    flow = flowengine.write(
        "form.yaml",
        f"flowengine: 1\nid: form\nsteps: [{{id: a, approval: {{title: A?, form: {form}}}}}]\n",
    )
    [wait] = flowengine("run", flow, code=4).ids

    shown = flowengine("approvals", "show", wait).out

    assert f"  approve     flowengine approve {wait} --form on=VALUE\n" in shown
    assert [line[14:] for line in shown.split("\n") if line.startswith("  form ")] == [
        "code: string, default none, minimum length 2, maximum length 8",
        "part: number or null, greater than 0, at most 1",
        "days: array, minimum length 1, maximum length 5",
        "on: string, required, From when, format date",
    ]


@also_served
def test_what_would_come_after_the_expiry_is_not_shown(flowengine: CommandLine) -> None:
    flowengine("run", flowengine.write("timed.yaml", TIMED.replace("EXPIRES", "36h")), code=4)
    [wait] = flowengine("--json", "show", flowengine.newest()).json()["waits"]

    assert [timer["what"] for timer in wait["timers"]] == ["reminder", "expiry"]


@also_served
@pytest.mark.parametrize(
    ("on_expire", "outcome", "told"),
    [("", "expired", "expired"), ("on_expire: reject", "reject", "expired: rejected")],
)
def test_an_expired_approval_is_shown_as_expired(
    flowengine: CommandLine, on_expire: str, outcome: str, told: str
) -> None:
    text = TIMED.partition("      remind")[0].replace("on_expire: reject", on_expire)
    flow = flowengine.write("timed.yaml", f"{text}    next: {{outcome: {{else: end}}}}\n")
    flow.write_text(flow.read_text().replace("EXPIRES", "10ms"))

    ran = flowengine("run", flow)
    [step] = flowengine("--json", "show", flowengine.newest()).json()["steps"]
    [shown] = [
        line for line in flowengine("show", flowengine.newest()).out.split("\n") if "  ask " in line
    ]

    assert step["outcome"] == outcome
    assert re.search(rf"\n  ask +succeeded +{told}\n", ran.err)
    assert re.search(rf"  {told}$", shown)


def test_an_overdue_approval_is_shown_as_overdue(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowengine("run", flowengine.write("timed.yaml", TIMED.replace("EXPIRES", "7d")), code=4)
    newest = flowengine.newest()
    [wait] = flowengine("--json", "approvals", "list").json()
    assert "overdue" not in flowengine("approvals", "list").out

    late = time.time() + 8 * 86_400
    monkeypatch.setattr(time, "time", lambda: late)
    monkeypatch.setattr(time, "time_ns", lambda: int(late * 1e9))

    assert " overdue" in flowengine("approvals", "list").out
    assert re.search(r"overdue +since ", flowengine("show", newest).out)
    shown = flowengine("approvals", "show", wait["id"]).out
    assert re.search(r"overdue +since .*, then it is rejected", shown)
    why = flowengine("why", newest).out
    assert "(overdue)" in why
    for told in (shown, why, flowengine("show", newest).out):
        assert f"flowengine resume {newest[:12]}\n" in told
        assert "flowengine approve" not in told


@also_served
def test_an_event_of_a_timer_says_why_it_was_set(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "nap.yaml", "flowengine: 1\nid: nap\nsteps:\n  - {id: rest, wait: 1ms}\n"
    )
    live = flowengine("run", flow, "--events").out

    assert re.search(r" timer +rest +why=wait", flowengine("events", flowengine.newest()).out)
    assert '"address": "rest", "why": "wait"' in live


UNSURE = """\
flowengine: 1
id: unsure
steps:
  - {id: pay, run: {script: "touch begun; sleep 60", cwd: .}, effect: once}
"""


def test_all_takes_questions_too(flowengine: CommandLine) -> None:
    running = flowengine.spawn("run", str(flowengine.write("unsure.yaml", UNSURE)))
    while not (flowengine.folder / "begun").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.communicate()
    execution = flowengine.newest()
    flowengine("resume", execution, "--no-interactive", code=5)

    words = ["approvals", "decide", "--all", "--execution", execution, "--choice"]
    wrong = flowengine(*words, "later", code=9).err
    assert (
        "offers the choice 'later', nothing was decided\n  choices are: retry, result, fail"
        in wrong
    )
    assert "'result' needs a value" in flowengine(*words, "result", code=3).err
    assert "'retry' takes no value" in flowengine(*words, "retry", "--value", "4", code=3).err
    assert "failed" in flowengine(*words, "fail", code=1).err
    assert "nothing was decided" in flowengine(*words, "fail", code=9).err


@also_served
def test_what_nobody_decides_on_says_what_it_waits_for(flowengine: CommandLine) -> None:
    flow = """\
flowengine: 1
id: three
state: {open: {type: boolean, default: false}}
signals: {go: {}}
steps:
  - parallel:
      - {id: a, wait: 1d}
      - {id: b, wait: {signal: go}}
      - {id: c, wait: {when: "${{ state.open }}"}}
    id: all
"""
    flowengine("run", flowengine.write("three.yaml", flow), code=4)
    waits = flowengine("--json", "show").json()["waits"]
    ends = {"timer": "time", "signal": "a message", "state": "a value in the state"}
    assert sorted(one["kind"] for one in waits) == sorted(ends)

    for wait in waits:
        for words in (["approve"], ["reject"], ["approvals", "decide", "--choice", "yes"]):
            assert flowengine(*words, wait["id"], code=7).err == (
                f"error: {wait['id'][:4]} waits for {ends[wait['kind']]}, not for a decision\n"
                f"  see what ends it: flowengine approvals show {wait['id']}\n"
            )
