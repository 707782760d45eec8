"""Handlers on an event loop, or too late, and events (also `asking_policies.cases.yaml`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.execution_environment.policy_approval import (
    Question,
    configure_policy_approval,
    register_handler,
    unregister_handler,
)
from tests.engines.world import Clock
from tests.execution_environment.toy import Toy

FUNCTIONS = """
def use(toy):
    return toy.echo("x")
"""


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[[Question], Any]], None]]:
    """Configure a handler."""

    def configure(answer: Callable[[Question], Any]) -> None:
        register_handler("host", answer)
        configure_policy_approval("host")

    yield configure
    unregister_handler("host")


def write(approval: str = "ask") -> str:
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\n"
        f"environments: {{toy: {{kind: toy, approval: {approval}}}}}\n"
        'steps: [{id: a, python: "things:use", environments: [toy]}]\n'
    )
    return "flow.yaml"


def test_on_an_event_loop_it_is_the_same(toy: Toy, handler: Any) -> None:
    answers = iter([{"approved": True}, {"pending": True}])
    handler(lambda question: next(answers))

    async def go() -> None:
        async with Engine("store") as engine:
            first = await engine.run_async(write())
            [wait] = (await engine.run_async(write())).waits
            decision = await engine.approvals.continue_with_async(wait["id"], {"approved": True})

        assert first.status == "succeeded"
        assert decision.result is not None
        assert decision.result.status == "succeeded"

    asyncio.run(go())
    assert toy.opens == 2


def test_subscribers_of_the_manager_are_told_that_somebody_is_asked(toy: Toy) -> None:
    told: list[tuple[str, str]] = []
    with Engine("store") as engine:
        engine.environments.subscribe(lambda event: told.append((event.event, event.resource_key)))
        [wait] = engine.run(write()).waits
        engine.approvals.approve(wait["id"])

    names = [name.removeprefix("execution_environment.") for name, _ in told]
    assert names == [
        "declared",
        "approval_required",
        "ensuring",
        "ready",
        "releasing",
        "released",
    ]


@pytest.mark.parametrize("approved", [True, False])
def test_a_handler_that_answers_after_the_expiry_is_too_late(
    toy: Toy, handler: Any, approved: bool
) -> None:
    clock = Clock()

    def late(_: Question) -> Mapping[str, Any]:
        clock.time += 1_000
        return {"approved": approved, "reason": "too late"}

    handler(late)
    with Engine("store", linger=0, clock=clock) as engine:
        result = engine.run(write("{expires: 1s}"), id="it")
        if result.status == "waiting":
            result = engine.resume("it")
        decided = [e for e in engine.executions.events("it") if e["type"] == "decided"]

    assert decided == []
    assert result.error is not None
    assert (result.error["type"], toy.opens) == ("Expired", 0)
