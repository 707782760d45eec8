"""`flowengine test`: test cases of a flow, run offline on virtual time (F71)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.conftest import CommandLine

FLOW = """\
flowengine: 1
id: order
inputs: {amount: {type: number}}
secrets: {KEY: {env: NOT_SET_ANYWHERE}}
signals: {paid: {data: {type: integer}}}
state: {seen: {type: array, default: [], reducer: append}}
tools:
  charge:
    http: {method: POST, url: "https://pay.example.com", headers: {k: "${{ secrets.KEY }}"}, body: "${{ args }}"}
    args: {type: object, properties: {amount: {type: number}}, required: [amount]}
    effect: once
steps:
  - id: ask
    when: ${{ inputs.amount > 100 }}
    approval: {title: Sure?, assignees: ["group:bosses"], exclude: ["${{ execution.started_by }}"], need: 2, expires: 7d}
    next: {outcome: {approve: charge, reject: end, expired: late, skipped: charge}}
  - id: charge
    call: charge
    with: {amount: "${{ inputs.amount }}"}
    set: {seen: charged}
    on_error:
      - {type: HttpError, next: late}
    next: wait
  - id: wait
    wait: {first: [{id: paid, signal: paid}, {id: never, for: 30d}]}
    next: {outcome: {paid: end, never: late}}
  - {id: late, output: too late}
