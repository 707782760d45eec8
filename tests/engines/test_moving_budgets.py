# Shows G12
"""Executions that wait for a shared budget are moved to another store (G12)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.agents.models.port import Listener, ModelFacts, ModelReply, ModelRequest, Usage
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import world
from tests.engines.test_temporal import wait_until
from tests.testing.faulty_store import ProcessDied

pytestmark = pytest.mark.endurance
FLOW = """\
flowengine: 1
id: f
budget: {shared: [{key: moved, every: month, tokens: 300}]}
agents: {writer: {instructions: Write., model: MODEL, settings: {max_tokens: 200}}}
steps: [{id: ask, agent: writer, with: {prompt: Hello}}]
"""
USED = 110
"""The tokens of a request."""


class HeldModel:
    """Answers once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts(longest_reply=200)

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        await asyncio.to_thread(self.released.wait)
        usage = Usage(10, output_tokens=USED - 10)
        return read_sent(SentReply("Done.", usage=usage), request, "native")


@pytest.fixture
def model() -> Iterator[HeldModel]:
    model = HeldModel()
    register("held/model", model)
    yield model
    unregister("held/model")


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store to which an execution is moved: a directory, or Temporal with a worker."""
    if request.param == "folder":
        return str(tmp_path / "there")
    store: str = request.getfixturevalue("shared_store")
    return store


@pytest.mark.parametrize("target", ["folder", "temporal"], indirect=True)
def test_it_leaves_the_queue_and_uses_the_budget_of_the_other_store_once(
    target: str, model: HeldModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [{"text": "Done.", "usage": {"input_tokens": 10, "output_tokens": USED - 10}}]
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    held, scripted = tmp_path / "held.yaml", tmp_path / "scripted.yaml"
    held.write_text(FLOW.replace("MODEL", "held/model"))
    scripted.write_text(FLOW.replace("MODEL", f"scripted/{tmp_path}/replies.json"))
    with Engine(tmp_path / "here", linger=0) as here, Engine(target, linger=0) as there:
        first = threading.Thread(target=here.run, args=[held], kwargs={"id": "first"})
        first.start()
        try:
            world.until(lambda: amounts(here).get("reserved", 0) > 200)
            with Engine(tmp_path / "here", linger=0) as driver:
                assert driver.run(scripted, id="moves").status == "waiting"
            with monkeypatch.context() as patched:
                patched.setattr(SqliteStore, "give_up", die)
                with pytest.raises(ProcessDied):
                    here.executions.move("moves", to=target)
            here.executions.move("moves", to=target)
        finally:
            model.released.set()
            first.join()
        for due in there.due():
            there.resume(due.execution)
        wait_until(lambda: there.executions.result("moves").status == "succeeded")
        after = here.run(scripted, id="after")  # it waits for nothing that has moved
        assert after.status == "succeeded"
        assert [amounts(here), amounts(there)] == [
            {"used": 2 * USED, "reserved": 0, "limit": 300},
            {"used": USED, "reserved": 0, "limit": 300},
        ]


def die(*_: object) -> bool:
    raise ProcessDied


def amounts(engine: Engine) -> dict[str, float]:
    """Return what was used and reserved of the tokens of the budget."""
    found = engine.budgets.list("moved")
    return found[0]["amounts"]["tokens"] if found else {}
