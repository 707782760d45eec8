# Shows G1
"""Answers of any type, from providers that enforce their documented rules about schemas."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import Agent, Engine
from tests.agents.models.answer_types import CASES
from tests.agents.models.provider_rules import Provider
from tests.agents.models.wire import Wire

PROVIDERS = {
    "strict": ("openai", "openai/gpt-4o"),
    "native": ("anthropic", "anthropic/claude-sonnet-4-5"),
    "schema": ("gemini", "gemini/gemini-2.5-flash"),
    "tool": ("anthropic", "anthropic/claude-3-7-sonnet-20250219"),
    "text": ("words", "openai/without-schemas"),
}
PATHS = {"openai": "/v1", "words": "/v1", "anthropic": "", "gemini": "/v1beta"}


NOT_ENFORCED = {
    "strict": {
        "tuple", "dict", "dict of numbers", "dict of choices", "defaults", "nested", "other keys",
        "two that contain each other", "dataclass", "recursive dataclass", "typed dict",
        "loose dict", "named tuple", "recursive alias", "anything",
    },
    "native": {
        "tuple", "dict", "dict of numbers", "dict of choices", "nested", "other keys", "tree",
        "chain", "two that contain each other", "recursive dataclass", "named tuple",
        "recursive alias", "anything",
    },
    "schema": {"dict of choices", "tree", "recursive alias", "anything"},
}  # fmt: skip
"""Types whose schema a provider cannot enforce. Their answers are checked here only."""
NOT_ENFORCED["tool"] = NOT_ENFORCED["native"]


def _run(engine: Engine, wire: Wire, name: str, provider: Provider, model: str) -> str:
    """Ask for an answer of a type, and return what is wrong with the response."""
    type_, right, value, wrong = CASES[name]
    agent: Any = Agent(
        name="A",
        model=model,
        instructions="Answer.",
        returns=type_,
        settings={"api_key": "key", "api_base": f"{wire.url}{PATHS[provider.kind]}"},
        retry=1,
    )
    provider.wanted = [*wrong[:3], right]
    wire.requests.clear()
    wire.answers.clear()
    wire.answer(*[provider] * 9)
    response = agent.run("Go", engine=engine)
    if (type(response.output), response.output) != (type(value), value):
        return f"{response.termination}: {response.output!r} {response.reason}"
    if provider.wanted:
        return f"not asked for: {provider.wanted}"
    told = sum("Your answer does not fit" in str(sent.body) for sent in wire.requests)
    if provider.modes[-1] == "text" and told < len(wrong[:3]):
        return "the model was not told what is wrong"
    return f"refused: {provider.refused}" if provider.refused and provider.kind != "words" else ""


@pytest.mark.endurance
@pytest.mark.parametrize("mode", PROVIDERS)
def test_an_answer_of_any_type_is_accepted_and_a_wrong_one_is_corrected(
    mode: str, wire: Wire
) -> None:
    kind, model = PROVIDERS[mode]
    faults, not_enforced = dict[str, str](), set[str]()
    with Engine(None) as engine:
        for name in CASES:
            provider = Provider(kind)
            try:
                fault = _run(engine, wire, name, provider, model)
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            if fault:
                faults[name] = fault[:400]
            if {"text", "loose"} & {*provider.modes}:
                not_enforced.add(name)
    assert faults == {}
    assert not_enforced == NOT_ENFORCED.get(mode, {*CASES})


@pytest.mark.parametrize("name", ["list of models", "model", "union of equal models"])
def test_an_answer_that_stays_wrong_ends_as_not_resolved(name: str, wire: Wire) -> None:
    type_, _, _, wrong = CASES[name]
    provider = Provider("words")
    provider.wanted = [wrong[0]] * 9
    wire.answer(*[provider] * 9)
    settings = {"api_key": "key", "api_base": f"{wire.url}/v1"}
    agent: Any = Agent(
        name="A", model="openai/without-schemas", returns=type_, settings=settings, retry=1
    )
    response = agent.run("Go")
    assert response.termination == "no_progress"
    assert "does not fit" in response.reason
    assert provider.modes.count("text") - len(provider.refused) <= 5
