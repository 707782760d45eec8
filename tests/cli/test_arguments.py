"""Meaningless arguments are errors, in Python as on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from tests.cli.conftest import CommandLine


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda e: e.executions.list(status="succeded"), "did you mean 'succeeded'"),
        (lambda e: e.approvals.list(status="bogus"), "it is one of: pending, closed, all"),
        (
            lambda e: e.executions.prune(older_than="30 days"),
            "give seconds, or a duration such as 30d",
        ),
        (lambda e: e.executions.prune(older_than=None), "give seconds, or a duration such as 30d"),
        (lambda e: e.executions.prune(status="failed"), "write ['failed']"),
        (lambda e: e.executions.show(17), "give the id as text, not 17"),
        (lambda e: e.executions.upgrade("hello.yaml", ["a"]), "give the id as text, not ['a']"),
        (lambda e: e.approvals.approve(None), "give the id as text, not None"),
    ],
)
def test_an_argument_that_means_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Engine], object], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hello.yaml").write_text("flowengine: 1\nid: hello\nsteps: [{id: greet}]\n")
    with Engine(tmp_path / "store") as engine, pytest.raises(UsageError) as caught:
        call(engine)
    assert caught.value.hint is not None
    assert told in caught.value.hint


def test_a_duration_is_taken_in_words_and_in_seconds(tmp_path: Path) -> None:
    with Engine(tmp_path / "store") as engine:
        assert engine.executions.prune(older_than="30d") == engine.executions.prune(
            older_than=2_592_000.0
        )


def test_a_working_folder_that_is_not_there_stops_the_run_before_its_first_step(
    flowengine: CommandLine, hello: Path, tmp_path: Path
) -> None:
    refused = flowengine("run", hello, "--workdir", "/nope", code=2)
    assert "workdir: /nope is not a directory" in refused.err
    assert not (tmp_path / ".flowengine").exists()


@pytest.mark.parametrize("command", [["list"], ["approvals", "list"]])
def test_a_named_store_that_is_not_there_is_an_error_and_an_absent_default_is_empty(
    flowengine: CommandLine, command: list[str]
) -> None:
    refused = flowengine("--store", "/proc/x", *command, code=9)
    assert "no store exists at /proc/x" in refused.err
    assert "no store exists at" in flowengine(*command).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("events x --otel --follow", "--follow does not work with --otel"),
        ("files x --force", "--force needs --save"),
        ("flows schedule x --schedule a", "--schedule needs --now or --since"),
        ("flows schedule x --since 1d --no-resume", "--no-resume needs --now"),
        ("flows schedule x --now --until 1d", "--until needs --since"),
        ("list --counts --status failed", "--status does not work with --counts"),
        ("test --name a", "--name needs --from"),
        ("eval e.yaml --name a", "--name needs --from"),
        ("eval e.yaml --from x --junit a.xml", "--junit does not work with --from"),
        ("tokens create x --content", "--content needs --role"),
        ("serve --mcp --port 80", "--port does not work with --mcp"),
        ("logins --user ann", "--user needs --remove"),
        ("grants x --as ann", "--as needs --revoke"),
        ("check --explain E101 --strict", "--strict does not work with --explain or --schema"),
    ],
)
def test_an_option_without_one_that_it_goes_with_is_an_error(
    flowengine: CommandLine, words: str, told: str
) -> None:
    refused = flowengine(*words.split(), code=2)
    assert told in refused.err
    assert "--help" in refused.err
