"""Approval of calls on the command line: their display, and all ways to decide."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import CommandLine, also_served
from tests.cli.test_terminal import Terminal

FLOW = """\
flowengine: 1
id: pay
tools:
  send:
    python: "tools:send"
    approval: {edit: true}
steps:
  - {id: pay, call: send, with: {text: TEXT}}
outputs: {said: "${{ steps.pay.output }}"}
"""
TOOLS = "def send(text: str) -> str:\n    return text.upper()\n"


@pytest.fixture
def pay(flowengine: CommandLine) -> CommandLine:
    flowengine.write("tools.py", TOOLS)
    flowengine.write("pay.yaml", FLOW.replace("TEXT", "hello"))
    return flowengine


@pytest.fixture
def terminal(pay: CommandLine) -> Iterator[Terminal]:
    opened = Terminal(pay.folder, "run", "pay.yaml")
    yield opened
    opened.close()


def test_every_way_to_answer_is_told_with_a_command_that_works(pay: CommandLine) -> None:
    for name, out in (("approve", "said: HELLO\n"), ("respond", 'said: "x"\n'), ("reject", None)):
        asked = pay("run", "pay.yaml", code=4)
        [short] = asked.ids
        assert f"  {short}  Call 'send'?\n" in asked.err
        [hint] = re.findall(rf"^        {name} +flowengine (.*)$", asked.err, re.M)
        words = [word.replace("JSON", '"x"') for word in hint.split()]

        done = pay(*words, code=1 if out is None else 0)

        if out is not None:
            assert done.out.replace("said: x", 'said: "x"') == out
        else:
            assert "'send' was not called: rejected by user:ana" in done.err


def test_an_edit_is_checked_and_runs(pay: CommandLine) -> None:
    [short] = pay("run", "pay.yaml", code=4).ids
    refused = pay("approve", short, "--edit", "colour=red", code=3)
    assert "'colour' may not be edited" in refused.err
    assert pay("approve", short, "--edit", "text=bye").out == "said: BYE\n"


def test_a_wrong_response_is_refused_with_the_approval_the_key_and_what_to_type(
    pay: CommandLine,
) -> None:
    returns = "{type: object, properties: {size: {type: integer}}, required: [size]}"
    returning = FLOW.replace("    approval:", f"    returns: {returns}\n    approval:")
    pay.write("pay.yaml", returning.replace("TEXT", "hello"))
    [short] = pay("run", "pay.yaml", code=4).ids
    respond = ("approvals", "decide", short, "--choice", "respond")

    assert pay(*respond, "--value", '{"sise": 1}', code=3).err == (
        f"error: {short}: the result of 'send': is missing 'size'\n"
        """  give what the tool returns: --value '{"size": INTEGER}'\n"""
    )
    assert pay(*respond, "--value", '{"size": 1}').out == "said: {size: 1}\n"


def test_show_why_and_graph_tell_of_it(pay: CommandLine) -> None:
    [short] = pay("run", "pay.yaml", code=4).ids
    shown = pay("approvals", "show", short).out
    assert "  text        hello  (may be edited)\n" in shown
    assert f"  edit        flowengine approve {short} --edit text=VALUE\n" in shown
    assert re.search(r"^  call        send, sha256 [0-9a-f]{16}$", shown, re.M)
    assert "Call 'send'?" in pay("approvals", "list").out
    assert "Call 'send'?" in pay("why", pay.newest()).out
    assert "waiting" in pay("show", pay.newest()).out


def test_on_a_terminal_it_is_asked_at_once(terminal: Terminal) -> None:
    terminal.expect("Call 'send'?")
    terminal.answer("leaves it open) ", "approve\n")
    terminal.answer("edit text [hello]: ", "good day\n")
    terminal.answer("none): ", "\n")
    assert terminal.end(0).endswith("said: GOOD DAY\n")


def test_on_a_terminal_somebody_may_respond(terminal: Terminal) -> None:
    terminal.expect("Call 'send'?")
    terminal.answer("leaves it open) ", "respond\n")
    terminal.answer("(JSON or text): ", "by hand\n")
    terminal.answer("none): ", "\n")
    assert terminal.end(0).endswith("said: by hand\n")


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "a\rb\x08\x08c\x00d",
    "user\u202egnp.exe",
    "x\n  choice      approve\nstatus: approved by user:ana",
    "\x9b2J",
    "y" * 1_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_arguments_are_shown_harmless_and_inside_their_line(
    pay: CommandLine, text: str
) -> None:
    import json

    flow = FLOW.replace(
        "approval: {edit: true}", 'approval: {edit: true, body: "${{ args.text }}"}'
    )
    pay.write("pay.yaml", flow.replace("TEXT", json.dumps(text)))
    asked = pay("run", "pay.yaml", code=4)
    shown = pay("approvals", "show", *asked.ids)
    listed = pay("approvals", "list")

    for out in (asked.err, shown.out, listed.out):
        assert all(char == "\n" or char.isprintable() for char in out)
    assert not re.search(r"^status|^  choice      approve$", shown.out, re.M)
    [line] = re.findall(r"^  text  .*$", shown.out, re.M)
    assert len(line) < 700
    if len(text) > 1000:
        assert re.search(r"yyy … 1000000 characters, sha256 [0-9a-f]{16} … yyy", line)


@also_served
def test_a_text_of_several_lines_is_shown_as_a_block(pay: CommandLine) -> None:
    import json

    code = "for n in range(3):\n    print(n)\n  choice      approve\n\n# \x1b[2Jend"
    pay.write("pay.yaml", FLOW.replace("TEXT", json.dumps(code)))
    asked = pay("run", "pay.yaml", code=4)
    shown = pay("approvals", "show", *asked.ids).out

    block = ["for n in range(3):", "    print(n)", "  choice      approve", "", "# \ufffd[2Jend"]
    assert (
        "\n".join(
            ["  text        5 lines  (may be edited)", "", *(f"  | {x}".rstrip() for x in block)]
        )
        in shown
    )


@also_served
def test_what_led_to_a_call_is_shown_with_it(pay: CommandLine) -> None:
    pay.write(
        "agent.yaml",
        """\
