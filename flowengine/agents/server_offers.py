"""Tools of servers in the flow that runs agents: what is asked of servers, and what calls know."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import GLOB, Offered


@dataclass(frozen=True)
class ServerTools:
    """Tools of a server that one step calls."""

    server: str
    """As the file of the agent calls it."""
    session: str
    """As the file of the flow would call it: the session with it has this name."""
    patterns: Sequence[str]
    """Names on the server, or globs over names."""
    any: bool
    """Whether the step calls any of those that fit; else it calls the one by its name."""
    include: Sequence[str] | None = None
    """Names or globs of those that may be called; None: all."""
    exclude: Sequence[str] = ()
    bound: Sequence[str] = ()
    """Arguments that the flow fixes."""

    @property
    def named(self) -> list[str]:
        """Tools that are known by name before the server is asked, as models are offered them."""
        names = [one for one in self.include or () if GLOB.isdisjoint(one)]
        known = (name for name in names if allowed(name, self.patterns, self.exclude))
        return [f"{self.server}.{name}" for name in known]


def allowed(name: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Return whether a tool may be used, by names and globs; without `include` any other may."""
    if include is not None and not any(fnmatchcase(name, glob) for glob in include):
        return False
    return not any(fnmatchcase(name, glob) for glob in exclude)


def offered(served: ServerTools, agent: str) -> Offered:
    """Return where a step that calls them finds what the model was offered.

    Args:
        agent: Whose step it is.
    """
    known = f"state.offer.agents[{json.dumps(agent)}][call.name]"
    own = f"${{{{ {known}.tool }}}}" if served.any else ""
    return Offered(f"${{{{ {known}.parameters }}}}", f"${{{{ {known}.digest }}}}", own)


def wanted(steps: Iterable[tuple[ServerTools, str]], names: Sequence[str]) -> Plain:
    """Return what an agent is to be offered of servers, for `server_tools.offered`.

    Args:
        steps: Tools of servers, with the step that calls them.
        names: What else it is offered.
    """
    servers: dict[str, dict[str, Plain]] = {}
    for one, step in steps:
        use: dict[str, Plain] = {
            "server": one.server,
            "session": one.session,
            "patterns": {},
            "include": None if one.include is None else [*one.include],
            "exclude": [*one.exclude],
            "bound": [*one.bound],
        }
        patterns = servers.setdefault(one.session, use)["patterns"]
        patterns |= dict.fromkeys(one.patterns, step)
    return {"servers": [*servers.values()], "names": [*names]}
