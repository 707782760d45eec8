"""Subscribers that follow output and replies: ordered, masked, and never delaying a run."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, Update
from flowengine.engines.inspection.updates import OUTPUT, PARTS, UpdateBacklog

FLOW = """\
flowengine: 1
id: talk
secrets: {KEY: {env: TALK_KEY}}
steps:
  - {id: say, python: "tools:say"}
outputs: {said: "${{ steps.say.output }}"}
"""
TOOLS = """\
from flowengine import StepContext

def say(ctx: StepContext) -> str:
    ctx.part("start", who="Ana")
    for piece in PIECES:
        ctx.part("text", piece, who="Ana")
    ctx.part(END, who="Ana")
    return "done"
"""
SECRET = "sk-live-0123456789"
ROOM = 1000
"""Characters of pending replies, in tests that overflow the backlog."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALK_KEY", SECRET)


def prepare(folder: Path, pieces: list[str], end: str = "end") -> Path:
    (folder / "talk.yaml").write_text(FLOW)
    (folder / "tools.py").write_text(f"PIECES = {pieces!r}\nEND = {end!r}\n{TOOLS}")
    return folder / "talk.yaml"


def parts(updates: list[Update]) -> list[tuple[str, Any]]:
    """Return kind and text of each part, and the number of missed ones."""
    return [
        (update.data["part"], update.data.get("text"))
        if update.kind == "part"
        else ("missed", update.data["count"])
        for update in updates
        if update.kind in ("part", "missed")
    ]


def run(folder: Path, pieces: list[str], end: str = "end") -> list[Update]:
    """Run a step that prints in pieces, and return all updates."""
    told: list[Update] = []
    with Engine(None, workdir=folder) as engine:
        over = engine.subscribe(told.append, output=True)
        assert engine.run(prepare(folder, pieces, end)).status == "succeeded"
        over(None)
    return told


def test_parts_come_in_order_between_the_beginning_and_the_end_of_their_step(
    tmp_path: Path,
) -> None:
    told = run(tmp_path, ["It is ", "so."])

    assert parts(told) == [("start", None), ("text", "It is "), ("text", "so."), ("end", None)]
    part = next(update.data for update in told if update.kind == "part")
    assert part == {"address": "say", "part": "start", "who": "Ana"}
    order = [update.step.status if update.step else update.kind for update in told]
    assert order.index("running") < order.index("part") < order.index("succeeded")
    assert order[-1] == "end"


def test_a_secret_that_is_split_over_parts_is_masked(tmp_path: Path) -> None:
    text = f"It is {SECRET}, and sk-live is none."

    for size in (1, 2, 3, 5, 7, 100):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = [piece or "" for kind, piece in parts(run(tmp_path, pieces)) if kind == "text"]
        assert "".join(found) == "It is ***, and sk-live is none."
        assert not any(SECRET[:8] in piece for piece in found[:-1])


def test_the_beginning_of_a_secret_is_not_passed_on_if_the_reply_breaks_off(tmp_path: Path) -> None:
    told = run(tmp_path, ["It is ", SECRET[:-1]], end="restart")

    assert parts(told) == [("start", None), ("text", "It is "), ("restart", None)]


def test_parts_are_never_stored(tmp_path: Path) -> None:
    path = prepare(tmp_path, ["a peculiar ", "piece of text"])
    with Engine(tmp_path / "store", workdir=tmp_path) as engine:
        over = engine.subscribe(lambda update: None, output=True)
        engine.run(path)
        over()
        engine.run(path)

    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or b"peculiar" not in file.read_bytes()


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.engines.inspection.updates.TEXT", ROOM)


@pytest.mark.usefixtures("little_room")
def test_a_slow_subscriber_misses_parts_and_is_told_how_many(tmp_path: Path) -> None:
    told: list[Update] = []
    ended = threading.Event()

    def slow(update: Update) -> None:
        assert ended.wait(60)
        told.append(update)

    path = prepare(tmp_path, ["x"] * (3 * ROOM))
    with Engine(None, workdir=tmp_path) as engine:
        over = engine.subscribe(slow, output=True)
        result = engine.run(path)  # although the subscriber has not received anything yet
        ended.set()
        over(None)

    assert result.outputs == {"said": "done"}
    found = parts(told)
    assert found[0] == ("start", None)
    assert found[1:] == [("text", "x")] * ROOM + [("missed", 2 * ROOM), ("end", None)]
    assert told[-1].kind == "end"
    assert [one.step.status for one in told if one.step] == ["running", "succeeded"]


def test_one_that_blocks_or_raises_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Update] = []
    never = threading.Event()

    def fails(update: Update) -> None:
        raise ValueError(update.kind)

    def blocks(update: Update) -> None:
        never.wait(60)

    with Engine(None, workdir=tmp_path) as engine:
        failed = engine.subscribe(fails, output=True)
        blocked = engine.subscribe(blocks, output=True)
        over = engine.subscribe(told.append, output=True)
        engine.run(prepare(tmp_path, ["so"]))
        blocked(0)
        for end in (failed, over):
            end(None)
        never.set()

    assert parts(told) == [("start", None), ("text", "so"), ("end", None)]
    assert "a subscriber failed at an update of kind 'part'" in caplog.messages


