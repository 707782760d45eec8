"""Calls that require approval: every kind of tool, every decision, several processes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import Conflict, FlowFileError, InputError, NotAllowed, NotFound
from tests.engines.world import Clock

SERVER = [sys.executable, str(Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py")]
FUNCTIONS = """
import json

def transfer(amount: float, to: str, note: str = "", key: str = "", account: str = "main") -> dict:
    with open("sent.txt", "a") as file:
        file.write(json.dumps([amount, to, note, key, account]) + "\\n")
    return {"sent": amount}

def undo(amount: float) -> None:
    with open("sent.txt", "a") as file:
        file.write(json.dumps(["undone", amount]) + "\\n")
"""
TOOL = """
secrets: {KEY: {env: BANK_KEY}}
inputs: {account: {type: string, default: main}}
tools:
  transfer:
    python: bank:transfer
    bind: {key: "${{ secrets.KEY }}", account: "${{ inputs.account }}"}
    approval: APPROVAL
"""
STEP = """
steps:
  - {id: pay, call: transfer, with: {amount: 500, to: ana}}
outputs: {o: "${{ steps.pay.output }}"}
"""


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BANK_KEY", "c4n4ry")
    Path("bank.py").write_text(FUNCTIONS)


def write(approval: str, rest: str = STEP) -> str:
    flow = f"flowengine: 1\nid: pay\n{TOOL.replace('APPROVAL', approval)}{rest}"
    Path("flow.yaml").write_text(flow)
    return "flow.yaml"


def sent() -> list[Any]:
    file = Path("sent.txt")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def everything_stored() -> bytes:
    return b"".join(path.read_bytes() for path in Path("store").rglob("*") if path.is_file())


def test_what_runs_is_shown_with_secrets_masked_and_is_approved_by_another_process() -> None:
    with Engine("store") as engine:
        result = engine.run(write("ask"))
        [wait] = result.waits
    assert (result.status, sent()) == ("waiting", [])
    assert wait["tool"] == "transfer"
    assert wait["title"] == "Call 'transfer'?"
    assert wait["subject"] == {"amount": 500, "to": "ana", "key": "***", "account": "main"}
    assert wait["bound"] == ["account", "key"]
    assert wait["address"] == "pay"

    with Engine("store") as engine:
        done = engine.approve(wait["id"]).result

    assert done is not None
    assert done.outputs == {"o": {"sent": 500}}
    assert sent() == [[500, "ana", "", "c4n4ry", "main"]]
    assert b"c4n4ry" not in everything_stored()


@pytest.mark.parametrize(
    ("approval", "waits"),
    [
        ("none", False),
        ("ask", True),
        ("required", True),
        ('"${{ args.amount > 100 }}"', True),
        ('"${{ args.amount > 1000 }}"', False),
        ('{when: "${{ args.to == inputs.account }}"}', False),
        ('{when: "${{ args.account == inputs.account }}", required: true}', True),
    ],
)
def test_when_people_are_asked(approval: str, waits: bool) -> None:
    with Engine("store") as engine:
        result = engine.run(write(approval))
    assert (result.status == "waiting") is waits
    assert len(sent()) == (not waits)


def test_an_edit_runs_and_both_versions_are_in_the_history() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write("{edit: true}")).waits
        assert wait["edit"] == ["amount", "to", "note"]
        result = engine.approve(wait["id"], edit={"amount": 20, "note": "less"}).result
        closed = engine.wait(wait["id"])
        [step] = engine.show(wait["execution"], step="pay")["steps"]
        [listed] = engine.show(wait["execution"])["steps"]

    assert step["subject"]["amount"] == 500
    assert step["input"]["args"]["amount"] == 20
    assert "subject" not in listed
    assert result is not None
    assert result.outputs == {"o": {"sent": 20}}
    assert sent() == [[20, "ana", "less", "c4n4ry", "main"]]
    assert closed["subject"]["amount"] == 500
    assert closed["decision"]["edits"] == {"amount": 20, "note": "less"}


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        ({"amount": "much"}, "amount"),
        ({"to": 7}, "to"),
        ({"key": "mine"}, "key"),
        ({"account": "other"}, "account"),
        ({"colour": "red"}, "colour"),
        ({"to.name": "x"}, "to"),
    ],
)
def test_a_wrong_edit_is_refused_with_its_field_and_the_question_stays_open(
    edits: dict[str, Any], field: str
) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write("{edit: true}")).waits

        with pytest.raises(InputError, match=field):
            engine.approve(wait["id"], edit=edits)

        assert engine.wait(wait["id"])["status"] == "pending"
        assert sent() == []
        engine.approve(wait["id"])
    assert len(sent()) == 1


def test_only_the_arguments_that_are_named_can_be_edited() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write("{edit: [note]}")).waits
        with pytest.raises(InputError, match="'amount' may not be edited"):
            engine.approve(wait["id"], edit={"amount": 1})
        engine.approve(wait["id"], edit={"note": "n"})
    assert sent() == [[500, "ana", "n", "c4n4ry", "main"]]


def test_a_response_is_the_result_and_is_checked_like_one() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write("ask")).waits
        with pytest.raises(InputError, match="the result"):
            engine.respond(wait["id"], "by hand")
        result = engine.respond(wait["id"], {"sent": 1}, comment="by hand").result

    assert result is not None
    assert result.outputs == {"o": {"sent": 1}}
    assert sent() == []


def test_what_was_answered_by_hand_is_not_undone() -> None:
    rest = """
