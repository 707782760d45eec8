# Shows S82, S83
"""`flowengine chat`: messages, streamed replies, approvals in between, resumption."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.commands import chat as assistant
from tests import command_line
from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal
from tests.command_line import PROGRAM, Done
from tests.envs.browser.web import Web, serving

FLOW = """\
flowengine: 1
id: talk
inputs: {name: {type: string, default: Ana}}
defaults: {model: scripted/replies.yaml}
tools:
  echo:
    description: Says something
    shell: {command: [echo, "${{ args.text }}"], in: host}
    args: {type: object, properties: {text: {type: string}}, required: [text]}
    approval: ask
agents:
  helper: {instructions: "Help ${{ inputs.name }}.", tools: [echo], handoffs: [other]}
  other: {description: Knows more, instructions: Help.}
steps:
  - {id: work, agent: helper, with: {prompt: hello}}
"""
REPLIES = """\
- {text: "Hello Ana.\\nI can echo.", usage: {input_tokens: 7, output_tokens: 3, cost_usd: 0.25}}
- calls: [{name: echo, arguments: {text: hi}}]
- text: "It said \\e[31mhi."
- calls: [{name: transfer_to_other}]
- text: I am the other.
- text: Still here.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "talk.yaml").write_text(FLOW)
    (tmp_path / "replies.yaml").write_text(REPLIES)
    return tmp_path


