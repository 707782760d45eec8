"""An agent's budget never counts less than its provider bills, despite crashes (F74).

The flow of an agent is simulated in memory, with the code of its turns. The provider bills each
request that it has begun to answer, with a tokenizer unknown to the agent.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flowengine
from flowengine.agents.first_messages import opened_with
from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.port import Listener, ModelFacts, ModelReply, ModelRequest, Usage
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.replies import SentCall, SentReply, read_sent
from flowengine.agents.turn_taking import take_turn, turn_of
from flowengine.kernel import ENDED
from flowengine.kernel.commands import Run
from flowengine.kernel.view import DOLLAR, as_said
from flowengine.sdk import StepError
from flowengine.sdk.read_only import ReadOnlyDict
from flowengine.testing.scripts import adapted
from tests.agents.flows import HEAD, NAME, TOOLS, flow
from tests.simulation.simulator import Fails, Measures, Simulator

FACTS = ModelFacts(
    longest_reply=2000, input_price=1e-6, output_price=4e-6, highest_input_price=1.25e-6
)
AGENTS = """
first: {instructions: You add., tools: [add], max_turns: 8}
other: {instructions: Du addierst schön., tools: [add], max_turns: 8, settings: {max_tokens: 300}}
"""
STEPS = """
steps:
  - id: both
    parallel:
      - {id: one, agent: first, with: {prompt: "${{ inputs.q }}"}}
      - {id: two, agent: other, with: {prompt: "${{ inputs.q }}"}}