steps:
  - id: pay
    call: transfer
    with: {amount: 500, to: ana}
    compensate: {python: "bank:undo", with: {amount: 500}}
  - {id: stop, fail: {type: Stop, message: stop}}
on_error: compensate
"""
    with Engine("store") as engine:
        [wait] = engine.run(write("ask", rest)).waits
        assert engine.respond(wait["id"], {"sent": 1}).result.status == "failed"  # type: ignore[union-attr]
        assert sent() == []

        [wait] = engine.run("flow.yaml").waits
        engine.approve(wait["id"])
    assert sent()[-1] == ["undone", 500]


@pytest.mark.parametrize("type", ["Rejected", "Expired"])
def test_a_refusal_is_an_error_that_is_routed(type: str, clock: Clock) -> None:
    rest = f"""
steps:
  - id: pay
    call: transfer
    with: {{amount: 500, to: ana}}
    on_error: [{{type: {type}, next: no}}]
    next: end
  - {{id: no, output: "${{{{ steps.pay.error.message }}}}"}}
outputs: {{o: "${{{{ steps.no.output }}}}"}}
"""
    with Engine("store", clock=clock) as engine:
        [wait] = engine.run(write("{expires: 1h}", rest)).waits
        if type == "Rejected":
            result = engine.reject(wait["id"], comment="too much", by="user:ben").result
        else:
            clock.time += 3_600_000
            result = engine.resume(wait["execution"])
            with pytest.raises(Conflict, match="expired"):
                engine.approve(wait["id"])

    assert result is not None
    assert result.outputs is not None
    said = (
        "rejected by user:ben: too much" if type == "Rejected" else "it expired without a decision"
    )
    assert result.outputs["o"] == f"'transfer' was not called: {said}"
    assert sent() == []


def test_who_may_decide_is_as_for_every_approval() -> None:
    asks = '{title: "Send ${{ args.amount }} to ${{ args.to }}?", assignees: ["user:ana"]}'
    with Engine("store") as engine:
        [wait] = engine.run(write(asks)).waits
        assert wait["title"] == "Send 500 to ana?"
        with pytest.raises(NotAllowed):
            engine.approve(wait["id"], by="user:ben")
        with pytest.raises(NotFound):
            engine.approve("ffff")
        with pytest.raises(InputError, match="no choice 'later'"):
            engine.decide(wait["id"], "later", by="user:ana")
        assert sent() == []
        engine.approve(wait["id"], by="user:ana")
        assert engine.approve(wait["id"], by="user:ana").first is False
        with pytest.raises(Conflict, match="already approved by user:ana"):
            engine.reject(wait["id"], by="user:ana")
    assert len(sent()) == 1


def test_who_tried_to_decide_and_could_not_is_in_the_history() -> None:
    asks = '{assignees: ["user:ana"], edit: true}'
    with Engine("store") as engine:
        [wait] = engine.run(write(asks)).waits
        with pytest.raises(NotAllowed):
            engine.approve(wait["id"], by="user:ben")
        with pytest.raises(InputError):
            engine.decide(wait["id"], "later", by="user:ana")
        with pytest.raises(InputError):
            engine.approve(wait["id"], edit={"amount": "s3cret"}, by="user:ana")
        assert engine.wait(wait["id"])["status"] == "pending"
        assert "tried to decide" not in str(engine.why(wait["execution"]))
        engine.approve(wait["id"], by="user:ana")
        events = engine.events(wait["execution"])
        told = [one["message"] for one in events if one["type"] == "warning"]
        assert engine.show(wait["execution"])["warnings"] == []
    assert [one.partition(" tried to decide on ")[0] for one in told] == [
        "user:ben", "user:ana", "user:ana",
    ]  # fmt: skip
    assert "assignees are user:ana" in told[0]
    assert told[1].endswith("'choice' is not valid")
    assert "s3cret" not in str(told)


TOOLS = {
    "shell": """{shell: {argv: [sh, -c, "echo $0 >> sent.txt", "${{ args.n }}"]},
      args: {properties: {n: {type: integer}}, required: [n]}, approval: {edit: true}}""",
    "http": """{http: {method: POST, url: "http://127.0.0.1:1/${{ args.n }}"},
      args: {properties: {n: {type: integer}}, required: [n]}, approval: ask}""",
    "flow": "{flow: inner, approval: {edit: [n]}}",
}


@pytest.mark.parametrize("kind", TOOLS)
def test_every_kind_of_tool_asks(kind: str) -> None:
    Path("flow.yaml").write_text(
        f"""