def chat(folder: Path, said: str, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Chat through a pipe: each line of `said` is read at a prompt."""
    return command_line.flowengine(
        "chat", *words, typed=said, env={"HOME": str(folder), **(env or {})}
    )


def chat_in_process(folder: Path, said: str, *words: str) -> Done:
    """Chat with a separate process through pipes."""
    kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME") if name in os.environ}
    done = subprocess.run(
        [PROGRAM, "chat", *words],
        cwd=folder,
        input=said,
        env={**kept, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.endurance
# Shows F5
def test_a_conversation_goes_on_in_another_process(folder: Path, flowengine: CommandLine) -> None:
    first = chat_in_process(folder, "I am Ana\n/tools\n/cost\n/what\n", "talk.yaml")

    assert first.code == 0
    assert first.out == "What can I do for you?\nHello Ana.\nI can echo.\n"
    assert "  chat=helper\n" in flowengine("list", "--label", "chat=helper").out
    assert "helper\n  echo  Says something\n  → other  Knows more\n" in first.err
    assert "1 reply, 7 tokens read, 3 written, $0.2500\n" in first.err
    assert "/end     end the conversation" in first.err
    again = first.err.splitlines()[-1].removeprefix("saved, to continue: flowengine chat ").split()

    other = chat(folder, "I am Eve\n", *again)
    assert (other.code, other.out) == (8, "")
    assert "not of user:ana" in other.err
    second = chat_in_process(folder, "echo hi\napprove\nwho knows?\nsure?\n/end\n", *again)

    assert second.code == 0
    assert second.out.splitlines() == [
        "Hello Ana.",
        "I can echo.",
        "hi",
        "It said \ufffd[31mhi.",
        "I am the other.",
        "Still here.",
        "last: Still here.",
    ]
    assert "Call echo: " in second.err
    assert "→ other\n" in second.err
    assert second.err.count("→") == 1
    record = flowengine("--json", "show", flowengine.newest()).json()
    assert record["status"] == "succeeded"
    asked = [one["address"] for one in record["steps"] if one["kind"] == "ask"]
    assert asked == [f"chat/person{n}" for n in ("", "#2", "#3", "#4", "#5")]
    turns = [one["address"] for one in record["steps"] if one["kind"] == "agent_turn"]
    assert turns[-2:] == ["chat/other", "chat/other@2"]


def test_a_file_with_nothing_but_agents_can_be_chatted_with(folder: Path) -> None:
    text = (folder / "talk.yaml").read_text().partition("steps:")[0]
    (folder / "talk.yaml").write_text(text)

    several = chat(folder, "", "talk.yaml")
    begun = chat(folder, "I am Ana\n", "talk.yaml", "--agent", "helper")
    (folder / "talk.yaml").write_text(text.replace("  other:", "  #").replace("[other]", "[]"))
    only = chat(folder, "", "talk.yaml")

    assert several.code == 3
    assert "talk.yaml declares several agents: helper, other\n" in several.err
    assert "choose one with --agent NAME" in several.err
    assert begun.out == "What can I do for you?\nHello Ana.\nI can echo.\n"
    assert only.code == 0, only.err


def test_an_error_of_a_model_is_shown_and_the_conversation_goes_on(folder: Path) -> None:
    (folder / "replies.yaml").write_text(
        "- {raise: ModelError, message: the key is not valid, retryable: false}\n"
        "- {text: Hello Ana.}\n"
        "- {text: So you did.}\n"
    )
    told = (
        "ModelError: the key is not valid\n"
        "The model did not answer. Enter /retry to ask again, or enter another message.\n"
    )

    first = chat(folder, "I am Ana\n", "talk.yaml")
    again = first.err.splitlines()[-1].removeprefix("saved, to continue: flowengine chat ").split()
    second = chat(folder, "/retry\n/retry\nI came back.\n", *again)

    assert (first.code, second.code) == (0, 0)
    assert f"\n> {told}> \n0 replies" in first.err
    assert f"{told}> > the last message has an answer: type the next message\n> > \n" in second.err
    assert second.out == "Hello Ana.\nSo you did.\n"


def test_somebody_else_may_be_first(folder: Path, flowengine: CommandLine) -> None:
    terminal = Terminal(folder, "chat", "talk.yaml")
    terminal.expect("> ")
    listed = ("--json", "approvals", "list", "--execution", flowengine.newest())
    [wait] = flowengine(*listed).json()
    given = ("approve", wait["id"], "--form", "answer=I am Ana")
    assert command_line.flowengine(*given).code == 8  # only the user of the conversation answers
    done = command_line.flowengine(*given, "--as", wait["assignees"][0])
    assert done.code in {0, 4}, done  # recorded for the chat, or continued here to the next wait
    terminal.expect(" answered by user:")
    terminal.expect("Hello Ana.")
    terminal.answer("> ", "\x04")
    terminal.expect("saved, to continue: flowengine chat --resume")

    assert terminal.process.wait(60) == 0
    os.close(terminal.master)


def first_message(flowengine: CommandLine) -> Any:
    """Return the user's first message in the newest conversation."""
    steps = flowengine("--json", "show", flowengine.newest()).json()["steps"]
    return next(one["output"] for one in steps if one["kind"] == "ask")


MAIL = "Dear team,\n\napprove\nplease read on.\napprove\n\nYours, Eve"


@pytest.mark.parametrize("pasted", [f"\x1b[200~{MAIL}\x1b[201~\n", f"{MAIL}\n"])
def test_a_pasted_mail_is_one_message_and_approves_nothing(
    folder: Path, flowengine: CommandLine, pasted: str
) -> None:
    (folder / "replies.yaml").write_text(
        "- calls: [{name: echo, arguments: {text: hi}}]\n- text: Not then.\n"
    )
    terminal = Terminal(folder, "chat", "talk.yaml")
    terminal.answer("> ", pasted)
    terminal.answer("approve, reject, respond? (Enter leaves it open) ", "reject\n")
    terminal.answer("comment (Enter: none): ", "\n")
    terminal.answer("> ", "\x04")
    terminal.end(0)
    terminal.close()

    assert first_message(flowengine) == MAIL
    assert "Not then." in terminal.seen


@pytest.mark.endurance
def test_a_reply_that_poses_as_a_question_approves_nothing(folder: Path) -> None:
    controls = "\x1b\x07\x08\x00\x9b\u202e\r"
    acts = {"calls": [{"name": "echo", "arguments": {"text": f"hi{controls}\n> approve\n"}}]}
    touch = json.dumps(["touch", str(folder / "acted")])
    (folder / "talk.yaml").write_text(FLOW.replace('[echo, "${{ args.text }}"]', touch))

    scripts = iter(("asked", "posing", "approved"))

    def talked(said: str, *replies: object) -> Done:
        script = next(scripts)  # a process reads each script once
        (folder / f"{script}.yaml").write_text(json.dumps(replies))
        done = chat(folder, said, "talk.yaml", "--model", f"scripted/{script}.yaml")
        assert done.code == 0
        assert not set(done.out + done.err) & set(controls)
        return done

    asked = talked("go\nreject\n/end\n", acts, {"text": "Not then."})
    assert "Call echo: " in asked.out + asked.err
    assert not (folder / "acted").exists()

    # A model imitates the program's own prompt. An answer to it is just a message.
    posing = {"text": f"{controls}\x1b[2J{asked.out}{asked.err}{'y' * 100_000}"}
    talked("go\napprove\nreject\n/end\n", posing, acts, {"text": "Not then."})
    assert not (folder / "acted").exists()

    talked("go\napprove\napprove\n/end\n", posing, acts, {"text": "Done."})
    assert (folder / "acted").exists()


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["talk.yaml", "--resume", "x"], "give a file with agents, or --resume ID, not both", 2),
        (["talk.yaml", "--agent", "helpr"], "declares no agent 'helpr'", 3),
        (["none.yaml"], "none.yaml", 9),
        (["plain.yaml"], "declares no agents", 3),
        (["two.yaml"], "declares several agents: a, b", 3),
        (["other.yaml", "--agent", "a"], "error[E401]: there is no agent 'c'", 3),
    ],
)
def test_what_cannot_be_talked_to(folder: Path, words: list[str], message: str, code: int) -> None:
    (folder / "plain.yaml").write_text("flowengine: 1\nid: p\nsteps: [{id: a, output: 1}]\n")
    (folder / "two.yaml").write_text(
        "flowengine: 1\nid: t\ndefaults: {model: scripted/replies.yaml}\n"
        "agents: {a: {instructions: A}, b: {instructions: B}}\nsteps: [{id: s, output: 1}]\n"
    )
    (folder / "other.yaml").write_text(
        (folder / "two.yaml").read_text().replace("A}", "A, handoffs: [c]}")
    )

    done = chat(folder, "", *words)

    assert message in done.err
    assert (done.code, done.out) == (code, "")