outputs: {late: "${{ default(steps.late.output, 'no') }}"}
"""  # noqa: E501
REPLY = "{return: {status: 200, headers: {}, body: 7}}"


def cases(*texts: str) -> str:
    return "groups: {bosses: [ann, ben, cleo]}\ncases:\n" + "".join(
        f"  - {text.strip()}\n" for text in texts
    )


@pytest.fixture
def order(flowengine: CommandLine) -> CommandLine:
    flowengine.write("order.yaml", FLOW)
    return flowengine


def test_cases_pass_in_milliseconds_of_real_time_without_network_or_secret(
    order: CommandLine,
) -> None:
    order.write(
        "order.test.yaml",
        cases(
            """name: approved by two, paid after weeks
    inputs: {amount: 500}
    approvals: {ask: [{after: 1d, by: ann, choice: approve}, {after: 6d, by: ben, choice: approve}]}
    tools: {charge: [{with: {amount: 500}, return: {status: 200, headers: {}, body: 7}}]}
    signals: [{at: 20d, name: paid, data: 3}]
    expect: {path: [ask, charge, wait], outputs: {late: "no"}, state: {seen: [charged]}}""",
            f"""name: small
    inputs: {{amount: 5}}
    tools: {{charge: [{REPLY}]}}
    expect: {{path: [charge, wait, late], outputs: {{late: too late}}}}""",
            """name: nobody
    inputs: {amount: 500}
    expect: {path: [ask, late]}""",
        ),
    )
    begun = time.monotonic()

    done = order("test", "order.yaml")

    assert time.monotonic() - begun < 600  # real time for 20 virtual days
    assert done.out == (
        "ok     order.test.yaml: approved by two, paid after weeks\n"
        "ok     order.test.yaml: small\n"
        "ok     order.test.yaml: nobody\n"
        "order.yaml: 10 of 12 branches taken\n"
        "  order.yaml:13:9: ask: outcome reject never occurred\n"
        "  order.yaml:17:9: charge: on_error entry HttpError → next never used\n"
        "3 passed\n"
    )


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (
            "{name: x, inputs: {amount: 5}}",
            "3:5: 'charge' makes a call, and the case has no answer for it. "
            "Add: tools: {charge: [{return: ...}]}",
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: []}}",
            "'charge' makes one more call than tools.charge has answers (0): add one to the list",
        ),
        (
            f"{{name: x, inputs: {{amount: 5}}, tools: {{charge: [{REPLY}, {REPLY}]}}}}",
            "tools.charge: this answer was not used",
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: [{with: {amount: 6}, return: 1}]}}",
            "'charge' is called with other arguments than the case expects:\n"
            "         amount: expected 6, found 5",
        ),
        (
            "{name: x, inputs: {amount: big}}",
            "3:32: the flow refuses the inputs: input 'amount'",
        ),
        (
            "{name: x, inputs: {amount: 500}, by: ann, "
            "approvals: {ask: {by: ann, choice: approve}}}",
            "the decision on 'ask' is refused: user:ann may not decide on 'Sure?': "
            "it excludes user:ann",
        ),
        (
            "{name: x, inputs: {amount: 500}, approvals: {ask: {by: dan, choice: approve}}}",
            "user:dan may not decide on 'Sure?': assignees are group:bosses",
        ),
        (
            "{name: x, inputs: {amount: 500}, approvals: {ask: {by: ann, choice: maybe}}}",
            "there is no choice 'maybe'; choices: approve, reject",
        ),
        (
            "{name: x, inputs: {amount: 500}, approvals: {ask: {by: ann}}}",
            "add the 'choice' that decides 'ask': approve, reject",
        ),
        (
            "{name: x, inputs: {amount: 500}, expect: {waits: [ask]}, "
            "approvals: {ask: {by: ann, choice: approve, refused: true}}}",
            "the decision on 'ask' is not refused",
        ),
        (
            "{name: x, inputs: {amount: 500}, expect: {path: [ask]}, "
            "approvals: {ask: [{after: 8d, by: ann, choice: reject}]}}",
            "approvals.ask: this decision was not made",
        ),
        (
            "{name: x, inputs: {amount: 500}, "
            "approvals: {ask: [{by: ann, choice: reject}, {by: ben, choice: reject}]}}",
            "approvals.ask: this decision was not made",
        ),
        (
            "{name: x, inputs: {amount: 500}, expect: {path: [ask, wait]}}",
            "path\n           ask\n         - wait\n         + late",
        ),
        (
            "{name: x, inputs: {amount: 500}, expect: {outputs: {late: soon}}}",
            'outputs\n         late: expected "soon", found "too late"',
        ),
        (
            "{name: x, inputs: {amount: 500}, expect: {state: {seen: [a]}}}",
            'state\n         seen: expected ["a"], found []',
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: [{raise: Broken}]}}",
            "status: expected succeeded, it failed\n         Broken in 'charge': Broken",
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: [{raise: Broken}]}, "
            "expect: {error: {type: Rejected, message: no}}}",
            'error\n         type: expected "Rejected", found "Broken"',
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: [{never: true}]}}",
            "status: expected succeeded, it is running\n         still running: 'charge'",
        ),
        (
            "{name: x, inputs: {amount: 5}, tools: {charge: [{crash: true}]}}",
            "it is stalled\n         waits for: question 'charge', "
            "add: approvals: {charge: {choice: retry|result|fail}}",
        ),
        (
            f"{{name: x, inputs: {{amount: 5}}, tools: {{charge: [{REPLY}]}}, "
            "signals: [{name: paid, data: much}]}",
            "the signal 'paid' is refused: signal 'paid'",
        ),
        (
            f"{{name: x, inputs: {{amount: 5}}, tools: {{charge: [{REPLY}]}}, "
            "expect: {status: waiting, waits: [ask]}}",
            "waits\n         - ask\n         + wait",
        ),
    ],
)
def test_a_failed_case_says_what_was_expected_and_what_happened(
    order: CommandLine, case: str, told: str
) -> None:
    order.write("order.test.yaml", cases(case))

    done = order("test", code=1)

    assert done.out.startswith("FAILED order.test.yaml: x\n")
    assert told in done.out


@pytest.mark.parametrize(
    "case",
    [
        "{name: a, inputs: {amount: 5}, tools: {charge: {raise: {type: HttpError}}}}",
        "{name: a, inputs: {amount: 5}, tools: {charge: [{crash: true}]}, "
        "approvals: {charge: {after: 1h, choice: result, value: {status: 200}}}, "
        "expect: {path: [charge, wait, late]}}",
        f"{{name: a, inputs: {{amount: 5}}, tools: {{charge: [{{crash: true}}, {REPLY}]}}, "
        "approvals: {charge: {choice: retry}}}",
        f"{{name: a, inputs: {{amount: 5}}, tools: {{charge: [{REPLY}]}}, cancel: 1d, "
        "expect: {status: cancelled}}",
        f"{{name: a, inputs: {{amount: 5}}, tools: {{charge: [{REPLY}]}}, until: 29d, "
        "expect: {waits: [wait]}}",
        f"{{name: a, inputs: {{amount: 5}}, tools: {{charge: [{{never: true}}, {REPLY}]}}, "
        "operator: [{at: 1h, retry: charge, set: {seen: [x]}}], "
        "expect: {state: {seen: [x, charged]}}}",
    ],
)
def test_what_the_world_may_do(order: CommandLine, case: str) -> None:
    order.write("order.test.yaml", cases(case))

    done = order("test", "-q")

    assert "FAILED" not in done.out


def test_errors_in_a_case_file_are_all_told_at_their_places(order: CommandLine) -> None:
    order.write("good.yaml", "flowengine: 1\nid: good\nsteps: [{id: a}]\n")
    order.write("good.test.yaml", "cases: [{name: fine}]\n")
    order.write(
        "order.test.yaml",
        """\