flowengine: 1
id: clerk
defaults: {model: scripted/replies.yaml}
tools: {say: {std: print, approval: ask}}
agents: {clerk: {instructions: Help., tools: [say]}}
steps: [{id: work, agent: clerk, with: {prompt: Say hi to Bo.}}]
""",
    )
    replies = '- {text: "I greet Bo.\\nNow.", calls: [{name: say, arguments: {text: hi}}]}\n'
    pay.write("replies.yaml", replies)
    asked = pay("run", "agent.yaml", code=4)
    shown = pay("approvals", "show", *asked.ids).out

    assert (
        "  user said   Say hi to Bo.\n  model says  2 lines\n\n  | I greet Bo.\n  | Now.\n" in shown
    )


def test_a_case_decides_by_step_or_by_tool(pay: CommandLine) -> None:
    pay.write(
        "pay.test.yaml",
        """\
cases:
  - name: edited
    tools: {send: [{with: {text: bye}, return: BYE}]}
    approvals: {pay: {choice: approve, edit: {text: bye}}}
    expect: {outputs: {said: BYE}}
  - name: rejected
    approvals: {send: {choice: reject, comment: no}}
    expect: {error: Rejected}
  - name: by hand
    approvals: {send: {choice: respond, value: mine}}
    expect: {outputs: {said: mine}}
  - name: a wrong edit
    approvals: {send: [{choice: approve, edit: {text: 7}, refused: true}, {choice: reject}]}
    expect: {error: Rejected}
""",
    )
    done = pay("test", "pay.yaml")
    assert done.out.count("ok ") == 4, done.out
