"""The cost of a turn: low, and independent of the conversation's length."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models import ModelFacts, ModelReply, ModelRequest, register, unregister
from flowengine.agents.models.conversations import RequestMessages
from flowengine.agents.models.port import Listener, Usage
from flowengine.agents.models.replies import SentCall, SentReply, read_sent
from flowengine.engines.executions import execution
from tests.agents.flows import HEAD, NAME, TOOLS, flow
from tests.replacing import Limits

TURNS = 80
EARLY, LATE = range(10, 13), range(TURNS - 4, TURNS - 1)
"""The turns that are measured."""
IMAGES = (
    TOOLS
    + '''

def add(a: int, b: int):
    """Add two numbers."""
    from flowengine import Result
    return Result("3", image=b"\\x89PNG") if a == 1 else "3"
'''
)
BUDGET = HEAD + "budget: {tokens: 100000000, cost_usd: 1000}\n"


class Watched(dict[str, Any]):
    """A message that counts how often it is read."""

    looks = 0

    def _look(self) -> None:
        Watched.looks += 1

    def __getitem__(self, key: str) -> Any:
        self._look()
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._look()
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._look()
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._look()
        return super().__iter__()

    def keys(self) -> Any:
        self._look()
        return super().keys()

    def values(self) -> Any:
        self._look()
        return super().values()

    def items(self) -> Any:
        self._look()
        return super().items()


class Counter:
    """Counts executed lines of Python, including loops, and calls of C functions."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self.trace

    def profile(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event == "c_call"


class Caller:
    """A model that calls a tool in each reply, with or without reported usage.

    It parses its own replies like every model, and reads no message.
    """

    def __init__(self, *, says: bool) -> None:
        self.says = says
        self.turn = 0
        self.counter = Counter()
        self.cost: dict[int, int] = {}
        """Turn → cost up to the next turn."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        if self.turn in (*EARLY, *LATE):
            self.cost[self.turn] = self.counter.count
        self.turn += 1
        if self.turn == LATE.start:
            watch(request)
        if self.turn in (EARLY.start, LATE.start):
            sys.settrace(self.counter.trace)
            sys.setprofile(self.counter.profile)
        elif self.turn in (EARLY.stop, LATE.stop):
            sys.settrace(None)
            sys.setprofile(None)
        used = Usage(10 * self.turn, output_tokens=1, cost_usd=0.0) if self.says else Usage()
        sent = SentReply("x", usage=used)
        if self.turn < TURNS:
            sent.calls = [SentCall(f"call_{self.turn}", "add", f'{{"a": {self.turn}, "b": 2}}')]
        return read_sent(sent, request, "native")

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts(input_price=1e-9, output_price=1e-9)


def watch(request: ModelRequest) -> None:
    """Count from now on how often old messages are read. The newest ones may be read."""
    messages = request.messages
    assert isinstance(messages, RequestMessages)
    old = messages.rest[:-2]
    messages.rest[:-2] = map(Watched, old)
    Watched.looks = 0


@contextmanager
def untraced() -> Iterator[None]:
    before = sys.gettrace(), sys.getprofile()
    try:
        yield
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("says", "more", "head", "tools"),
    [
        (True, "", HEAD, TOOLS),
        (True, "context: {max_tokens: 1000000}", BUDGET, TOOLS),
        (False, "context: {max_tokens: 1000000}", BUDGET, TOOLS),
        (True, "", HEAD, IMAGES),
    ],
    ids=["plain", "bounded", "bounded and not told", "image"],
)
def test_a_late_turn_looks_at_no_old_message_and_takes_as_many_steps_as_an_early_one(
    tmp_path: Path,
    limits: Limits,
    says: bool,
    more: str,
    head: str,
    tools: str,
) -> None:
    # Snapshots detect changed messages by identity, and this test replaces messages.
    limits(execution, SMALLEST_TAIL=10**9)
    (tmp_path / "tools.py").write_text(tools)
    path = tmp_path / "flow.yaml"
    said = ["instructions: Add.", "tools: [add]", "max_turns: 1000", *filter(None, [more])]
    path.write_text(flow(f"first: {{{', '.join(said)}}}", head=head))
    model: Any = Caller(says=says)
    register(NAME, model)
    try:
        with untraced(), Engine(None, workdir=tmp_path) as engine:
            result = engine.run(path)
    finally:
        unregister(NAME)

    assert result.status == "succeeded", result.error
    assert not Watched.looks
    early, late = (model.cost[turns[-1]] - model.cost[turns[0]] for turns in (EARLY, LATE))
    assert late < early * 1.01