cases:
  - name: a
    input: {amount: 5}
    tools: {chrge: [{return: 1, raise: x}], charge: 4}
    approvals: {asc: {after: 2 days}}
    signals: [{name: pad}]
    agents: {anna: [Hello.]}
    expect: {status: done, path: [ask, lte], outputs: {lat: 1}, state: {sen: 1}}
  - inputs: {amont: 1}
""",
    )

    done = order("test", code=3)

    assert [line.split(" ", 1)[1] for line in done.err.splitlines() if "error[" in line] == [
        "error[E102]: unknown key 'input' in a case",
        "error[E401]: the flow has no tool or step 'chrge'",
        "error[E103]: an answer has 'return' and 'raise', but only one is allowed",
        "error[E103]: expected a list, got the number 4",
        "error[E401]: the flow has no step 'asc'",
        "error[E103]: expected a duration such as 30s, got '2 days'",
        "error[E401]: the flow has no signal 'pad'",
        "error[E401]: the flow has no agent 'anna'",
        "error[E103]: expected 'running', 'succeeded', 'failed', 'cancelled', 'waiting' "
        "or 'stalled', got 'done'",
        "error[E401]: the flow has no step 'lte'",
        "error[E401]: the flow has no output 'lat'",
        "error[E401]: the flow has no state 'sen'",
        "error[E104]: a case needs 'name'",
        "error[E401]: the flow has no input 'amont'",
    ]
    assert "did you mean 'charge'?" in done.err
    assert "ok     good.test.yaml: fine" in done.out


def test_the_errors_of_the_flow_are_those_of_the_flow(flowengine: CommandLine) -> None:
    flowengine.write("a.yaml", "flowengine: 1\nid: a\nsteps: [{id: a, nxt: b}]\n")
    flowengine.write("a.test.yaml", "cases: [{name: a}]")
    flowengine.write("b.test.yaml", "cases: [{name: a}]")

    first = flowengine("test", "a.yaml", code=3)
    second = flowengine("test", "b.test.yaml", code=3)
    third = flowengine("test", "c.yaml", code=9)

    assert "a.yaml:3:17: error[E102]" in first.err
    assert "there is no flow file b.yaml" in second.err
    assert "the test file c.test.yaml does not exist" in third.err


def test_json_says_the_same(order: CommandLine) -> None:
    order.write(
        "order.test.yaml",
        cases("{name: a, inputs: {amount: 500}}", "{name: b, inputs: {amount: 5}}"),
    )

    told = order("--json", "test", code=1).json()

    assert (told["passed"], told["failed"], told["errors"]) == (1, 1, [])
    [file] = told["files"]
    assert [(one["name"], one["passed"], one["path"]) for one in file["cases"]] == [
        ("a", True, ["ask", "late"]),
        ("b", False, ["charge"]),
    ]
    assert file["cases"][1]["problems"][0]["line"] == 4
    assert file["branches"]["all"] == 12
    assert {"branch": "ask: outcome reject never occurred", "line": 13, "column": 9} in file[
        "branches"
    ]["missed"]


def test_the_code_that_cases_import_is_named(flowengine: CommandLine) -> None:
    flowengine.write("book.py", "def add(old, new):\n    return old + new\n")
    state = 'state: {n: {type: integer, default: 0, reducer: {python: "book:add"}}}'
    flowengine.write(
        "sum.yaml",
        f"flowengine: 1\nid: sum\n{state}\nsteps: [{{id: a, set: {{n: 3}}}}]\n"
        "outputs: {n: '${{ state.n }}'}\n",
    )
    flowengine.write("sum.test.yaml", "cases: [{name: a, expect: {outputs: {n: 3}}}]\n")

    told = flowengine("test")

    assert told.err == "sum.yaml: imports its reducers: book:add\n"
    assert flowengine("test", "-q").err == ""
    assert flowengine("--json", "test").json()["files"][0]["imports"] == ["book:add"]


def test_cases_are_chosen_by_name(order: CommandLine) -> None:
    order.write(
        "order.test.yaml",
        cases("{name: first, inputs: {amount: 500}}", "{name: second, inputs: {amount: 5}}"),
    )

    done = order("test", "--case", "irs")
    none = order("test", "--case", "third", code=2)

    assert done.out == "ok     order.test.yaml: first\n1 passed\n"
    assert "no case has 'third' in its name" in none.err


def test_a_hundred_cases_take_about_a_second(order: CommandLine) -> None:
    one = f"""inputs: {{amount: 500}}
    approvals: {{ask: [{{by: ann, choice: approve}}, {{by: ben, choice: approve}}]}}
    tools: {{charge: [{REPLY}]}}
    signals: [{{at: 20d, name: paid, data: 3}}]"""
    order.write("order.test.yaml", cases(*[f"name: c{n}\n    {one}" for n in range(100)]))
    taken = []
    for _ in range(3):  # slower on a shared CPU
        begun = time.process_time()
        done = order("test", "-q")
        taken.append(time.process_time() - begun)
        assert done.out.endswith("100 passed\n")
        if taken[-1] < 4:
            break

    assert min(taken) < 4


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


def test_hostile_text_of_a_case_controls_no_terminal(flowengine: CommandLine) -> None:
    flowengine.write("a.yaml", 'flowengine: 1\nid: a\nsteps: [{id: a, output: "\\e[31m"}]\n')
    flowengine.write("a.test.yaml", json.dumps({"cases": [{"name": "\x1b[31mred"}]}))

    done = flowengine("test")

    assert "\x1b" not in done.out


def test_folders_are_searched(flowengine: CommandLine, tmp_path: Path) -> None:
    for name in ("b/x", "a/y", ".hidden/z"):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("flowengine: 1\nid: a\nsteps: [{id: a}]\n")
        path.with_suffix(".test.yaml").write_text("cases: [{name: it}]\n")
    (tmp_path / "empty").mkdir()

    done = flowengine("test", "-q", ".", "b/x.yaml")
    empty = flowengine("test", "empty", code=9)

    assert done.out == "2 passed\n"
    assert flowengine("test", "-q", "b/x.yaml").out == "1 passed\n"
    assert "no test file (NAME.test.yaml) in empty" in empty.err


GREET = """\
flowengine: 1
id: greet
inputs: {name: {type: string}}
steps:
  - {id: write, call: std.write_file, with: {path: "${{ inputs.name }}.txt", text: hello}}
  - {id: ask, approval: {title: Good?}}
