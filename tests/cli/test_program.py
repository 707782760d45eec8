"""The program around the commands: help, completion, wrong arguments, and start-up cost."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from argparse import Namespace, _SubParsersAction
from pathlib import Path

import pytest

from flowengine.cli.parsing.command_table import COMMANDS, load, parser_of
from flowengine.cli.tab_completion import choices, steps, waits, whole_parser
from scripts.cli_reference import MARK, reference
from tests.cli.conftest import CommandLine
from tests.rows import each_row

ROOT = Path(__file__).parents[2]
HEAVY = {"litellm", "mcp", "docker", "playwright", "lxml", "starlette", "uvicorn", "temporalio"}
"""Packages that load at the doors of what needs them, since each takes longer than a whole run."""


@pytest.mark.parametrize("words", COMMANDS)
# Shows F5
def test_every_command_has_help_with_examples_of_itself(
    flowengine: CommandLine, words: str
) -> None:
    out = flowengine(*words.split(), "--help").out

    examples = out.partition("examples:\n")[2].splitlines()
    assert out.startswith(f"usage: flowengine {words} ")
    assert any(f"flowengine {words}" in line or f"--json {words}" in line for line in examples)


@each_row("words", COMMANDS)
def test_every_example_can_be_parsed(words: str) -> None:
    parser = parser_of(words, load(words))

    for line in load(words).example.splitlines():
        command = re.sub(r"^.*flowengine |( [|>] |\)\").*$", "", line.replace("$(", ""))
        given = [word for word in shlex.split(command) if word not in words.split()]
        parser.parse_args(given)


def test_help_lists_every_command(flowengine: CommandLine) -> None:
    out = flowengine("--help").out

    assert all(f"\n  {words} " in out for words in COMMANDS)
    assert flowengine(code=2).out == out
    assert flowengine("help").out == out
    assert flowengine("help", "envs", "list").out == flowengine("envs", "list", "-h").out


def test_the_page_of_the_docs_is_what_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()

    assert MARK + page.partition(MARK)[2] == reference(), (
        "make it again: python -m scripts.cli_reference docs/cli.md"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "error: unknown command 'rnu'\n  did you mean 'flowengine run'?\n"),
        (["LIST"], "error: unknown command 'LIST'\n  did you mean 'flowengine list'?\n"),
        (["teach"], "error: unknown command 'teach'\n"),
        (["rerun", "x"], "did you mean 'flowengine retry'?\n"),
        (["rm", "x"], "did you mean 'flowengine prune'?\n"),
        (["approvals", "reject", "x"], "did you mean 'flowengine reject'?\n"),
        (["approvals", "lst"], "did you mean 'flowengine approvals list'?\n"),
        (["approvals", "frobnicate"], "see: flowengine approvals --help\n"),
        (["run", "a.yaml", "--inptu", "a=b"], "did you mean --input?\n"),
        (["run"], "error: the following arguments are required: FLOW\n  see: flowengine run --hel"),
        (
            ["upgrade"],
            "error: the following arguments are required: FLOW\n  see: flowengine upgrade",
        ),
        (["--colour"], "error: unknown argument --colour\n"),
        (["run", "a.yaml", "--as", "ann"], "--as ann\n  see: flowengine run --help\n"),
        (["run", "a", "--durability", "high"], "invalid choice: 'high'"),
        (["list", "--since", "soon"], "'soon' is not a valid time: write how long ago, such as 1d"),
        (["list", "-n", "0"], "'0' is not a whole number of 1 or more"),
    ],
)
def test_wrong_words_are_named_with_what_was_probably_meant(
    flowengine: CommandLine, words: list[str], said: str
) -> None:
    done = flowengine(*words, code=2)

    assert said in done.err
    assert done.out == ""


def test_errors_are_json_too(flowengine: CommandLine) -> None:
    [error] = flowengine("--json", "run", "none.yaml", code=9).json()["errors"]

    assert error["code"] == "NotFound"
    assert "none.yaml" in error["message"]


def test_options_of_the_program_may_stand_before_and_behind_the_command(
    flowengine: CommandLine, hello: Path
) -> None:
    before = flowengine("--json", "--durability", "none", "run", hello).json()
    behind = flowengine("run", hello, "--durability", "none", "--json").json()

    assert before["outputs"] == behind["outputs"]


def test_the_parts_of_a_decision_and_the_steps_of_an_execution_complete(
    flowengine: CommandLine, refund: Path
) -> None:
    [wait] = flowengine("run", refund, "-i", "amount=80", code=4).ids
    # A parser does not list its arguments.
    decide = next(
        one for one in whole_parser()._actions if isinstance(one, _SubParsersAction)
    ).choices["decide"]
    offered = {
        one.dest: one.completer("", Namespace(waits=[wait], choice=None))
        for one in decide._actions
        if hasattr(one, "completer") and one.dest != "waits"
    }

    assert list(offered["choice"]) == ["approve", "reject", "later"]
    assert (offered["edit"], offered["form"]) == (["amount="], ["cost_center="])
    assert list(steps("", Namespace(execution=None))) == ["ask"]
    assert choices("", Namespace(waits=["unknown"], choice=None)) == {}
    after_id = Namespace(waits=[], choice=wait)
    assert list(waits("", after_id)) == [wait[:4], "approve", "reject", "later"]


def test_the_parser_for_completions_knows_every_command() -> None:
    text = whole_parser().format_help()

    assert all(words.split()[0] in text for words in COMMANDS)


# Shows F8
def test_a_run_loads_no_heavy_package(hello: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from flowengine.cli import main; code = main(['run', 'hello.yaml']);"
        f"sys.exit(code or ' '.join({HEAVY!r} & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-c", program]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