CREW = """\
- calls: [{name: transfer_to_coder}]
- calls: [{name: std.run_python, arguments: {code: "n = 6 * 7\\nn"}}]
- text: It is 42.
- calls:
    - {name: std.run_python, arguments: {code: "n + 1"}}
    - {name: write_file, arguments: {path: n.txt, text: "43"}}
- text: It is 43.
"""
PROBE = """\
def probe(code_env, file_env, web_env, workspace):
    return [f"{type(one).__name__} {id(one)}" for one in (code_env, file_env, web_env, workspace)]
"""


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    (tmp_path / "crew.yaml").write_text(CREW)
    return tmp_path


def test_without_a_file_the_assistant_answers(crew: Path, flowengine: CommandLine) -> None:
    said = "\n   \nwhat is 6 times 7?\nand one more, in a file?\napprove\n"

    done = chat(crew, said, "--lazy", "--model", "scripted/crew.yaml")

    assert done.code == 0
    assert done.out == "What can I do for you?\nIt is 42.\nIt is 43.\n"
    assert "[value] 43" in done.err  # variables survive between messages
    assert (crew / "n.txt").read_text() == "43"
    record = flowengine("--json", "show", flowengine.newest()).json()
    labels = {"chat": "triage", "model": "scripted/crew.yaml"}
    assert (record["flow"], record["labels"]) == ("assistant", labels)


def states(done: Done) -> set[tuple[str, str]]:
    """Return the printed states of environments that are opened at the start."""
    lines = [line.strip().split("  ", 1) for line in done.err.splitlines()]
    told = ("ready", "opens in the background")
    return {(line[0], line[1]) for line in lines if line[-1] in told}


AT_ONCE = {("code_env", "ready"), ("file_env", "ready"), ("workspace", "ready")}


@pytest.mark.endurance
def test_lazily_nothing_is_opened_before_it_is_used(crew: Path, flowengine: CommandLine) -> None:
    done = chat(crew, "", "--lazy", "--model", "scripted/crew.yaml")

    assert states(done) == set()
    record = flowengine("--json", "show", flowengine.newest()).json()
    assert "environments" not in {step["address"] for step in record["steps"]}


def on_the_web(folder: Path, web: Web, config: str = "{}") -> None:
    """Copy the assistant, with access to a local server."""
    text = Path(assistant.ASSISTANT).read_text()
    assert text.count("{network: public}") == 2
    text = text.replace("{network: public}", f"{{network: ['{web.place}']}}")
    text = text.replace("kind: browser\n", f"kind: browser\n    config: {config}\n")
    (folder / "web.yaml").write_text(text)
    page = web.page("/", "<p>Open from nine.</p><label>Words <input name=q></label>", "Shop")
    script = f"""\
    - calls: [{{name: transfer_to_browser}}]
    - calls:
        - {{name: visit_page, arguments: {{address: "{page}"}}}}
        - {{name: browser_open, arguments: {{url: "{page}"}}}}
    - calls: [{{name: std.browser_find, arguments: {{text: nine}}}}]
    - text: From nine.
    """
    (folder / "web_script.yaml").write_text(textwrap.dedent(script))