flowengine: 1
id: it
tools: {{t: {TOOLS[kind]}}}
flows:
  inner:
    inputs: {{n: {{type: integer}}}}
    steps: [{{id: s, output: "${{{{ inputs.n }}}}"}}]
    outputs: {{n: "${{{{ steps.s.output }}}}"}}
steps: [{{id: a, call: t, with: {{n: 1}}}}]
outputs: {{o: "${{{{ steps.a.output }}}}"}}
""".replace("environments: {box: {kind: host}}\n", "").replace(", in: box", "")
    )
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        assert (wait["tool"], wait["subject"]) == ("t", {"n": 1})
        if kind == "http":
            result = engine.approve(wait["id"]).result
            assert result is not None
            assert "127.0.0.1:1" in json.dumps(result.error)
            return
        result = engine.approve(wait["id"], edit={"n": 2}).result
    assert result is not None
    assert result.outputs is not None
    if kind == "flow":
        assert result.outputs["o"] == {"n": 2}
    else:
        assert result.outputs["o"]["exit_code"] == 0


def test_every_tool_of_a_server_asks() -> None:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
tools:
  box: {{mcp: {{command: {json.dumps(SERVER)}}}, approval: {{edit: true}}}}
steps: [{{id: a, call: box.count, with: {{text: one}}}}]
outputs: {{o: "${{{{ steps.a.output }}}}"}}
""")
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        assert (wait["tool"], wait["subject"]) == ("box.count", {"text": "one"})
        assert wait["edit"] == ["text"]
        result = engine.approve(wait["id"], edit={"text": "two"}).result
    assert result is not None
    assert result.outputs is not None
    assert "1" in json.dumps(result.outputs["o"])


TWENTY = """
steps:
  - {id: pay, map: {over: "${{ range(20) }}", concurrency: 2},
     call: transfer, with: {amount: "${{ double(item) }}", to: "${{ string(item) }}"}}
"""
DECIDER = """
import sys
from flowengine import Engine
from flowengine.errors import FlowEngineError
with Engine("store") as engine:
    for wait in sys.argv[1:]:
        try:
            engine.approve(wait)
        except FlowEngineError as error:
            print(error)
"""


@pytest.mark.endurance
def test_many_are_answered_in_any_order_by_several_processes() -> None:
    with Engine("store") as engine:
        result = engine.run(write("ask", TWENTY))
        waits = [wait["id"] for wait in result.waits]
        assert len(waits) == 20
        random.Random(7).shuffle(waits)
        deciders = [
            subprocess.Popen([sys.executable, "-c", DECIDER, *waits[n::3], *waits[n + 1 :: 9]])
            for n in range(4)
        ]
        for decider in deciders:
            decider.communicate(timeout=120)
        final = engine.resume(result.execution)

    assert final.status == "succeeded"
    assert sorted(row[0] for row in sent()) == list(range(20))
    assert all(str(int(row[0])) == row[1] for row in sent())


def test_approving_twice_at_once_runs_it_once() -> None:
    with Engine("store") as engine:
        path = write("ask")
        for round in range(20):
            [wait] = engine.run(path).waits

            def approve(_: int, wait: str = wait["id"]) -> bool:
                with Engine("store") as other:
                    return other.approve(wait, resume=False).first

            with ThreadPoolExecutor(2) as pool:
                assert sorted(pool.map(approve, range(2))) == [False, True]
            engine.resume(wait["execution"])
            assert len(sent()) == round + 1


