# Shows M53
"""Models that are asked for calls as text (M53)."""

from __future__ import annotations

from flowengine.agents.models.model_facts import function_calling
from tests.rows import each_row


@each_row(
    "model",
    [
        "deepseek/deepseek-r1",
        "openrouter/deepseek/deepseek-r1:free",
        "deepseek/deepseek-reasoner",
        "ollama/llama3:8b",
        "ollama/llama3",
        "together_ai/meta-llama/Meta-Llama-3-8B-Instruct",
        "o1-mini",
    ],
)
def test_models_without_function_calling_are_asked_for_text(model: str) -> None:
    assert function_calling(model) == "text"


@each_row(
    "model",
    [
        "gpt-4o",
        "anthropic/claude-sonnet-4-5",
        "ollama/qwen3",
        "groq/qwen",
        "new/unknown",
        "xai/grok-2",
        "xai/grok-9",
        "groq/llama-3.3-70b-versatile",
        "ollama_chat/llama3.2",
        "ollama/llama3.1:8b",
    ],
)
def test_a_model_nobody_knows_is_asked_natively_first(model: str) -> None:
    assert function_calling(model) == "native"


def test_the_agent_comes_before_the_tables_and_the_librarys_before_ours() -> None:
    assert function_calling("o1-mini", agent="native", listed=False) == "native"
    assert function_calling("gpt-4o", agent="text", listed=True) == "text"
    assert function_calling("deepseek/deepseek-r1", listed=True) == "native"
    assert function_calling("new/unknown", listed=False) == "text"
