# Shows S92
"""`flowengine envs shell`: commands typed on the host run in the sandbox's shell (S92)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from ctypes import CDLL
from pathlib import Path

import pytest

from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from tests import command_line
from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal
from tests.command_line import Done
from tests.envs.containers import skip_without_docker
from tests.own_environments import environments_in

BUILD = """\
flowengine: 1
id: build
inputs:
  needed: {type: string}
  greeting: {type: string, default: hello}
secrets: {TOKEN: {env: TOKEN}}
environments:
  box:
    kind: shell
    args: {type: object, properties: {level: {type: integer}}, required: [level]}
    config:
      env:
        GREETING: "${{ inputs.greeting }}"
        LEVEL: "l${{ args.level }}"
        TOKEN: "${{ secrets.TOKEN }}"
  strict: {kind: shell, config: {env: {NEEDED: "${{ inputs.needed }}"}}}
  plain:
    kind: shell
    args: {type: object, properties: {n: {type: integer}}}
    config: {env: {N: "n${{ args.n }}"}}
  asked: {kind: shell, approval: {title: Really?, body: "It costs 5 $."}}
  db: {kind: sqlite, config: {path: a.db}}
steps:
  - {id: a, run: make, in: {box: {level: 1}}}
"""
BOX = ("envs", "shell", "build.yaml", "box", "--arg", "level=3")


@pytest.fixture(autouse=True)
def folder(flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the flow. After each test, no part of an environment may be left."""
    monkeypatch.setenv("TOKEN", "SEKRET-token")
    flowengine.write("build.yaml", BUILD)
    yield flowengine.folder
    kept = environments_in(flowengine.folder / ".flowengine")
    assert not list(kept.glob("entries/*"))
    assert not list(kept.glob("workspaces/*/*"))
    assert _ours(flowengine.folder) == []


def _ours(folder: Path) -> list[int]:
    """Return the processes of environments that belong to this folder's store."""
    from flowengine.execution_environment.registry.entries import Registry

    name = Registry(environments_in(folder / ".flowengine")).name
    return [pid for pid, mark in marked(VARIABLE).items() if f".{name}." in mark]


def piped(flowengine: CommandLine, text: str, *words: str) -> Done:
    """Run commands from a pipe."""
    return command_line.flowengine(*(words or BOX), typed=text)


def piped_to_process(flowengine: CommandLine, text: str, *words: str) -> tuple[int, str, str]:
    """Run commands from a pipe in a separate process."""
    process = flowengine.spawn(*(words or BOX), stdin=-1)
    out, err = process.communicate(text, timeout=60)
    return process.returncode, out, err


@pytest.mark.endurance
def test_lines_of_a_pipe_are_commands_of_one_shell(flowengine: CommandLine) -> None:
    """Continued lines form one command, `read` consumes a line, and the exit code is the last."""
    text = (
        'cd /tmp\nN=1\necho "$GREETING $LEVEL $PWD $N"\n\nfor i in a b\ndo echo $i\ndone\n'
        "cat <<END\nquoted 'text'\nEND\nread name\nBob\necho got $name\nsh -c 'exit 3'"
    )

    code, out, err = piped_to_process(flowengine, text)

    assert out.splitlines()[0] == "hello l3 /tmp 1"
    assert out.splitlines()[1:4] == ["a", "b", "quoted 'text'"]
    assert out.splitlines()[-1] == "got Bob"
    assert (code, err) == (3, "")


@pytest.mark.endurance
@pytest.mark.parametrize("provider", ["docker", "host"])
def test_it_is_the_same_in_every_sandbox(flowengine: CommandLine, provider: str) -> None:
    if provider == "docker":
        skip_without_docker()
    text = "cd /tmp; X=1\nread name\nBob\necho $name $X $PWD; false | true; (exit 4)"
    flowengine.write(
        "other.yaml",
        "flowengine: 1\nid: other\n"
        f"environments: {{box: {{kind: shell, provider: {provider}}}}}\n"
        "steps: [{id: a, run: make, in: box}]\n",
    )

    # Log output of the host provider appears on the standard error of a separate process.
    run = piped_to_process if provider == "host" else piped
    code, out, err = run(flowengine, text, "envs", "shell", "other.yaml")

    assert (code, out.splitlines()[-1]) == (4, "Bob 1 /tmp"), (out, err)
    assert ("without a sandbox" in err) == (provider == "host")