def test_a_subscription_may_end_in_its_callback(tmp_path: Path) -> None:
    told, ended = [], threading.Event()

    def once(update: Update) -> None:
        told.append(update)
        over()
        over()
        ended.set()

    with Engine(None, workdir=tmp_path) as engine:
        over = engine.subscribe(once, output=True)
        engine.run(prepare(tmp_path, ["so"]))
        assert ended.wait(60)

    assert told


def test_updates_can_be_iterated_over_with_the_parts(tmp_path: Path) -> None:
    path = prepare(tmp_path, ["It is ", "so."])

    async def main() -> list[Update]:
        async with Engine(None, workdir=tmp_path) as engine:
            id = engine.start(path)
            run = asyncio.ensure_future(engine.resume_async(id))
            told = [update async for update in engine.updates(id, output=True)]
            await run
            return told

    told = asyncio.run(main())

    assert parts(told) == [("start", None), ("text", "It is "), ("text", "so."), ("end", None)]
    assert told[-1].kind == "end"


def test_a_program_waits_for_a_subscriber_that_is_far_behind() -> None:
    backlog = UpdateBacklog(waits=True)
    full = Update("x", "output", {"address": "a", "stream": "stdout", "text": "x" * OUTPUT})
    backlog.put(full)
    put = threading.Thread(target=backlog.put, args=(full,), daemon=True)
    put.start()

    assert backlog.take() is full
    put.join(60)
    assert backlog.take() is full
    assert backlog.take() is None


def piece(text: str, execution: str = "x", address: str = "a") -> Update:
    return Update(execution, "part", {"address": address, "part": "text", "text": text})


def test_where_it_cannot_wait_output_is_missed() -> None:
    backlog = UpdateBacklog()
    full = Update("x", "output", {"address": "a", "stream": "stdout", "text": "x" * OUTPUT})

    for _ in range(3):
        backlog.put(full)

    assert backlog.take() is full
    missed = backlog.take()
    assert missed is not None
    assert (missed.kind, missed.data) == ("missed", {"count": 2})


def test_a_function_passes_data_on_while_it_works(tmp_path: Path) -> None:
    (tmp_path / "talk.yaml").write_text(FLOW)
    (tmp_path / "tools.py").write_text(
        "import os\n"
        "from flowengine import StepContext\n"
        "def say(ctx: StepContext) -> str:\n"
        "    rows = {'cells': [1, 2.5, None]}\n"
        "    ctx.part('row', number=1, **rows)\n"
        "    rows['cells'].append(os.environ['TALK_KEY'])\n"
        "    ctx.part('row', 'two', number=2, **rows)\n"
        "    return 'done'\n"
    )
    heard: list[Any] = []
    with Engine(None) as engine:
        end = engine.subscribe(heard.append, output=True)
        assert engine.run(tmp_path / "talk.yaml").outputs == {"said": "done"}
        end()

    told = [{**one.data} for one in heard if one.kind == "part"]
    assert told == [
        {"address": "say", "part": "row", "number": 1, "cells": [1, 2.5, None]},
        {"address": "say", "part": "row", "number": 2, "cells": [1, 2.5, None, "***"]}
        | {"text": "two"},
    ]


def test_what_is_no_data_is_not_passed_on(tmp_path: Path) -> None:
    (tmp_path / "talk.yaml").write_text(FLOW)
    (tmp_path / "tools.py").write_text(
        "from flowengine import StepContext\n"
        "def say(ctx: StepContext) -> str:\n"
        "    ctx.part('row', cells=object())\n"
        "    return 'done'\n"
    )
    with Engine(None) as engine:
        engine.subscribe(lambda update: None, output=True)
        result = engine.run(tmp_path / "talk.yaml")

    assert result.error is not None
    assert "type builtins.object cannot be kept" in result.error["message"]


def taken(backlog: UpdateBacklog) -> list[tuple[str, Any]]:
    return parts(list(iter(backlog.take, None)))


def test_pieces_of_one_text_are_put_together_while_many_wait() -> None:
    backlog = UpdateBacklog()
    for _ in range(PARTS):
        backlog.put(piece("x"))

    for text, address in [("It ", "a"), ("is ", "a"), ("No.", "b"), ("so.", "a")]:
        backlog.put(piece(text, address=address))
    backlog.put(Update("x", "part", {"address": "a", "part": "end"}))
    backlog.put(piece("Again.", address="a"))

    texts = [("text", "xIt is "), ("text", "No."), ("text", "so.")]
    assert taken(backlog)[PARTS - 1 :] == [*texts, ("end", None), ("text", "Again.")]
    backlog.put(piece("y"))
    backlog.put(piece("z"))
    assert taken(backlog) == [("text", "y"), ("text", "z")]


@pytest.mark.usefixtures("little_room")
def test_each_execution_has_a_gap_of_its_own() -> None:
    backlog = UpdateBacklog()
    backlog.put(piece("x" * ROOM))

    for _ in range(3):
        backlog.put(piece("a", "one"))
        backlog.put(piece("b", "other"))

    [_, *gaps] = iter(backlog.take, None)
    assert [(one.execution, one.data["count"]) for one in gaps] == [("one", 3), ("other", 3)]
