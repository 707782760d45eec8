"""The engine as services use it: acting users, recorded requests, feeds of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.errors import NotAllowed

ASK = """
flowengine: 1
id: ask
steps:
  - {id: ask, approval: {title: Go?, assignees: ["user:ben"]}}
  - {id: rest, wait: 1h}
"""


@pytest.fixture
def engine(folder: Path) -> Engine:
    (folder / "config" / "flowengine").mkdir(parents=True)
    settings = folder / "config" / "flowengine" / "settings.yaml"
    settings.write_text("act_for_others: false\n")
    (folder / "ask.yaml").write_text(ASK)
    return Engine(None, user="user:service")


def test_a_user_acts_in_person_through_a_service(engine: Engine) -> None:
    with engine:
        [wait] = engine.run("ask.yaml", id="a").waits
        with pytest.raises(NotAllowed, match="user:service may not act for user:ben"):
            engine.approvals.approve(wait["id"], by="user:ben")
        ana, ben = (engine.acting_as(user, via="rest") for user in ("user:ana", "user:ben"))
        assert engine.approvals.may_answer(wait, "user:ben")
        assert not engine.approvals.may_answer(wait, "user:ana")
        with pytest.raises(NotAllowed):
            ana.approvals.approve(wait["id"])
        decided = ben.approvals.approve(wait["id"], resume=False)

        assert (decided.by, decided.via) == ("user:ben", "rest")
        assert "entered_by" not in engine.approvals.show(wait["id"])["decision"]
        assert engine.user == "user:service"


def test_a_cancel_can_be_recorded_for_the_process_that_drives(engine: Engine) -> None:
    with engine:
        engine.run("ask.yaml", id="a")
        assert engine.executions.cancel("a", resume=False).status == "interrupted"
        assert [one.execution for one in engine.due()] == ["a"]
        assert engine.resume("a").status == "cancelled"
