"""Agents declared in the step or tool that runs them, which become entries of `agents`.

    - {id: summary, agent: {model: openai/gpt-4o, prompt: "Summarize ${{ inputs.text }}"}}

The entry has the name of the step or tool. Errors in it are reported at its original place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from flowengine.flow.source.diagnostics import Loc, MovedSource, Origin

_STEPS = ("steps", "group", "parallel", "finally")
"""Keys with lists of steps."""


def with_entries(source: Origin) -> Origin:
    """Return a source in which each agent is an entry of `agents`.

    Args:
        source: As written.
    """
    if not source.readable or not isinstance(source.data, dict):
        return source
    entries = _Entries(source.data)
    data = entries.whole()
    return MovedSource(source, entries.moves, data) if entries.moves else source


class _Entries:
    """Finds agents in the data of a file.

    Args:
        data: The whole file.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        agents = data.get("agents")
        self.agents: dict[str, Any] | None = (
            dict(agents or {}) if isinstance(agents, dict | None) else None
        )
        self.moves: dict[Loc, Loc] = {}
        """Present place of a part → its original place."""

    def whole(self) -> dict[str, Any]:
        """Return the file with its agents as entries."""
        data = self._scope(self.data, ())
        for section, read in (("flows", self._scope), ("tools", self._tool)):
            entries = data.get(section)
            if isinstance(entries, dict):
                data[section] = {
                    name: read(entry, (section, name)) if isinstance(entry, dict) else entry
                    for name, entry in entries.items()
                }
        return {**data, "agents": self.agents} if self.moves else data

    def _scope(self, scope: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
        visible = dict(scope)
        for key in _STEPS:
            if isinstance(visible.get(key), list):
                visible[key] = [
                    self._step(one, (*loc, key, place)) if isinstance(one, dict) else one
                    for place, one in enumerate(visible[key])
                ]
        return visible

    def _step(self, step: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
        scope = self._scope(step, loc)
        agent, given = scope.get("agent"), scope.get("with", {})
        if not _is_entry(agent) or not isinstance(scope.get("id"), str):
            return scope
        prompted = "prompt" in agent and isinstance(given, dict) and "prompt" not in given
        entry = {key: value for key, value in agent.items() if key != "prompt" or not prompted}
        if prompted:
            scope["with"] = {**given, "prompt": agent["prompt"]}
            self.moves[*loc, "with", "prompt"] = (*loc, "agent", "prompt")
        return {**scope, "agent": self._named(scope["id"], entry, (*loc, "agent"))}

    def _tool(self, tool: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
        agent = tool.get("agent")
        if not _is_entry(agent):
            return dict(tool)
        return {**tool, "agent": self._named(str(loc[-1]), agent, (*loc, "agent"))}

    def _named(self, name: str, entry: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
        """Add an entry, and return the reference that runs it."""
        if self.agents is None:
            return dict(entry)
        while name in self.agents:
            name += "_"
        self.agents[name] = {"instructions": "", **_without_chat(entry)}
        self.moves["agents", name] = loc
        self.moves[*loc, "name"] = loc
        return {"name": name, **({"chat": entry["chat"]} if "chat" in entry else {})}


def _is_entry(entry: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether this is a declaration of an agent, not a name."""
    return isinstance(entry, dict) and "name" not in entry and bool(_without_chat(entry))


def _without_chat(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "chat"}
