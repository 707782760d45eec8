"""Approval ownership: claiming, releasing and delegating (F43, F44)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict, NotAllowed, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import SendResult
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import world

SIGN = """
steps:
  - id: sign
    approval:
      title: Sure?
      assignees: ["group:finance", "user:cfo"]
      exclude: ["user:eve"]
      {more}
    next: {{outcome: {{else: end}}}}
outputs: {{by: "${{{{ steps.sign.output.by }}}}"}}
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "flowengine").mkdir(parents=True)
    settings = "groups: {finance: [ben, cleo, eve]}\n"
    (tmp_path / "config" / "flowengine" / "settings.yaml").write_text(settings)
    with Engine(user="user:ben") as engine:
        yield engine


def ask(engine: Engine, tmp_path: Path, more: str = "claim: true") -> str:
    """Run a flow up to its approval, and return the ID of that."""
    (wait,) = engine.run(world.make(tmp_path, SIGN.format(more=more))).waits
    return wait["id"]


def links(engine: Engine, wait: str) -> list[Any]:
    """Return the changes of an approval, each as `(what, by, to)`."""
    return [(one["do"], one["by"], one.get("to")) for one in engine.wait(wait).get("handed", [])]


def test_what_must_be_claimed_is_decided_by_its_claimant_only(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    with pytest.raises(Conflict, match="has to be claimed") as refused:
        engine.approve(wait)
    assert f"flowengine approvals claim {wait}" in str(refused.value.hint)

    assert engine.claim(wait)["claimed_by"] == "user:ben"
    assert engine.claim(wait)["claimed_by"] == "user:ben"
    for refused_call in (engine.approve, engine.claim, engine.reject):
        with pytest.raises(Conflict, match="claimed by user:ben since 20") as refused:
            refused_call(wait, by="user:cleo")
        assert refused.value.exit_code == 7
    assert engine.approve(wait).result.outputs == {"by": "user:ben"}  # type: ignore[union-attr]
    with pytest.raises(Conflict, match="is closed"):
        engine.claim(wait)


def test_what_is_given_back_can_be_claimed_by_another(engine: Engine, tmp_path: Path) -> None:
    wait = ask(engine, tmp_path)
    with pytest.raises(Conflict, match="is not claimed"):
        engine.release(wait)
    engine.claim(wait)
    with pytest.raises(NotAllowed, match="who alone can release it"):
        engine.release(wait, by="user:cleo")
    assert "claimed_by" not in engine.release(wait)
    engine.claim(wait, by="user:cleo")
    assert links(engine, wait) == [
        ("claimed", "user:ben", None), ("released", "user:ben", None),
        ("claimed", "user:cleo", None),
    ]  # fmt: skip
    assert engine.approve(wait, by="user:cleo").first


def test_only_assignees_claim_and_hand_on_and_exclusion_wins(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    for user in ("user:eve", "user:mallory"):
        with pytest.raises(NotAllowed, match="may not claim"):
            engine.claim(wait, by=user)
        with pytest.raises(NotAllowed, match="may not delegate"):
            engine.delegate(wait, "user:ben", by=user)
    with pytest.raises(NotAllowed, match="it excludes user:eve"):
        engine.delegate(wait, "user:eve")
    for nobody in ("user:ben", "group:finance", "user:", "user:group:finance"):
        with pytest.raises(UsageError, match="to another user"):
            engine.delegate(wait, nobody)
    assert links(engine, wait) == []


def test_what_is_handed_on_is_decided_by_the_other_and_the_chain_is_kept(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path, "claim: false")
    engine.delegate(wait, "user:dora", comment="on leave")
    with pytest.raises(NotAllowed, match="user:ben has delegated it"):
        engine.approve(wait)
    assert not engine.waits(assignee="user:ben").items
    assert [one["id"] for one in engine.waits(assignee="user:dora").items] == [wait]
    assert [one["id"] for one in engine.waits(assignee="user:cleo").items] == [wait]
    engine.delegate(wait, "user:finn", by="user:dora")
    with pytest.raises(NotAllowed):
        engine.approve(wait, by="user:dora")
    engine.delegate(wait, "user:ben", by="user:finn")
    assert engine.approve(wait).first
    assert links(engine, wait) == [
        ("delegated", "user:ben", "user:dora"), ("delegated", "user:dora", "user:finn"),
        ("delegated", "user:finn", "user:ben"),
    ]  # fmt: skip
    assert engine.wait(wait)["handed"][0]["comment"] == "on leave"


def test_a_claim_goes_along_and_others_cannot_hand_on_what_is_claimed(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    engine.claim(wait)
    with pytest.raises(Conflict, match="claimed by user:ben"):
        engine.delegate(wait, "user:dora", by="user:cleo")
    assert engine.delegate(wait, "user:dora")["claimed_by"] == "user:dora"
    with pytest.raises(NotAllowed, match="delegated it"):
        engine.approve(wait)
    assert engine.approve(wait, by="user:dora").first


def test_the_flow_can_forbid_both(engine: Engine, tmp_path: Path) -> None:
    wait = ask(engine, tmp_path, "delegate: false")
    with pytest.raises(NotAllowed, match="'delegate: false'"):
        engine.delegate(wait, "user:dora")
    with pytest.raises(Conflict, match="does not have to be claimed"):
        engine.claim(wait)


def test_who_has_voted_hands_nothing_on(engine: Engine, tmp_path: Path) -> None:
    wait = ask(engine, tmp_path, "need: 2")
    engine.approve(wait)
    with pytest.raises(Conflict, match="user:ben already voted"):
        engine.delegate(wait, "user:dora")
    with pytest.raises(Conflict, match="user:ben already voted"):
        engine.delegate(wait, "user:ben", by="user:cleo")
    engine.delegate(wait, "user:dora", by="user:cleo")
    assert engine.approve(wait, by="user:dora").result.status == "succeeded"  # type: ignore[union-attr]


def test_all_of_it_is_in_the_history_with_by_whom_and_through_what(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    engine.claim(wait, by="user:cleo")
    engine.delegate(wait, "user:dora", comment="yours", by="user:cleo")
    engine.release(wait, by="user:dora")
    told = [
        (one["type"], one["by"], one["via"], one["entered_by"], one.get("to"), one.get("comment"))
        for one in engine.events(engine.wait(wait)["execution"])
        if one["type"] != "started"
    ]
    entered = ("python", "user:ben")
    assert told == [
        ("claimed", "user:cleo", *entered, None, None),
        ("delegated", "user:cleo", *entered, "user:dora", "yours"),
        ("released", "user:dora", *entered, None, None),
    ]


def test_claimed_while_another_process_drives_shows_at_once_and_stands(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    execution = engine.wait(wait)["execution"]
    with Engine(user="user:cleo") as other:
        other._host.keeper.acquire(execution)
        engine.claim(wait)
        assert engine.wait(wait)["claimed_by"] == "user:ben"
        assert len(list(engine.events(execution))) == 1
        with pytest.raises(Conflict, match="claimed by user:ben"):
            other.claim(wait)
        with pytest.raises(Conflict, match="claimed by user:ben"):
            other.approve(wait)
    assert engine.approve(wait).result.outputs == {"by": "user:ben"}  # type: ignore[union-attr]
    done = [one["type"] for one in engine.events(execution)]
    assert done == ["started", "claimed", "warning", "decided"]  # the other approver's attempt


@pytest.mark.endurance
def test_of_many_who_claim_at_once_one_has_it_and_the_others_are_told(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [ask(engine, tmp_path) for _ in range(10)]
    users = ("user:ben", "user:cleo", "user:cfo")
    start = threading.Barrier(len(users))
    seen: dict[tuple[str, str], str] = {}
    send = SqliteStore.send

    def send_together(store: SqliteStore, execution: str, *rest: Any) -> SendResult:
        if rest[-1].endswith("hand 0"):  # all have read the wait, none has claimed it
            start.wait(60)
        return send(store, execution, *rest)

    monkeypatch.setattr(SqliteStore, "send", send_together)

    def claim_all(user: str) -> None:
        with Engine(user=user) as mine:
            for wait in waits:
                try:
                    seen[wait, user] = mine.claim(wait)["claimed_by"]
                except Conflict as refused:
                    seen[wait, user] = refused.standing["claimed_by"]

    threads = [threading.Thread(target=claim_all, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for wait in waits:
        holder = engine.wait(wait)["claimed_by"]
        assert [seen[wait, user] for user in users] == [holder] * len(users)
        assert links(engine, wait) == [("claimed", holder, None)]


def test_a_claim_that_lost_in_the_inbox_of_a_dead_process_changes_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    """The kernel rejects the later claim even if it has passed all earlier checks."""
    wait = ask(engine, tmp_path)
    found = engine.wait(wait)
    number = next(iter(engine.store.waits().items)).number
    engine.claim(wait)
    late = {"type": "claimed", "at": 1, "wait": number, "by": "user:cleo", "via": "cli"}
    engine.store.send(found["execution"], pack(late), 1, "late")
    assert engine.wait(wait)["claimed_by"] == "user:ben"
    engine.resume(found["execution"])
    assert engine.wait(wait)["claimed_by"] == "user:ben"
    assert links(engine, wait) == [("claimed", "user:ben", None)]
