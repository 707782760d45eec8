"""Executions that are shown again and again: only their new events are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.journal.ports.history import HistoryPort

FLOW = """
flowengine: 1
id: f
state: {n: {type: integer, default: 0}}
steps:
  - {id: a, python: {function: "works:a"}, set: {n: "${{ state.n + 1 }}"}}
  - {id: b, approval: {title: Good?}}
  - {id: c, python: {function: "works:c"}}
outputs: {n: "${{ state.n }}"}
"""
WORKS = """
from pathlib import Path

def a():
    if not Path("fixed").exists():
        raise ValueError("no")

def c():
    if not Path("mended").exists():
        raise ValueError("not yet")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "works.py").write_text(WORKS)
    (tmp_path / "f.yaml").write_text(FLOW)
    return tmp_path


def test_what_is_kept_shows_the_same_as_a_new_reading_at_every_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    with Engine("store") as driver, Engine("store") as keeper, Engine("store") as fresh:
        keeper.keep_histories()
        events = type(keeper.store).events

        def counted(
            store: HistoryPort, id: str, since: int = 0, limit: int | None = None
        ) -> object:
            if store is keeper.store:
                read.append(since)
            return events(store, id, since, limit)

        monkeypatch.setattr(type(keeper.store), "events", counted)
        id = driver.start("f.yaml")

        def check() -> None:
            for tries, plumbing in ((False, False), (True, False), (False, True)):
                shown, expected = (
                    engine.show(id, tries=tries, plumbing=plumbing) for engine in (keeper, fresh)
                )
                assert shown == expected

        check()
        driver.resume(id)
        check()
        assert keeper.show(id, step="a") == fresh.show(id, step="a")
        Path("fixed").touch()
        result = driver.retry(id)
        check()
        driver.approve(result.waits[0]["id"])
        check()
        Path("mended").touch()
        assert driver.retry(id).status == "succeeded"
        read.clear()
        check()
        known = len(list(driver.events(id)))
        assert keeper.show(id)["status"] == "succeeded"
        assert read[-1] == known


def test_no_more_is_kept_than_permitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("fixed").touch()
    with Engine("store") as engine:
        first, second = (engine.run("f.yaml").execution for _ in range(2))
        entries = len(list(engine.events(first)))
        engine.keep_histories(2 * entries - 1)
        read: list[tuple[str, int]] = []
        events = type(engine.store).events

        def counted(
            store: HistoryPort, id: str, since: int = 0, limit: int | None = None
        ) -> object:
            read.append((id, since))
            return events(store, id, since, limit)

        monkeypatch.setattr(type(engine.store), "events", counted)
        for id in (first, first, second, first):
            engine.show(id)
        assert [one for one in read if one[0] == first] == [
            (first, 0),
            (first, entries),
            (first, 0),
        ]
