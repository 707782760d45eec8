"""Which commands a policy allows: by their words, whatever their text pretends."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.sdk import Refused
from flowengine_envs.command_rules import check, split

ALLOW = ["ls", "git log"]


@pytest.mark.parametrize(
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
        assert check(command, ALLOW, "box") == ["ls", "x"]  # what a shell makes of it, too
        return
    with pytest.raises(Refused, match="box"):
        check(command, ALLOW, "box")


@pytest.mark.parametrize(
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


def test_the_refusal_names_word_and_rule() -> None:
    with pytest.raises(
        Refused, match="box: 'rm' is not allowed; policy 'allow' has 'ls', 'git log'"
    ):
        check("rm x", ALLOW, "box")
    with pytest.raises(Refused, match="'--output=f' lets 'git' write files or run programs"):
        check("git log --output=f", ALLOW, "box")


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
