"""Messages for agents that are declared, run and read by names of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError as InvalidFields

from flowengine.errors import UsageError
from flowengine.sdk.python.argument_checks import check_keywords, in_words
from flowengine.sdk.texts.validation_messages import predicate

_RETURNS = "it is called 'returns' here: Agent(returns=City)"
_INSTRUCTIONS = "it is called 'instructions' here: Agent(instructions='…')"
_SETTINGS = "settings for the provider are one mapping: Agent(settings={'temperature': 0})"
_SERVERS = "add servers with Agent(…).use_mcp({'name': {'command': ['…']}})"
_BEFORE = "checks are one list: Agent(checks=[{'before': function}])"
_AFTER = "checks are one list: Agent(checks=[{'after': function}])"
_HANDOFFS = "agents that it can hand off to are in 'handoffs': Agent(handoffs=[other])"
_OBJECTS = "it is called 'deps' here: Agent(deps=Deps), then agent.run('…', deps=Deps(…))"
_HOOKS = "they are one list: Agent(hooks=[{'before': 'call', 'call': function}])"
_TURNS = "it belongs to a run: agent.run('…', max_turns=10)"
_SESSION = "conversations are sessions: agent.run('…', session='ana', engine=Engine())"
_MODEL = "it is called 'model' here: Agent(model='openai/gpt-5')"


def _all(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


_ELSEWHERE = {
    **_all("output_type result_type output_schema response_format response_model output_pydantic",
           _RETURNS),
    **_all("system_prompt instruction prompt system_message system backstory", _INSTRUCTIONS),
    **_all("model_settings generate_content_config model_kwargs temperature max_tokens top_p seed",
           _SETTINGS),
    **_all("mcp_servers toolsets mcp", _SERVERS),
    **_all("input_guardrails before_model_callback", _BEFORE),
    **_all("output_guardrails after_model_callback output_validators", _AFTER),
    **_all("sub_agents agents members team", _HANDOFFS),
    **_all("deps_type context_schema dependencies", _OBJECTS),
    **_all("callbacks middleware capabilities", _HOOKS),
    **_all("max_turns max_iterations max_iter max_steps recursion_limit", _TURNS),
    **_all("memory session checkpointer", _SESSION),
    **_all("llm model_name model_client llm_config", _MODEL),
    "handoff_description": "it is called 'description' here: Agent(description='…')",
    "tool": "it is called 'tools' here: Agent(tools=[function])",
    "retries": "it is called 'retry' here: Agent(retry=3)",
    "usage_limits": "it belongs to a run: agent.run('…', budget={'tokens': 50_000})",
    "examples": "put them before the user's message: run(agent, [*examples, message])",
    "handle_mm_func": "a tool returns Result(image=…), and the model is shown it",
}  # fmt: skip
"""Names of fields in other libraries → what to write here."""
_RUN = "agent.run('…')"
_ASYNC = "await agent.run_async('…')"
_STREAM = "for part in agent.stream('…')"
_MESSAGES = "response.messages (the new ones), or response.history (all of them)"
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "an agent": {
        **_all("run_sync invoke kickoff generate_reply execute query", _RUN),
        **_all("arun ainvoke achat kickoff_async", _ASYNC),
        **_all("run_stream run_streamed iter run_stream_events", _STREAM),
        "astream": "async for part in agent.stream_async('…')",
        "chat": "agent.run('…', session='ana', engine=engine)",
        **_all("tool tool_plain add_tool register_tool bind_tools", "Agent(tools=[function])"),
        **_all(
            "system_prompt set_system_prompt",
            "Agent(instructions='…'), or a function that returns the text",
        ),
        **_all("output_validator result_validator", "Agent(checks=[{'after': function}])"),
        **_all("override clone copy_with", "agent.model_copy(update={'model': '…'})"),
        "with_structured_output": "Agent(returns=City)",
        "to_a2a": "flowengine serve serves flows, not A2A",
    },
    "a response": {
        **_all("final_output data text content raw", "response.output"),
        **_all("all_messages new_messages new_items", _MESSAGES),
        "to_input_list": "agent.run([*response.history, message])",
        "last_agent": "response.agent",
        "interruptions": "response.waits, and engine.approvals.approve(wait['id'])",
        "context_wrapper": "response.context_variables",
        "raw_responses": "engine.executions.events(response.execution)",
        "usage_metadata": "response.usage",
    },
}
"""Of what → names of attributes in other libraries → what to write here."""
RUN = "a run of agents"
_OPTIONS = {
    name: f"write {line}"
    for name, line in {
        **_all("message_history history chat_history", "agent.run([*response.history, message])"),
        **dict.fromkeys(("context", "dependencies"), "agent.run('…', deps=Deps(…))"),
        **_all(
            "thread_id session_id conversation_id memory",
            "agent.run('…', session='ana', engine=engine)",
        ),
        **_all("config run_config metadata tags", "agent.run('…', labels={'team': 'it'})"),
        **_all("max_iter max_iterations max_steps recursion_limit", "max_turns=10"),
        **_all("usage_limits max_tokens max_cost", "budget={'tokens': 50_000}"),
        **_all("stream stream_mode", _STREAM),
        **_all("tools toolsets", "Agent(tools=[function])"),
        **_all("output_type result_type response_format response_model", "Agent(returns=City)"),
        **_all("temperature model_settings", "Agent(settings={'temperature': 0})"),
        **_all("callbacks hooks", "Agent(hooks=[{'before': 'call', 'call': function}])"),
        **_all("timeout deadline", "budget={'wall_time': '2m'}"),
        "debug": "log_agents(engine)",
        "checkpointer": "agent.run('…', engine=Engine())",
    }.items()
}
"""Options of runs in other libraries → what to write here."""


_VALUES = {
    "deps": "give the class: Agent(deps=Deps), and its object to the run",
    "instructions": "write one text, or a function that returns it",
    "context": "write Agent(context={'tokens': 50_000})",
    "settings": "write Agent(settings={'temperature': 0})",
    "model": "write the name of one: Agent(model='openai/gpt-5')",
    "approvals": "write Agent(approvals={'refund': 'ask'})",
    "retry": "write Agent(retry=3)",
}
"""Fields → what to write in place of a value of another type."""


def check_names(what: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check the names of the fields of an agent, or of the options of a run.

    Args:
        what: `an agent` or `RUN`.
        given: Those that were given.
        known: The valid ones.

    Raises:
        UsageError: One has its name in another library. The hint has what to write here.
        TypeError: One is unknown.
    """
    names, elsewhere = set(known), _OPTIONS if what == RUN else _ELSEWHERE
    for name in given:
        if name not in names and name in elsewhere:
            raise UsageError(f"{what} has no {name!r}", hint=elsewhere[name])
    check_keywords(what, given, names)