"""


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


def test_an_execution_is_written_as_a_case_and_others_are_added(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine.write("greet.yaml", GREET)
    flowengine("run", "greet.yaml", "-i", "name=Ada", "-q", code=4)
    first = flowengine.newest()
    flowengine("approve", "--all", "-q")
    flowengine("run", "greet.yaml", "-i", "name=Bob", "-q", code=4)

    done = flowengine("test", "greet.yaml", "--from", first, "--name", "approved")
    flowengine("test", "greet.yaml", "--from", flowengine.newest(), "--name", "waits")
    again = flowengine("test", "greet.test.yaml", "--from", first, "--name", "approved")
    for made in tmp_path.glob("*.txt"):
        made.unlink()
    played = flowengine("test")

    assert done.err == "written to greet.test.yaml: approved\n"
    assert again.err == "written to greet.test.yaml: approved (2)\n"
    assert played.out.startswith(
        "ok     greet.test.yaml: approved\n"
        "ok     greet.test.yaml: waits\n"
        "ok     greet.test.yaml: approved (2)\n"
    )
    assert not list(tmp_path.glob("*.txt"))
    flowengine.write("greet.yaml", GREET.replace("text: hello", "text: hi"))
    changed = flowengine("test", "--case", "waits", code=1)
    assert 'text: expected "hello", found "hi"' in changed.out


def test_a_case_with_another_history_is_not_written(flowengine: CommandLine) -> None:
    flowengine.write("greet.yaml", GREET)
    flowengine("run", "greet.yaml", "-i", "name=Ada", "-q", code=4)
    id = flowengine.newest()
    flowengine("approve", "--all", "-q", "--attach", "Ada.txt")

    done = flowengine("test", "greet.yaml", "--from", id, code=1)
    data = flowengine("--json", "test", "greet.yaml", "--from", id, code=1).json()
    printed = flowengine("test", "--from", id, code=1)

    assert not Path("greet.test.yaml").exists()
    assert done.out == ""
    assert "recorded history, so it was not written" in done.err
    assert "  the files that came with the decision on 'ask'\n" in done.err
    assert data["file"] is None
    assert printed.out.startswith("- name: recorded from ")


def test_a_case_is_printed_where_no_file_is_named_and_refused_for_another_flow(
    flowengine: CommandLine,
) -> None:
    flowengine.write("greet.yaml", GREET)
    flowengine.write("other.yaml", GREET.replace("id: greet", "id: other"))
    flowengine("run", "greet.yaml", "-i", "name=Ada", "-q", code=4)
    id = flowengine.newest()

    printed = flowengine("test", "--from", id)
    data = flowengine("--json", "test", "--from", id).json()
    other = flowengine("test", "other.yaml", "--from", id, code=2)
    for missing in ("none.yaml", "none.test.yaml", "."):
        none = flowengine("test", missing, "--from", id, code=9).err
        assert f"there is no flow file {missing.replace('.test', '')}\n" in none
        assert "give the file of the flow 'greet'" in none
    assert not [*flowengine.folder.glob("*.test.yaml")]
    flowengine.write("greet.test.yaml", "cases: [{name: flow style}]\n")
    refused = flowengine("test", "greet.yaml", "--from", id, code=2)

    assert printed.out.startswith("- name: recorded from ")
    assert data["differences"] == []
    assert data["case"]["expect"]["waits"] == ["ask"]
    assert "is one of the flow 'greet'; other.yaml is 'other'" in other.err
    assert "greet.test.yaml cannot take another case at its end" in refused.err


def test_subflows_and_imported_tools_are_scripted_by_name_or_address(
    flowengine: CommandLine,
) -> None:
    flowengine.write(
        "lib.yaml",
        "flowengine: 1\nid: lib\ntools:\n  send: {http: {url: https://example.com}, args: "
        "{type: object, properties: {to: {type: string}}}}\n",
    )
    flowengine.write(
        "main.yaml",
        """\
