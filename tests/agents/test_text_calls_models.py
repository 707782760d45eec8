"""Which models are asked for calls as text (M53)."""

from __future__ import annotations

import pytest

from flowengine.agents.text_calls.models import MODELS, FunctionCalling, function_calling

Table = tuple[tuple[str, FunctionCalling], ...]


@pytest.mark.parametrize(
    "model",
    [
        "deepseek/deepseek-r1",
        "openrouter/deepseek/deepseek-r1:free",
        "deepseek/deepseek-reasoner",
        "groq/llama-3.3-70b-versatile",
        "ollama/llama3:8b",
        "together_ai/meta-llama/Meta-Llama-3.1-8B-Instruct",
        "xai/grok-2",
        "o1-mini",
    ],
)
def test_models_without_function_calling_are_asked_for_text(model: str) -> None:
    assert function_calling(model) == "text"


@pytest.mark.parametrize(
    "model", ["gpt-4o", "anthropic/claude-sonnet-4-5", "ollama/qwen3", "groq/qwen", "new/unknown"]
)
def test_a_model_nobody_knows_is_asked_natively_first(model: str) -> None:
    assert function_calling(model) == "native"


def test_the_run_comes_before_the_agent_and_the_agent_before_the_table() -> None:
    assert function_calling("xai/grok-2", agent="native") == "native"
    assert function_calling("xai/grok-2", agent="native", run="text") == "text"
    assert function_calling("gpt-4o", agent="text") == "text"


def test_the_table_is_data_that_a_user_extends() -> None:
    mine: Table = (("grok-4*", "native"), ("my-model*", "text"), *MODELS)

    assert function_calling("xai/grok-4", models=mine) == "native"
    assert function_calling("local/my-model-2", models=mine) == "text"
    assert function_calling("xai/grok-2", models=mine) == "text"
