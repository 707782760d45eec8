"""Validation of the inputs of a run: the conversation so far, and context variables."""

from __future__ import annotations

from typing import Any

from flowengine.errors import UsageError


def check_inputs(messages: Any, context_variables: Any) -> None:
    """Check the inputs of a run before any model is called or environment opened.

    Args:
        messages: The conversation so far.
        context_variables: Variables by name.

    Raises:
        UsageError: The message names the invalid input.
    """
    if not isinstance(context_variables, dict) or not all(
        isinstance(key, str) for key in context_variables
    ):
        raise UsageError("context_variables is not a dict with names", hint="give {'name': value}")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UsageError(
            "messages is not a list of dicts",
            hint="give [{'role': 'user', 'content': '…'}]",
        )
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            raise UsageError(
                f"messages[{place}] is a system message",
                hint="the instructions of the agent are sent as such: Agent(instructions=…)",
            )
        if role not in {"user", "assistant", "tool"}:
            raise UsageError(
                f"messages[{place}] has the role {role!r}",
                hint="say 'user', 'assistant' or 'tool'",
            )
        open_calls |= {str(item.get("id")) for item in message.get("tool_calls") or ()}
        if role == "tool" and str(message.get("tool_call_id")) not in open_calls:
            raise UsageError(
                f"messages[{place}] answers the call {message.get('tool_call_id')!r}, which no "
                "message before it makes",
                hint="put the assistant's message with the call before it",
            )
