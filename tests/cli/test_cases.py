# Shows F71
"""`flowengine test`: many cases, cases without end, reports. `cases.md` has the rest (F71)."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.conftest import CommandLine
from tests.transcripts import write_files

REPLY = "{return: {status: 200, headers: {}, body: 7}}"


def cases(*texts: str) -> str:
    return "groups: {bosses: [ann, ben, cleo]}\ncases:\n" + "".join(
        f"  - {text.strip()}\n" for text in texts
    )


@pytest.fixture
def order(flowengine: CommandLine) -> CommandLine:
    write_files(Path(__file__).with_name("cases.md").read_text().partition("\n## ")[0])
    return flowengine


def test_an_execution_without_end_fails_its_case(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowengine.testing.player.MOST_TURNS", 1000)
    flowengine.write(
        "spin.yaml",
        """\
flowengine: 1
id: spin
limits: {activations: 100000000, steps: 100000000}
inputs: {go: {type: boolean, default: true}}
steps:
  - {id: a, wait: 1s, next: {first: [{when: "${{ inputs.go }}", to: a}, {else: end}]}}
""",
    )
    flowengine.write("spin.test.yaml", "cases: [{name: a, until: 10m}, {name: b}]\n")

    done = flowengine("test", code=1)

    assert "status: expected succeeded, it is waiting" in done.out
    assert "the execution does not end" in done.out


# Shows F72
def test_items_may_be_named_by_any_text(flowengine: CommandLine) -> None:
    """This includes recorded cases: slashes, brackets and quotes in a key are part of its name."""
    people = ["ana@example.com", "ana@other.org", "a/b#2", "a/b#3", "c]d", "[e", "x\ny"]
    flowengine.write(
        "each.yaml",
        "flowengine: 1\nid: each\nsteps:\n"
        "  - id: each\n"
        f"    map: {{over: {json.dumps(people)}, as: who, key: '${{{{ who }}}}'}}\n"
        "    group:\n      - {id: send, call: std.print, with: {text: '${{ who }}'}}\n"
        "      - {id: sign, approval: Fine?}\n",
    )
    flowengine("run", "each.yaml", "--id", "e1", code=4)
    flowengine("approve", "--all")
    flowengine("test", "each.yaml", "--from", "e1")
    flowengine("test", "each.yaml")

    path = yaml.safe_load(Path("each.test.yaml").read_text())["cases"][0]["expect"]["path"]
    ways = [f"each[{who}]{rest}" for who in people for rest in ("", "/send", "/sign")]
    assert sorted(path) == sorted(["each", *ways])


def test_a_steered_agent_becomes_a_case(flowengine: CommandLine) -> None:
    flowengine.write("desk.py", "def refund(order: int) -> str:\n    return 'refunded'\n")
    flowengine.write("replies.yaml", "- calls: [{name: refund, arguments: {order: 7}}]\n- Oui.\n")
    flowengine.write(
        "desk.yaml",
        "flowengine: 1\nid: desk\n"
        "tools: {refund: {python: 'desk:refund', effect: once, approval: required}}\n"
        "agents: {desk: {instructions: Help., model: scripted/replies.yaml, tools: [refund]}}\n"
        "steps: [{id: answer, agent: desk, with: {prompt: Hi.}}]\n",
    )
    flowengine("run", "desk.yaml", "--id", "it", code=4)
    flowengine("signal", "it", "agent.steer", "--text", "In French.", "--no-resume")
    flowengine("approve", "--all")

    flowengine("test", "desk.yaml", "--from", "it")

    [case] = yaml.safe_load((flowengine.folder / "desk.test.yaml").read_text())["cases"]
    assert [one["name"] for one in case["signals"]] == ["agent.steer"]
    assert "content: In French." in (flowengine.folder / "desk.test.yaml").read_text()
    assert flowengine("test", "-q").out.endswith("1 passed\n")
    flowengine.write(
        "desk.test.yaml", "cases: [{name: a, signals: [{name: agent.stear, data: Quickly.}]}]\n"
    )
    assert "no signal 'agent.stear'" in flowengine("test", code=3).err


def test_results_are_written_as_junit_xml(order: CommandLine) -> None:
    order.write("order.test.yaml", cases(
        f"{{name: 'small & <good>', inputs: {{amount: 5}}, tools: {{charge: [{REPLY}]}},"
        " signals: [{at: 1d, name: paid, data: 1}], expect: {status: succeeded}}",
        'name: "bad \\"one\\" \\e[31m\\u202e\\uFFFE"\n    inputs: {amount: 5}\n'
        f"    tools: {{charge: [{REPLY}]}}\n    expect: {{outputs: {{late: 'a<b>&]]>'}}}}",
    ))  # fmt: skip
    order.write("broken.yaml", "flowengine: 1\nid: broken\nsteps: [{id: a, outptu: 1}]\n")
    order.write("broken.test.yaml", "cases: [{name: x, expect: {}}]\n")
    shown = order("test", "--junit", "reports/results.xml", code=3)
    assert "1 passed, 1 failed" in shown.out
    text = (order.folder / "reports" / "results.xml").read_text()
    assert text.startswith("<?xml version='1.0' encoding='utf-8'?>\n<testsuites ")
    root = ElementTree.fromstring(text)
    totals = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert totals == {"tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    by_file = {suite.get("name"): suite for suite in root}
    assert by_file.keys() == {"order.test.yaml", "broken.test.yaml"}
    good, bad = by_file["order.test.yaml"]
    assert (good.get("name"), good.get("classname"), len(good)) == ("small & <good>", "order", 0)
    assert bad.get("name") == 'bad "one" \ufffd[31m\ufffd\ufffd'
    [failure] = bad
    assert failure.tag == "failure"
    told = str(failure.get("message"))
    assert told.endswith(': outputs: late: expected "a<b>&]]>", found "too late"')
    assert "a<b>&]]>" in str(failure.text)
    assert str(failure.text).startswith("order.test.yaml:")
    assert float(str(good.get("time"))) >= 0
    [[error]] = by_file["broken.test.yaml"]
    assert (error.tag, "outptu" in str(error.text)) == ("error", True)

    assert "--junit" in order("test", "--from", "x", "--junit", "r.xml", code=2).err
    order.write("taken", "")
    said = order("test", "order.yaml", "--junit", "taken/x.xml", code=2).err
    assert "cannot be written: taken is not a directory" in said
    assert "./-" in order("test", "order.yaml", "--junit", "-", code=2).err
