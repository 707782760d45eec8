"""Claims of an approval that meet: of several processes, and of one that is dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict
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
def engine(folder: Path) -> Iterator[Engine]:
    (folder / "config" / "flowengine").mkdir(parents=True)
    settings = "groups: {finance: [ben, cleo, eve]}\n"
    (folder / "config" / "flowengine" / "settings.yaml").write_text(settings)
    with Engine(user="user:ben") as engine:
        yield engine


def ask(engine: Engine, tmp_path: Path, more: str = "claim: true") -> str:
    """Run a flow up to its approval, and return the ID of that."""
    (wait,) = engine.run(world.make(tmp_path, SIGN.format(more=more))).waits
    return wait["id"]


def links(engine: Engine, wait: str) -> list[Any]:
    """Return the changes of an approval, each as `(what, by, to)`."""
    return [
        (one["do"], one["by"], one.get("to"))
        for one in engine.approvals.show(wait).get("handed", [])
    ]


def test_claimed_while_another_process_drives_shows_at_once_and_stands(
    engine: Engine, tmp_path: Path
) -> None:
    wait = ask(engine, tmp_path)
    execution = engine.approvals.show(wait)["execution"]
    with Engine(user="user:cleo") as other:
        world.hold(other, execution)
        engine.approvals.claim(wait)
        assert engine.approvals.show(wait)["claimed_by"] == "user:ben"
        assert len(list(engine.executions.events(execution))) == 1
        with pytest.raises(Conflict, match="claimed by user:ben"):
            other.approvals.claim(wait)
        with pytest.raises(Conflict, match="claimed by user:ben"):
            other.approvals.approve(wait)
    assert engine.approvals.approve(wait).result.outputs == {"by": "user:ben"}  # type: ignore[union-attr]
    done = [one["type"] for one in engine.executions.events(execution)]
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
                    seen[wait, user] = mine.approvals.claim(wait)["claimed_by"]
                except Conflict as refused:
                    seen[wait, user] = refused.standing["claimed_by"]

    threads = [threading.Thread(target=claim_all, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for wait in waits:
        holder = engine.approvals.show(wait)["claimed_by"]
        assert [seen[wait, user] for user in users] == [holder] * len(users)
        assert links(engine, wait) == [("claimed", holder, None)]


def test_a_claim_that_lost_in_the_inbox_of_a_dead_process_changes_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    """The kernel rejects the later claim even if it has passed all earlier checks."""
    wait = ask(engine, tmp_path)
    found = engine.approvals.show(wait)
    number = next(iter(engine.store.waits().items)).number
    engine.approvals.claim(wait)
    late = {"type": "claimed", "at": 1, "wait": number, "by": "user:cleo", "via": "cli"}
    engine.store.send(found["execution"], pack(late), 1, "late")
    assert engine.approvals.show(wait)["claimed_by"] == "user:ben"
    engine.resume(found["execution"])
    assert engine.approvals.show(wait)["claimed_by"] == "user:ben"
    assert links(engine, wait) == [("claimed", "user:ben", None)]