"""
TOKENS, COST = 9000, 0.01


class Provider:
    """Answers requests, and bills them."""

    def __init__(self) -> None:
        self.begin(random.Random(0))

    def begin(self, draws: random.Random) -> None:
        self.draws = draws
        self.bill = {"tokens": 0, "cost_usd": 0}
        """Money in billionths of a dollar."""

    async def facts(self, model: str) -> ModelFacts:
        return FACTS

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        if self.draws.random() < 0.1:
            raise ModelError("busy", retryable=True)
        usage = self._bill(request)
        if self.draws.random() < 0.1:
            raise ModelError("it broke off", retryable=True, data={"unfinished": True})
        sent = SentReply("word " * self.draws.randint(0, 60), usage=usage)
        if self.draws.random() < 0.8:
            sent.calls = [SentCall(f"c{self.bill['tokens']}", "add", '{"a": 1, "b": 2}')]
        return read_sent(sent, request, "native")

    def _bill(self, request: ModelRequest) -> Usage:
        """Return the usage of a request: its text, at a random density, and a random overhead."""
        shown = [*(dict(one) for one in request.messages), *request.tools]
        written = sum(len(str(one).encode()) for one in shown)
        prompt = written // self.draws.choice([2, 3, 4, 6]) + self.draws.randint(0, 300)
        said = request.settings.get("max_tokens")
        longest = request.longest_reply or (said if isinstance(said, int) else 2000)
        reply = self.draws.choice([1, longest // 3 + 1, longest])
        price = self.draws.choice([1e-6, 1.25e-6])
        usage = Usage(prompt, output_tokens=reply, cost_usd=prompt * price + reply * 4e-6)
        self.bill["tokens"] += prompt + reply
        self.bill["cost_usd"] += round((usage.cost_usd or 0) * DOLLAR)
        return usage


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> flowengine.LoadedFlow:
    folder: Path = tmp_path_factory.mktemp("bill")
    (folder / "tools.py").write_text(TOOLS)
    budget = f"budget: {{tokens: {TOKENS}, cost_usd: {COST}}}\n"
    (folder / "f.yaml").write_text(flow(AGENTS, STEPS, f"{HEAD}{budget}"))
    return flowengine.load(folder / "f.yaml")


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()
    register(NAME, found)
    yield found
    unregister(NAME)


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(10))
# Shows F74
def test_the_total_is_never_below_the_bill(
    compiled: flowengine.LoadedFlow, provider: Provider, part: int
) -> None:
    """1,000 schedules with crashes, refusals, and replies that break off."""
    ends = dict.fromkeys(("budget", "other"), 0)
    for seed in range(part, 1000, 10):
        schedule = Schedule(compiled, provider, seed)
        schedule.play()
        budget = schedule.played.state["budget"]
        for meter, bill in provider.bill.items():
            total = budget["amounts"].get(meter, 0)
            assert bill <= total + 50, seed  # money is rounded, request by request
            # The total may exceed it by the reservations of requests whose end was never received.
            assert total <= bill + schedule.unheard[meter] + 50, seed
            assert total <= budget["limits"][meter] + schedule.most[meter], seed
        ends["budget" if "BudgetExceeded" in str(schedule.played.error) else "other"] += 1
    assert min(ends.values()) > 5, ends


class Schedule:
    """One execution, with its crashes."""

    def __init__(self, compiled: flowengine.LoadedFlow, provider: Provider, seed: int) -> None:
        self.compiled, self.seed = compiled, seed
        self.draws = random.Random(seed)
        provider.begin(self.draws)
        self.asked: dict[tuple[int, int], Any] = {}
        """Attempt → current or future answer of the provider."""
        self.unheard = dict.fromkeys(("tokens", "cost_usd"), 0)
        """Amounts granted to requests whose end was never received."""
        self.most = dict(self.unheard)
        """The highest amount granted to a request."""
        self.played: Simulator

    def play(self) -> None:
        prompt = "What is 1 + 2? " * self.draws.randint(1, 40)
        turn = Measures(self._needs, lambda run: self.asked[run.unit, run.attempt])
        opening = {"first": [NAME], "other": [NAME]}
        answer = "3 " * self.draws.randint(1, 200)
        script: dict[str, Any] = {
            "_offer": lambda run: opened_with({"models": opening}, {"prompt": prompt}),
            "first": turn,
            "other": turn,
            "add": lambda run: adapted(self.compiled.compiled, run, answer),
        }
        self.played = Simulator(self.compiled, script, seed=self.seed).start({"q": prompt})
        while self.played.status not in ENDED:
            self._begin_turns()
            if self.draws.random() < 0.1:
                self._lose(self.played.running)
                self.played.crash()
            elif not self.played.step():
                break
        self._lose(self.played.stopped)

    def _begin_turns(self) -> None:
        """Send the requests of turns, which the provider may bill from now on."""
        for key, run in self.played.running.items():
            is_turn = self.played.graph.node(run.step).kind == "agent_turn"
            if not is_turn or run.measures or key in self.asked:
                continue
            for meter, amount in (run.granted or {}).items():
                self.most[meter] = max(self.most[meter], amount)
            try:
                self.asked[key] = at_once(take_turn(context_of(run), self._task(run), given(run)))
            except StepError as error:
                told: Any = {"data": error.data, "retryable": error.retryable}
                self.asked[key] = Fails(str(error.type), error.message, **told)
                if "usage" in (error.data or {}):
                    self._lose({key: run})

    def _lose(self, runs: Mapping[tuple[int, int], Run]) -> None:
        """Record that the answers will never be received."""
        for key, run in runs.items():
            for meter, amount in (run.granted or {}).items() if key in self.asked else ():
                self.unheard[meter] += amount

    def _needs(self, run: Run) -> dict[str, Any]:
        context = context_of(run)
        return dict(at_once(turn_of(context, self._task(run), given(run)).needs(context)))

    def _task(self, run: Run) -> Any:
        return self.compiled.compiled["steps"][run.step]["task"]


def given(run: Run) -> Any:
    return run.input


def context_of(run: Run) -> Any:
    return SimpleNamespace(
        execution=SimpleNamespace(id="e", workdir="/nowhere", artifacts=SimpleNamespace(path=Path)),
        address=run.address,
        state=ReadOnlyDict(run.state or {}),
        fallback=run.fallback,
        followed=False,
        granted=None if run.granted is None else as_said(run.granted),
    )


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")
