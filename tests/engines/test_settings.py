"""Host settings: durability and groups, where the stricter value wins (F80)."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import UsageError
from flowengine.settings import current_user
from flowengine.settings_files import load_settings


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the user's folder of settings and the project's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    user, project = tmp_path / "config" / "flowengine", tmp_path / ".flowengine"
    user.mkdir(parents=True)
    project.mkdir()
    return user, project


def write(folder: Path, text: str) -> None:
    (folder / "settings.yaml").write_text(text)


def test_without_files_nothing_is_set(folders: tuple[Path, Path]) -> None:
    settings = load_settings(str(folders[1]))
    assert (settings.durability, settings.groups) == (None, {})


@pytest.mark.parametrize(
    ("user", "project", "in_force"),
    [("process", "none", "process"), ("none", "power", "power"), ("process", None, "process")],
)
def test_greater_durability_wins(
    folders: tuple[Path, Path], user: str, project: str | None, in_force: str
) -> None:
    write(folders[0], f"durability: {user}\n")
    if project:
        write(folders[1], f"durability: {project}\n")
    with Engine() as engine:
        assert engine.store.durability == in_force
    with Engine(durability="none") as engine:
        assert engine.store.durability == "none"


# Shows F80
def test_durability_shown_is_that_of_the_open_database(folders: tuple[Path, Path]) -> None:
    with Engine() as engine:
        assert engine.store.durability == "power"
        assert sqlite3.connect(engine.store.location).execute("PRAGMA journal_mode").fetchone() == (
            "wal",
        )


# Shows F43
def test_members_are_those_that_both_files_name_and_a_project_adds_none(
    folders: tuple[Path, Path],
) -> None:
    write(folders[0], 'groups: {finance: [ben, ana, "group:board"], board: ["user:cleo"]}\n')
    write(folders[1], "groups: {finance: [ben, cleo, eve], ops: [eve]}\n")
    settings = load_settings(str(folders[1]))
    assert settings.groups == {"finance": {"user:ben", "user:cleo"}, "board": {"user:cleo"}}
    assert settings.groups_of("user:cleo") == ["group:board", "group:finance"]
    assert settings.is_one_of("user:cleo", ["user:ben", "group:board"])
    assert not settings.is_one_of("user:eve", ["group:finance", "group:unknown", "group:ops"])
    for user in ("ana", "ben", "cleo", "eve"):  # a project cannot remove a user from an exclusion
        assert settings.excluding(f"user:{user}", ["group:finance"])
    assert settings.excluding("user:eve", ["group:ops"])
    assert not settings.excluding("user:ben", ["group:ops", "user:eve"])


def test_circle_of_groups_ends(folders: tuple[Path, Path]) -> None:
    write(folders[0], 'groups: {a: ["group:b", x], b: ["group:a", y]}\n')
    assert load_settings("nowhere").groups["a"] == {"user:x", "user:y"}


@pytest.mark.parametrize(
    "text",
    [
        "durability: strong",
        "groups: [a]",
        "groups: {a: b}",
        "colour: red",
        "a: [",
        "- a",
        "act_for_others: 1",
    ],
)
def test_file_that_is_wrong_is_told_with_its_name(folders: tuple[Path, Path], text: str) -> None:
    write(folders[1], text)
    with pytest.raises(UsageError, match=r"settings\.yaml"):
        load_settings(str(folders[1]))


def test_user_is_who_the_system_says_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(variable, "ada")
    assert current_user() == f"user:{name}"
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert current_user() == "user:4000000"


def test_acting_for_others_is_forbidden_if_one_file_forbids_it(folders: tuple[Path, Path]) -> None:
    assert load_settings(str(folders[1])).act_for_others
    write(folders[0], "act_for_others: false")
    write(folders[1], "act_for_others: true")
    assert not load_settings(str(folders[1])).act_for_others


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG", "the file is not UTF-8"),
        (b"durablity: power", "unknown setting 'durablity'"),
        (b"root: hunter2", "its keys are not settings"),
        (b"a: [hunter2", "this cannot be read as YAML"),
    ],
)
def test_an_unusable_file_is_reported_without_its_content(
    folders: tuple[Path, Path], content: bytes, reason: str
) -> None:
    (folders[1] / "settings.yaml").write_bytes(content)

    with pytest.raises(UsageError) as refused:
        load_settings(str(folders[1]))

    assert reason in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_faults_in_settings_of_a_server_keep_their_messages(folders: tuple[Path, Path]) -> None:
    cases = json.loads(Path(__file__).with_name("settings_faults.json").read_text())
    for key, value, message, hint in cases:
        write(folders[0], json.dumps({key: value}))
        with pytest.raises(UsageError) as refused:
            load_settings("nowhere")
        assert refused.value.message.partition("settings.yaml: ")[2] == message
        assert refused.value.hint == hint
    assert len(cases) > 60