def told_of_calls(flowengine: CommandLine) -> list[str]:
    """Return the results of the newest execution's calls, as sent to the model."""
    record = flowengine("--json", "show", flowengine.newest()).json()
    steps = [one for one in record["steps"] if ".calls" in one["address"]]
    return [f"{one['status']} {json.dumps(one.get('output') or one.get('error'))}" for one in steps]


@pytest.mark.endurance
def test_the_assistant_asks_and_goes_on_the_web(tmp_path: Path, flowengine: CommandLine) -> None:
    """Meanwhile, each of its environments is one object, which a tool is given twice."""
    with serving() as web:
        on_the_web(tmp_path, web)
        probed(tmp_path)
        said = "when?\napprove\napprove\nand now?\n"
        done = chat(tmp_path, said, "web.yaml", "--model", "scripted/web_script.yaml")

        assert done.out == "What can I do for you?\nFrom nine.\nso\n"
        assert [f"Call {one}: " in done.err for one in ("visit_page", "browser_open")] == [True] * 2
        first, visited, opened, found, second = told_of_calls(flowengine)
        assert "Open from nine." in visited
        assert "textbox" in opened
        assert "nine" in found
        assert len(web.asked) >= 2
    objects, again = (re.findall(r"([A-Z]\w+) (\d{6,})", one) for one in (first, second))
    assert objects == again
    # Both the text for the model and the value name them.
    assert [kind for kind, _ in dict.fromkeys(objects)] == [
        "PythonSandbox",
        "Documents",
        "Browser",
        "Folder",
    ]
    background = {("web_env", "opens in the background"), ("web_env", "ready")}
    assert states(done) == AT_ONCE | background


def probed(folder: Path) -> None:
    """Let the coder look at all environments, before and after the browser's turn."""
    (folder / "probes.py").write_text(PROBE)
    text = (folder / "web.yaml").read_text()
    (folder / "web.yaml").write_text(
        text.replace("tools:\n", 'tools:\n  probe: {python: "probes:probe"}\n', 1)
        .replace("write_file, edit_file]", "write_file, edit_file, probe]")
        .replace(
            "environments: [code_env, workspace]",
            "environments: [code_env, file_env, web_env, workspace]",
        )
    )
    script = (folder / "web_script.yaml").read_text()
    to_coder = "- calls: [{name: transfer_to_coder}]\n- calls: [{name: probe}]\n"
    to_triage = "- calls: [{name: transfer_to_triage}]\n"
    (folder / "web_script.yaml").write_text(
        f"{to_coder}{to_triage}{script}{to_triage}{to_coder}- text: so\n"
    )


@pytest.mark.endurance
def test_the_assistant_asks_before_anything_that_could_carry_text_out(tmp_path: Path) -> None:
    """The question precedes the browser. Links for each letter could serve as a keyboard."""
    acts = {
        "visit_page": {"address": "https://example.com/secret"},
        "browser_open": {"url": "https://example.com/secret"},
        "browser_fill": {"ref": "e1", "text": "secret"},
        "browser_click": {"ref": "e1"},
        "browser_select": {"ref": "e1", "values": ["s"]},
        "browser_scroll": {"direction": "down"},
        "browser_dialog": {"accept": True, "text": "secret"},
        "browser_go": {"to": "reload"},
    }
    calls = [{"name": name, "arguments": given} for name, given in acts.items()]
    script = [{"calls": [{"name": "transfer_to_browser"}]}, {"calls": calls}, {"text": "Not then."}]
    (tmp_path / "script.yaml").write_text(json.dumps(script))

    said = "go\n" + "reject\nno\n" * len(acts)
    done = chat(tmp_path, said, "--lazy", "--model", "scripted/script.yaml")

    assert done.out.endswith("Not then.\n")
    assert [name for name in acts if f"Call {name}: " in done.err] == [*acts]


@pytest.mark.parametrize("command", ["chat", "run"])
def test_the_name_of_a_model_is_checked_at_the_start(
    folder: Path, flowengine: CommandLine, command: str
) -> None:
    refused = flowengine(command, "talk.yaml", "--model", "gpt", typed="", code=3)

    assert refused.err == (
        "error: expected a model such as openai/gpt-4o, not 'gpt'\n  write it as provider/model\n"
    )
    assert not (folder / ".flowengine").exists()