RESUMER = """
import os, signal, sys
from flowengine import Engine
from flowengine.engines.running.driver import Driver
engine = Engine("store")
if sys.argv[2] == "recorded":
    engine.approve(sys.argv[1], edit={"amount": 7}, resume=False)
    os.kill(os.getpid(), signal.SIGKILL)
Driver.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
engine.approve(sys.argv[1], edit={"amount": 7})
"""


@pytest.mark.parametrize("when", ["recorded", "journaled"])
def test_killed_between_decision_and_run_what_was_approved_runs_once(when: str) -> None:
    with Engine("store") as engine:
        path = write("{edit: true}")
        text = (
            Path(path).read_text().replace("    approval", "    effect: idempotent\n    approval")
        )
        Path(path).write_text(text)
        [wait] = engine.run(path).waits
    words = [sys.executable, "-c", RESUMER, wait["id"], when]
    killed = subprocess.run(words, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert sent() == []

    with Engine("store") as engine:
        result = engine.resume(wait["execution"])

    assert result.status == "succeeded"
    assert sent() == [[7, "ana", "", "c4n4ry", "main"]]


def test_arguments_that_do_not_fit_are_refused_before_anybody_is_asked() -> None:
    rest = STEP.replace("amount: 500", 'amount: "${{ inputs.given }}"')
    tool = TOOL.replace("default: main}", "default: main}, given: {default: x}")
    Path("flow.yaml").write_text(f"flowengine: 1\nid: pay\n{tool.replace('APPROVAL', 'ask')}{rest}")
    with Engine("store") as engine:
        result = engine.run("flow.yaml", {"given": "much"})
    assert result.error is not None
    assert result.error["type"] == "ValidationError"
    assert "amount" in result.error["message"]


@pytest.mark.parametrize(
    ("approval", "message"),
    [
        ("{edit: [key]}", "fixes the argument 'key'"),
        ("{edit: [colour]}", "no argument 'colour'"),
        ("{edit: true, need: 2}", "all voters must see the same call"),
        ("{expires: 1h, on_expire: respond}", "which an expiry cannot supply"),
        ("{choices: [approve, {id: respond, counts_as: approve}]}", "counts as 'other'"),
        ('"${{ args.colour }}"', "colour"),
        ("{subject: 1}", "subject"),
        ("sometimes", "sometimes"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_flow_is_checked(
    approval: str, message: str
) -> None:
    with Engine("store") as engine, pytest.raises(FlowFileError, match=message):
        engine.run(write(approval))


@pytest.mark.parametrize(
    ("change", "asked_anew"),
    [
        (("- {id: pay,", "- {id: pay, title: Pay,"), False),
        (("approval: ask", "approval: {assignees: ['user:ana']}"), False),
        (("account: string", "account: string, description: x"), False),
        (("bank:transfer", "bank:send"), True),
        (('"${{ inputs.account }}"', "savings"), True),
    ],
)
def test_moved_to_another_form_of_the_tool_it_is_asked_again(
    change: tuple[str, str], asked_anew: bool
) -> None:
    other = FUNCTIONS.replace("def transfer", "def send").replace("def undo", "def other")
    Path("bank.py").write_text(FUNCTIONS + other)
    path = write("ask")
    with Engine("store") as engine:
        [wait] = engine.run(path).waits
        Path(path).write_text(Path(path).read_text().replace(*change))
        engine.upgrade(path, wait["execution"])
        [after] = engine.show(wait["execution"])["waits"]
        assert (after["id"] != wait["id"]) is asked_anew
        if asked_anew:
            assert after["digest"] != wait["digest"]
            with pytest.raises(Conflict, match="withdrawn"):
                engine.approve(wait["id"])
            assert sent() == []
        engine.approve(after["id"], by="user:ana")
    assert len(sent()) == 1


def test_moved_to_rules_that_deny_it_is_refused_though_it_was_approved() -> None:
    path = write("ask")
    with Engine("store") as engine:
        [wait] = engine.run(path).waits
        text = Path(path).read_text()
        Path(path).write_text(f"{text}policies: [{{deny: transfer}}]\n")
        engine.upgrade(path, wait["execution"])
        result = engine.resume(wait["execution"])
    assert result.error is not None
    assert result.error["type"] == "Refused"
    assert sent() == []