flowengine: 1
id: main
imports: {lib: ./lib.yaml}
flows:
  tell:
    inputs: {who: {type: string}}
    steps:
      - {id: send, call: lib.send, with: {to: "${{ inputs.who }}"}}
      - {id: ask, approval: {title: Seen?}}
steps:
  - {id: first, flow: tell, with: {who: ann}}
  - {id: second, flow: tell, with: {who: ben}}
""",
    )
    reply = "return: {status: 200, headers: {}, body: 1}"
    flowengine.write(
        "main.test.yaml",
        f"""\
cases:
  - name: both
    tools:
      lib.send: [{{{reply}, with: {{to: ann}}}}]
      second/send: [{{{reply}, with: {{to: ben}}}}]
    approvals: {{ask: [{{choice: approve}}], second/ask: {{after: 2d, choice: approve}}}}
    expect: {{path: [first, first/send, first/ask, second, second/send, second/ask]}}
""",
    )

    done = flowengine("test")

    assert done.out.startswith("ok     main.test.yaml: both\n")


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
    assert "a<b>&]]>" in str(failure.text)
    assert str(failure.text).startswith("order.test.yaml:")
    assert float(str(good.get("time"))) >= 0
    [[error]] = by_file["broken.test.yaml"]
    assert (error.tag, "outptu" in str(error.text)) == ("error", True)

    assert "--junit" in order("test", "--from", "x", "--junit", "r.xml", code=2).err
    order.write("taken", "")
    assert "cannot be written" in order("test", "order.yaml", "--junit", "taken/x.xml", code=2).err
