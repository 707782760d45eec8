"""The step of a generated flow that runs programs of a model, and the state of such a program.

    AGENT ─► AGENT.program ─► AGENT.calls ─► AGENT.program ─► … ─► AGENT.calls ─► AGENT

A program makes calls as a reply does: in each round, its step leaves some in `state.calls`, which
the same steps make. Their answers go back to the program instead of the conversation. When it has
ended, the other calls of the reply are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from flowengine.agents.agent_specs import RETRY, AgentSpec
from flowengine.agents.generated_calls import calls_of
from flowengine.agents.programs import PLACE, step_of
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark

STATE: Mapping[str, Plain] = {
    "program": {"type": "object", "default": {}},
    "program_calls": {"type": "array", "default": [], "reducer": "append"},
    "program_answers": {"type": "array", "default": [], "reducer": "append"},
}
"""`program`: the `call` of the model, the `rest` of the calls of its reply, the number of earlier
calls when it was `begun` and before its last round (`since`), and the time at which it `began`.
Empty if none runs."""
RUNS = "has(state.program.call)"
"""Whether a program waits for answers."""
ANSWERED: Mapping[str, Plain] = {
    "messages": f"${{{{ {RUNS} ? [] : output.messages }}}}",
    "program_answers": f"${{{{ {RUNS} ? output : [] }}}}",
}
"""The handling of the answers to calls."""
CONCURRENCY = "${{ size(state.calls) == 0 ? 1 : size(state.calls) }}"
"""The calls that are made at once. After a program, a reply may have no others."""


def step(agent: AgentSpec, constants: Plain, begin: str, spent: Plain) -> tuple[Plain, Mark]:
    """Return the step that runs one round of a program, and its mark.

    Args:
        agent: The agent.
        constants: The constants of its turns.
        begin: The first step of a program's calls. The other calls of the reply have been there.
        spent: The handler of an exhausted budget.
    """
    id = step_of(agent.name)
    here = f"c.step == {json.dumps(id)}"
    call = f"{RUNS} ? state.program.call : state.calls.filter(c, {here})[0]"
    rest = f"{RUNS} ? state.program.rest : state.calls.filter(c, !({here}))"
    number = "size(state.program_calls)"
    program = (
        f"{{'call': {call}, 'rest': {rest}, 'since': {number},"
        f" 'begun': {RUNS} ? state.program.begun : {number},"
        f" 'began': {RUNS} ? state.program.began : output.began}}"
    )
    asks = "has(output.asks)"
    failed: Plain = {
        "set": {
            "program": {},
            "calls": f"${{{{ {rest} }}}}",
            "messages": f"${{{{ call_failure({call}, error, true).messages }}}}",
        },
        "next": calls_of(agent.name),
    }
    made: Plain = {
        "id": id,
        "join": {"need": "each"},
        "when": f"${{{{ {RUNS} ? size(state.program_answers) == {number}"
        f" : state.calls.exists(c, {here}) }}}}",
        "agent_program": {"agent": constants},
        "environments": {PLACE: agent.code},
        "effect": "idempotent",
        "retry": dict(RETRY),
        "set": {
            "program": f"${{{{ {asks} ? {program} : {{}} }}}}",
            "program_calls": f"${{{{ {asks} ? output.asks : [] }}}}",
            "calls": f"${{{{ {asks} ? output.asks : {rest} }}}}",
            "messages": f"${{{{ {asks} ? [] : output.messages }}}}",
        },
        "on_error": [spent, failed],
        "next": {
            "first": [
                {"when": f"${{{{ output != null && {asks} }}}}", "to": begin},
                {"else": calls_of(agent.name)},
            ]
        },
    }
    if begin == id:  # without hooks, its calls are made at once
        made["next"] = {"to": calls_of(agent.name)}
    return made, Mark(told=True, says="program", ways=["", ""] if begin != id else [""])