def test_results_as_json_with_secrets_masked(flowengine: CommandLine) -> None:
    text = "cd /tmp\necho $TOKEN $GREETING; false | true\necho 'open\n"

    code, out, err = piped(flowengine, text, *BOX, "--json")

    first, second, third = map(json.loads, out.splitlines())
    assert (first["exit_code"], first["cwd"], first["status"]) == (0, "/tmp", "done")
    assert (second["output"], second["pipe_codes"]) == ("*** hello\n", [1, 0])
    assert (third["status"], third["exit_code"], code, err) == ("syntax_error", 2, 2, "")


def test_the_end_of_the_shell_ends_it(flowengine: CommandLine) -> None:
    words = ("envs", "shell", "build.yaml", "asked")  # the command is the consent
    code, out, _ = piped(flowengine, "echo one\nexit 7\necho never\n", *words)

    assert (code, out) == (7, "one\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box", "--arg", "levl=1"], "arguments: level"),
        (["box"], "needs 'level'"),
        (["box", "--arg", "level=x"], "a whole number"),
        (["strict", "-i", "nedeed=x"], "there is no input"),
        (["db"], "'db' is of kind 'sqlite', not 'shell'"),
        (["bocks"], "of kind 'shell' there: box, strict"),
        ([], "of kind 'shell' there: box, strict"),
    ],
)
def test_what_cannot_be_opened_is_told(
    flowengine: CommandLine, words: list[str], said: str
) -> None:
    code, out, err = piped(flowengine, "echo never", "envs", "shell", "build.yaml", *words)

    assert (out, said in err, code != 0) == ("", True, True), err


@pytest.mark.endurance
def test_a_process_that_is_told_to_end_leaves_nothing(flowengine: CommandLine) -> None:
    process = flowengine.spawn(*BOX, stdin=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("echo begun; sleep 1000\n")
    process.stdin.flush()
    assert process.stdout.readline() == "begun\n"
    assert _ours(flowengine.folder)

    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_conversation_at_a_terminal(flowengine: CommandLine) -> None:
    """Keys go to the running command, including Ctrl-C. Ctrl-D ends it."""
    terminal = Terminal(flowengine.folder, *BOX, TOKEN="SEKRET-token")
    try:
        terminal.answer("box$ ", "cd /tmp; echo $TOKEN; false\n")
        terminal.expect("***")
        terminal.answer("box:/tmp [1]$ ", "for i in 1 2; do\n")
        terminal.answer("> ", "echo n$i; done\n")
        terminal.expect("n2")
        terminal.answer("box:/tmp$ ", "echo slow; sleep 1000\n")
        terminal.expect("\nslow")
        os.write(terminal.master, b"\x03")
        terminal.answer("box:/tmp [130]$ ", "read -p 'name? ' x; echo got-$x\n")
        terminal.answer("\nname? ", "Bob\r")
        terminal.expect("got-Bob")
        terminal.answer("box:/tmp$ ", "\x04")
        assert terminal.end(0).endswith("box:/tmp$ \n")
    finally:
        terminal.close()


def test_what_a_command_writes_draws_and_does_no_more(flowengine: CommandLine) -> None:
    terminal = Terminal(flowengine.folder, *BOX, TOKEN="SEKRET-token")
    try:
        hostile = r"printf '\033]52;c;aGFja2Vk\a\033[6n\033[31mr''ed\033[0m\033P+q\033\\\033[5i'"
        # The sandbox's own terminal reports the cursor, and the report is read here. Otherwise it
        # would be typed at the next prompt.
        terminal.answer("box$ ", f"{hostile}; read -rs -t 30 -d R; echo; echo en''ded\n")
        terminal.expect("ended")
        seen = terminal.seen
        assert "\x1b[31mred\x1b[0m" in seen
        for part in ("52;c", "\x1b[6n", "+q", "\x1b[5i"):
            assert part not in seen.partition("red")[0][-40:] + seen.partition("red")[2]
        terminal.answer("box:/workspace$ ", "\x04")
        terminal.end(0)
    finally:
        terminal.close()


def test_ctrl_c_at_the_prompt_withdraws_the_line(flowengine: CommandLine) -> None:
    """At once, in any state of the program, and whichever thread receives the signal."""
    terminal = Terminal(flowengine.folder, *BOX, TOKEN="SEKRET-token")
    try:
        terminal.answer("box$ ", "echo typ")
        terminal.expect("echo typ")
        os.write(terminal.master, b"\x03")
        terminal.answer("box$ ", "if true; then\n")
        terminal.expect("> ")
        pid = terminal.process.pid
        [other, *_] = [int(each) for each in os.listdir(f"/proc/{pid}/task") if int(each) != pid]
        assert CDLL(None).tgkill(pid, other, signal.SIGINT) == 0
        terminal.answer("box$ ", "echo fine\n")
        terminal.expect("\nfine")
        terminal.answer("$ ", "\x04")
        terminal.end(0)
    finally:
        terminal.close()
