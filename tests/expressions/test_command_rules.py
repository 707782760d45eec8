# Shows E33, T48
"""Commands permitted by a policy: matched as parsed by a shell, not as text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine import Engine
from flowengine.flow.expressions.functions import only_runs
from flowengine.flow.expressions.paths import NoValue
from flowengine.sdk import Refused
from flowengine.sdk.tools.command_rules import check, split
from tests.rows import each_row

ALLOW = ["ls", "git log"]


@each_row(
    "command",
    [
        *("ls; rm x", "ls && rm x", "ls | sh", "ls $(rm x)", "ls `rm x`", "ls\nrm x", "ls >f"),
        *("A=1 rm x", "sh -c 'rm x'", "xargs rm", "env rm", "find . -delete", "git log --output=f"),
        *("./own/ls", "/bin/ls", "git", "git push", "git -c a=b log", "ls & rm x", "ls *", "ls ~"),
        *(
            "ls 'x",
            'ls "$(rm x)"',
            "ls {a,b}",
            "ls <f",
            "(ls)",
            "ls #",
            "git log --outp f",
            "l\\\ns x",
        ),
        *("rm x", "lsx", "LS", "ls -la ; rm", "git log -O/bin/sh"),
        ["rm", "x"],
        ["git", "log", "--output=f"],
        ["ls; rm x"],
    ],
)
def test_evasions_are_refused(command: str | list[str]) -> None:
    if command == "l\\\ns x":
        assert check(command, ALLOW, "box") == ["ls", "x"]  # the same words as in a shell
        return
    with pytest.raises(Refused, match="box"):
        check(command, ALLOW, "box")


@each_row(
    ("command", "words"),
    [
        ('ls -la "a b;c"', ["ls", "-la", "a b;c"]),
        ("ls '$(rm x)' a\\ b", ["ls", "$(rm x)", "a b"]),
        ("  git\tlog  --oneline ''", ["git", "log", "--oneline", ""]),
        (["ls", "$(rm x)"], ["ls", "$(rm x)"]),
    ],
)
def test_words_are_words(command: str | list[str], words: list[str]) -> None:
    assert check(command, ALLOW, "box") == words


LIKELY = st.text("ab '\"\\\\$`\t\n;é-", max_size=12)


@given(
    LIKELY | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
)
def test_what_is_split_is_split_as_bash_does(text: str) -> None:
    try:
        words = split(text, "box")
    except Refused:
        return
    shown = f"f() {{ for word; do printf '%s\\0' \"$word\"; done; }}; f {text}"
    bash = ["bash", "--norc", "--noprofile", "-c", shown]
    done = subprocess.run(bash, capture_output=True, check=True, env={"LANG": "C.UTF-8"})

    assert [word.decode() for word in done.stdout.split(b"\0")[:-1]] == words


# Rules of rules: `only_runs`


ROW = [
    "ls; rm x", "ls && rm x", "ls | sh", "ls $(rm x)", "ls `rm x`", "ls\nrm x", "ls >f", "A=1 rm x",
    "sh -c 'rm x'", "xargs rm", "env rm", "find . -delete", "git log --output=f", "./own/ls",
    "ls || rm x", "ls & rm x", "ls <(rm x)", "ls\r\nrm x", "git log --out\0put=f", "ls 'x",
]  # fmt: skip


@each_row("command", ROW)
def test_a_rule_that_allows_commands_allows_nothing_hidden_in_one(command: str) -> None:
    assert not only_runs(command, ALLOW)
    assert not only_runs(["bash", "-c", command], ALLOW)


def test_a_command_that_is_none_has_no_answer_so_that_a_rule_asks() -> None:
    for command in (None, 7, {"ls": 1}):
        with pytest.raises(NoValue, match="needs a command"):
            only_runs(command, ALLOW)
    assert not only_runs("", ALLOW)
    assert not only_runs("ls", [])


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs that only record how they were called."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("ls", "git", "rm", "sh", "env", "xargs", "f", "x"):
        program = folder / name
        program.write_text(
            '#!/bin/bash\n{ printf \'%s\\0\' "${0##*/}" "$@"; printf \'\\1\'; } >> "$TRACE"\n'
        )
        program.chmod(0o755)
    return folder


PIECES = [
    "ls", "git log", "rm x", " ", " ", ";", "&", "&&", "|", "$(rm x)", "`rm x`", "$x", "\n", ">f",
    "<f", "2>&1", "A=1 ", "sh -c ", "'", '"', "\\", "\\\n", "#", "~", "*", "{a,b}", "(", ")",
    "<(rm)", "--output=f", "-la", "x/ls", "\t", "!", "=", "\r", "é", "\x0b", "\xa0", "$'\\n'",
    "[", "x",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
@settings(max_examples=150)
def test_what_a_rule_allows_is_all_that_a_real_bash_runs(programs: Path, command: str) -> None:
    """Only the permitted programs may run, and no other file may appear in the folder."""
    for allowed in (command, f"ls {command}", f"git log {command}"):
        if only_runs(allowed, ALLOW):
            with TemporaryDirectory() as folder:
                trace, place = Path(folder) / "trace", Path(folder) / "place"
                place.mkdir()
                environment = {"PATH": str(programs), "TRACE": str(trace), "LANG": "C.UTF-8"}
                subprocess.run(
                    ["/bin/bash", "--norc", "--noprofile", "-c", allowed],
                    cwd=place, env=environment, capture_output=True, timeout=60, check=False,
                )  # fmt: skip
                assert os.listdir(place) == []
                calls = trace.read_bytes().split(b"\1")[:-1]
            assert [call.decode().split("\0")[:-1] for call in calls] == [split(allowed, "test")]


FLOW = """
flowengine: 1
id: it
rules:
  - {allow: sh, when: "${{ only_runs(args.command, ['ls', 'git log']) }}"}
tools:
  sh: {python: "acts:act", approval: ask}
inputs: {command: {type: string}}
steps: [{id: a, call: sh, with: {command: "${{ inputs.command }}"}}]
"""


@pytest.mark.parametrize("command", [*ROW[:14], "ls -la 'a b;c'"])
def test_what_a_policy_does_not_allow_is_asked_about(folder: Path, command: str) -> None:
    Path("acts.py").write_text("def act(command: str) -> str:\n    return command\n")
    Path("flow.yaml").write_text(FLOW)
    with Engine(None) as engine:
        status = engine.run("flow.yaml", {"command": command}).status
    assert status == ("succeeded" if command.startswith("ls -la") else "waiting")
