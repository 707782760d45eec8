# Shows G11
"""Checks of an answer while it arrives (G11): what closes a request, and what followers see."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, ReasoningPart, Runner, TextPart
from flowengine.errors import FlowFileError
from flowengine.sdk.python import user_code
from flowengine.testing import scripted
from tests.agents.crashes import gone_on
from tests.agents.flows import BEGIN, NAME, Case, flow, told
from tests.agents.models.wire import Answer, Wire, streamed
from tests.replacing import Limits
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore, ProcessDied

HEAD = f"""{BEGIN}tools:
  polite: {{python: "tools:polite", effect: pure}}
  signed: {{python: "tools:polite", approval: required}}
""".replace(NAME, "openai/gpt-4o")
TOOLS = """
from pathlib import Path

def polite(answer: str, prompt: str) -> None:
    with open(Path(__file__).with_name("called.txt"), "a") as file:
        file.write(f"{len(answer)}\\n")
    if "damn" in answer:
        raise ValueError("mind your words")
"""
FINE, RUDE = "Fine" + " words" * 50, " damn" * 50

REFUSED = "polite refused the answer: ValueError: mind your words"


def agent(checks: str = "[{after: polite, parallel: true}]", more: str = "") -> str:
    return f"first:\n  instructions: You write.\n  checks: {checks}\n{more}"


def case(folder: Path, text: str = agent(), more: str = "") -> Case:
    folder.mkdir(exist_ok=True)
    (folder / "tools.py").write_text(TOOLS)
    return Case(folder, flow(text, head=HEAD + more), [])


def arriving(*texts: str, then: Any = "hold") -> Answer:
    """Return a reply that arrives in pieces."""
    ends = None if then == "hold" else "stop"
    return streamed(*({"content": text} for text in texts), finish=ends, then=then)


def whole(text: str) -> Answer:
    return arriving(text, then="end")


def test_a_portion_that_fails_closes_the_request_and_the_model_learns_why(
    wire: Wire, tmp_path: Path
) -> None:
    one = case(tmp_path)
    wire.answer(arriving(FINE, RUDE), whole("Kind."))

    assert one.run().outputs["answer"] == "Kind."
    assert wire.closed.wait(60)
    *_, said, why = told(wire.requests[1].body["messages"])
    assert said[0] == "assistant"
    assert said[1].startswith(FINE)
    assert why[1].startswith("A check refused your answer: ValueError: mind your words")
    assert one.called[-1] == "5"  # the whole answer is judged by a step


@each_row(
    "checks, more, asked, error",
    [
        ("[{after: polite, parallel: true, then: end}]", "", 1, REFUSED),
        ("[{after: polite, parallel: true}]", "  max_turns: 1\n", 1, "its 1 turns are used up"),
        ("[{after: polite, parallel: true}]", "", 4, REFUSED),
    ],
)
@each_row("closed", [True, False])
def test_the_work_ends_as_after_a_whole_answer(
    wire: Wire, tmp_path: Path, checks: str, more: str, asked: int, error: str, closed: bool
) -> None:
    wire.answers.clear()
    wire.requests.clear()
    wire.answer(*[arriving(FINE, RUDE) if closed else whole("damn")] * 4)

    result = case(tmp_path / f"{asked}{len(checks)}{closed}", agent(checks, more)).run()

    assert error in result.error["message"]
    assert len(wire.requests) == asked


def test_the_error_has_the_type_that_it_has_after_a_whole_answer(
    wire: Wire, tmp_path: Path
) -> None:
    """A `NameError` has a `name` of its own, which is no type."""
    one = case(tmp_path, agent("[{after: polite, parallel: true, then: end}]"))
    raised = 'NameError("mind your words", name="word")'
    (tmp_path / "tools.py").write_text(TOOLS.replace('ValueError("mind your words")', raised))
    wire.answer(arriving(FINE, RUDE))

    assert REFUSED.replace("ValueError", "NameError") in one.run().error["message"]


def test_a_check_that_does_not_return_refuses_what_arrives(
    wire: Wire, tmp_path: Path, limits: Limits
) -> None:
    limits(user_code, FUNCTION_SECONDS=0.3)
    one = case(tmp_path, agent("[{after: polite, parallel: true, then: end}]"))
    waits = "import time\n    while not Path(__file__).with_name('go').exists(): time.sleep(0.01)"
    (tmp_path / "tools.py").write_text(TOOLS.replace("if ", f"{waits}\n    if "))
    wire.answer(arriving(FINE))

    error = one.run().error
    (tmp_path / "go").touch()

    assert "polite refused the answer: Timeout: the check 'polite' did not" in error["message"]


def test_followers_see_what_has_passed_until_the_request_is_closed(wire: Wire) -> None:
    passed = threading.Event()

    def polite(answer: str) -> None:
        if "damn" in answer:
            raise ValueError("mind your words")
        passed.set()

    def pieces() -> Any:
        [thought] = streamed({"reasoning_content": "dark"}, finish=None).pieces
        fine, rude = arriving(FINE, RUDE).pieces
        yield thought
        yield fine
        passed.wait(60)
        yield rude

    wire.answer(
        Answer(pieces(), 200, {"Content-Type": "text/event-stream"}, "hold"), whole("Kind.")
    )
    desk = Agent(name="Desk", model="openai/gpt-4o", checks=[{"after": polite, "parallel": True}])

    parts = [*Runner().stream(desk, "Hi")]

    texts = [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]
    assert texts == [FINE, "Kind."]
    kinds = [type(part).__name__ for part in parts]
    assert any("Restart" in kind for kind in kinds), kinds


def test_a_refused_reply_is_not_shown_although_it_arrived_whole(tmp_path: Path) -> None:
    def polite(answer: str) -> None:
        if "damn" in answer:
            raise ValueError("mind your words")

    def fine(prompt: str) -> None:
        pass

    for more in ([], [{"before": fine, "parallel": True}]):
        desk = Agent(name="Desk", checks=[*more, {"after": polite, "parallel": True}])
        with scripted({"text": "damn", "reasoning": "dark"}, {"text": "Kind.", "reasoning": "ok"}):
            parts = [*Runner().stream(desk, "Hi")]
        seen = [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]
        assert seen == ["ok", "Kind."]


def test_a_closed_request_settles_at_its_reservation(wire: Wire, tmp_path: Path) -> None:
    wire.answer(arriving(FINE, RUDE))
    one = case(
        tmp_path,
        agent("[{after: polite, parallel: true, then: end}]", "  settings: {max_tokens: 300}\n"),
        "budget: {tokens: 100000, cost_usd: 100}\n",
    )
    one.run()

    with one.engine_open() as engine:
        [budget] = engine.executions.show(one.id)["budgets"]
    tokens, cost = (budget[name] for name in ("tokens", "cost_usd"))
    assert tokens["running"] == cost["running"] == 0
    prompt = tokens["used"] - 300
    assert prompt > 300  # every byte of the prompt counts as a token
    assert cost["used"] == pytest.approx(prompt * 2.5e-6 + 300 * 10e-6)


def test_a_crash_at_any_write_changes_nothing(wire: Wire, tmp_path: Path) -> None:
    def answering(body: Any) -> Answer:
        told_why = any("A check refused" in str(one) for one in body["messages"])
        return whole("Kind.") if told_why else arriving(FINE, RUDE)

    wire.answer(*[answering] * 500)
    calm, store = case(tmp_path / "calm"), FaultyStore()
    with Engine(store, workdir=calm.folder) as engine:
        engine.run(calm.path)
    died = 0
    for write in range(1, store.writes):
        one, before = case(tmp_path / str(write)), len(wire.requests)
        there = FaultyStore(faults={write: "die before" if write % 2 else "die after"})
        try:
            with Engine(there, workdir=one.folder) as engine:
                engine.run(one.path, id="it")
        except ProcessDied:
            died += 1
        there.restart()
        there.faults.clear()
        assert gone_on(one, there).outputs["answer"] == "Kind.", write
        # a request that was cut off may be repeated, one with a known outcome may not
        assert len(wire.requests) - before <= 3, write
    # how many writes are joined to one depends on time
    assert died >= store.writes / 2, (died, store.writes)


@each_row(
    "checks, more, message",
    [
        ("[{after: signed, parallel: true}]", "", "only a Python function"),
        ("[{after: polite, parallel: true}]", "  returns: {type: integer}\n", "not the answer"),
        ("[{after: polite, parallel: true}]", "  finish: tools\n", "not the answer"),
    ],
)
def test_check_names_what_is_wrong(tmp_path: Path, checks: str, more: str, message: str) -> None:
    with pytest.raises(FlowFileError, match=r"flow.yaml:\d+:\d+: error") as error:
        case(tmp_path, agent(checks, more)).run()
    assert message in str(error.value)