def missing_attribute(what: str, name: str) -> str | None:
    """Return the message about an attribute with its name in another library, or None."""
    line = ATTRIBUTES[what].get(name)
    return None if line is None else f"{what} has no {name!r}: write {line}"


def wrong_values(error: InvalidFields, given: Mapping[str, Any], *, default: str) -> UsageError:
    """Return the error for fields of an agent that have values of other types."""
    wanted: dict[str, dict[str, None]] = {}
    values: dict[str, Any] = {}
    hint = None
    for each in error.errors(include_url=False):
        field, *inside = each["loc"]
        value, place = each["input"], str(field)
        is_agent = each["type"] in ("model_type", "is_instance_of")  # or a handoff to one
        text = "must be an Agent" if is_agent else predicate(each)
        index = next((item for item in inside if isinstance(item, int)), None)
        if index is not None:
            place = f"{field}[{index}]"
            if not isinstance(given[str(field)], Sequence):  # an agent is a series of its fields
                text, value, place = "must be a list", given[str(field)], str(field)
        if text == "must be a list":
            hint = hint or f"write it in a list: {field}=[…]"
        elif text == "must be an Agent" and isinstance(value, str):
            hint = hint or "give the Agent itself, not its name"
        elif field in _VALUES:
            hint = hint or _VALUES[str(field)]
        wanted.setdefault(place, {})[text] = None
        values.setdefault(place, value)
    faults = [
        f"{place} {' or '.join(texts).replace(' or must be', ' or')}, not {in_words(values[place])}"
        for place, texts in wanted.items()
        if not any(other.startswith(f"{place}[") for other in wanted)
    ]
    return UsageError(
        f"agent {in_words(given.get('name', default))}: {'; '.join(faults)}", hint=hint
    )
