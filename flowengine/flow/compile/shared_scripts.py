"""Agents of a file that are answered by one script of replies (W420)."""

from __future__ import annotations

import os
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
    sharing: dict[str, list[str]] = {}
    for name, agent in agents.items():
        for path in filter(None, map(script_of, agent.model or ())):
            sharing.setdefault(path, []).append(name)
    with_others = {path: names for path, names in sharing.items() if len(names) > 1}
    group = _conversing(agents) if with_others else {}
    for path, names in with_others.items():
        apart = [
            (name, other)
            for number, name in enumerate(names)
            for other in [one for one in names[:number] if group[one] is not group[name]][:1]
        ]
        if not apart or not _answers_any(path):
            continue
        for name, other in apart:
            message = f"the script {path} answers the agent {other!r}, too, from its first reply on"
            hint = "give its replies 'when: {agent: …}', or the agent its own script"
            file.report.at("W420", message, ("agents", name, "model"), hint)


def _conversing(agents: dict[str, Agent]) -> dict[str, set[str]]:
    """Return for each agent those that share its conversations, by handoffs in either direction.

    They all have the same set.
    """
    groups = {name: {name} for name in agents}
    for name, agent in agents.items():
        for to in agent.led_to:
            one, other = groups[name], groups.setdefault(to, {to})
            if one is not other:
                one |= other
                groups.update(dict.fromkeys(other, one))
    return groups


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
