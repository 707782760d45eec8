"""Agents of a file that are answered by one script of replies (W420)."""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

import yaml

from flowengine.flow.loading.files import FlowFile
from flowengine.flow.models.agent import Agent, script_of

_MOST = 1 << 20
"""Characters of a script that are read."""


def warn_of_shared_scripts(file: FlowFile) -> None:
    """Warn of agents with separate conversations whose script does not name its agents.

    The script begins anew in each conversation, so each of them receives the replies that were
    written for the first one. Agents that hand over to each other share a conversation.
    """
    agents = file.model.agents
    for number, (name, agent) in enumerate(agents.items()):
        path = script_of(agent.model)
        for other in () if path is None else list(agents)[:number]:
            if script_of(agents[other].model) != path or other in _conversing(agents, name):
                continue
            if not _answers_any(str(path)):
                break
            message = f"the script {path} answers the agent {other!r}, too, from its first reply on"
            hint = "give its replies 'when: {agent: …}', or the agent its own script"
            file.report.at("W420", message, ("agents", name, "model"), hint)
            break


def _conversing(agents: dict[str, Agent], name: str) -> set[str]:
    """Return the agents that share a conversation with one, by handoffs in either direction."""
    pairs = [(one, to) for one, agent in agents.items() for to in _next(agent)]
    found, new = set[str](), {name}
    while new:
        found |= new
        new = set(chain(*(pair for pair in pairs if found.intersection(pair)))) - found
    return found


def _next(agent: Agent) -> list[str]:
    return [*(handoff.agent for handoff in agent.handoffs), *agent.tool_handoffs]


def _answers_any(path: str) -> bool:
    """Return whether a script has replies for whichever agent asks. False if it is not readable."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, encoding="utf-8") as script:
            entries: Any = yaml.safe_load(script.read(_MOST))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return False  # the first call says why
    return isinstance(entries, list) and not all(
        isinstance(entry, dict)
        and isinstance(when := entry.get("when"), dict)
        and {"agent", "instructions"} & when.keys()
        for entry in entries
    )
