"""Server tools in the flow that runs agents: the tools to request, and their use by calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import GLOB, Offered


@dataclass(frozen=True)
class CalledServerTools:
    """Tools of a server that one step calls."""

    server: str
    """Name of the server in the file of the agent."""
    session: str
    """Name of the session with the server, which is its name in the file of the flow."""
    patterns: Sequence[str]
    """Names on the server, or globs."""
    any: bool
    """Whether the step calls any matching tool. Otherwise it calls a single one by name."""
    include: Sequence[str] | None = None
    """Names or globs of the tools to offer. None: all."""
    exclude: Sequence[str] = ()
    bound: Sequence[str] = ()
    """Arguments that the flow fixes."""

    @property
    def named(self) -> list[str]:
        """Tools with known names before the server lists them, in the form offered to models."""
        names = [name for name in self.include or () if GLOB.isdisjoint(name)]
        known = (name for name in names if allowed(name, self.patterns, self.exclude))
        return [f"{self.server}.{name}" for name in known]


def allowed(name: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Return whether names and globs allow a tool. Without `include`, all others are allowed."""
    if include is not None and not any(fnmatchcase(name, glob) for glob in include):
        return False
    return not any(fnmatchcase(name, glob) for glob in exclude)


def offered(served: CalledServerTools, agent: str) -> Offered:
    """Return where a calling step finds the offer made to the model.

    Args:
        agent: The agent of the step.
    """
    known = f"state.offer.agents[{json.dumps(agent)}][call.name]"
    own = f"${{{{ {known}.tool }}}}" if served.any else ""
    return Offered(f"${{{{ {known}.parameters }}}}", f"${{{{ {known}.digest }}}}", own)


def wanted(steps: Iterable[tuple[CalledServerTools, str]], names: Sequence[str]) -> Plain:
    """Return the server tools to offer to an agent, in the form that `server_tools.offered` takes.

    Args:
        steps: Tools of servers, with the steps that call them.
        names: Names of its other tools.
    """
    servers: dict[str, dict[str, Plain]] = {}
    for offer, step in steps:
        use: dict[str, Plain] = {
            "server": offer.server,
            "session": offer.session,
            "patterns": {},
            "include": None if offer.include is None else [*offer.include],
            "exclude": [*offer.exclude],
            "bound": [*offer.bound],
        }
        patterns = servers.setdefault(offer.session, use)["patterns"]
        patterns |= dict.fromkeys(offer.patterns, step)
    return {"servers": [*servers.values()], "names": [*names]}
