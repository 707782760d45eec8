"""Servers as tools, and the tools that a flow may call (docs/language.md: tools).

The offers of a server are known only when it is connected. A flow file is checked without it, so
only the declarations in the file are checked here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from flowengine.flow.models import Loc

if TYPE_CHECKING:
    from flowengine.flow.models.tool import Server
    from flowengine.flow.source.report import DiagnosticReporter


def check_offered(
    report: DiagnosticReporter, server: Server, tool: str, name: str, loc: Loc
) -> bool:
    """Return whether a flow may call a tool of a server, and report the reason otherwise.

    Args:
        report: Of the file that calls it.
        server: The server.
        tool: The tool's name on the server, empty if none is named.
        name: The name in the call.
        loc: Its place.
    """
    if not tool:
        hint = f"name one of its tools: {name}.TOOL"
        report.at("E401", f"{name!r} is a server of tools, not a tool", loc, hint)
        return False
    chosen = server.include
    if chosen is not None and not _fits(tool, chosen):
        message = f"the tool {tool!r} is not among those in 'include'"
        report.at("E401", message, loc, f"'include' has {', '.join(chosen)}")
        return False
    if _fits(tool, server.exclude):
        message = f"the tool {tool!r} is ruled out by 'exclude'"
        report.at("E401", message, loc, f"'exclude' has {', '.join(server.exclude)}")
        return False
    return True


def _fits(tool: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
