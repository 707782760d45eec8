"""The commands and their modules.

A command is a module of `flowengine.cli.commands` with `HELP` (one line), `EXAMPLE` (lines to
paste), `configure(parser)` and `run(arguments) -> exit code`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Protocol, cast

GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "run",
        "chat": "chat",
        "resume": "resume",
        "signal": "signal",
        "cancel": "cancel",
        "retry": "retry",
        "fork": "fork",
        "upgrade": "upgrade",
        "migrate": "migrate",
        "worker": "worker",
    },
    "Deploy": {
        "deploy": "deploy",
        "flows list": "flows_list",
        "flows show": "flows_show",
        "flows diff": "flows_diff",
        "flows undeploy": "flows_undeploy",
        "flows pause": "flows_pause",
        "flows resume": "flows_resume",
        "flows trigger": "flows_trigger",
        "flows backfill": "flows_backfill",
    },
    "Serve": {
        "serve": "serve",
        "tokens create": "tokens_create",
        "tokens list": "tokens_list",
        "tokens revoke": "tokens_revoke",
    },
    "Decide": {
        "approve": "approve",
        "reject": "reject",
        "approvals list": "approvals_list",
        "approvals show": "approvals_show",
        "approvals decide": "decide",
        "approvals claim": "approvals_claim",
        "approvals release": "approvals_release",
        "approvals delegate": "approvals_delegate",
        "grants list": "grants_list",
        "grants revoke": "grants_revoke",
    },
    "Inspect": {
        "list": "list",
        "show": "show",
        "why": "why",
        "events": "events",
        "diff": "diff",
        "graph": "graph",
    },
    "Environments": {
        "envs list": "envs_list",
        "envs show": "envs_show",
        "envs shell": "envs_shell",
        "envs release": "envs_release",
        "envs reap": "envs_reap",
    },
    "Authoring": {
        "init": "init",
        "check": "check",
        "explain": "explain",
        "test": "test",
        "schema": "schema",
    },
    "Maintenance": {"doctor": "doctor", "prune": "prune", "completion": "completion"},
}
SERVED = frozenset(
    words
    for group in ("Decide", "Inspect")
    for words in GROUPS[group]
    if words != "graph"
) | {
    *("run", "resume", "signal", "cancel", "retry", "fork", "upgrade"),
    *("envs list", "envs show", "envs release"),
}  # fmt: skip
"""Commands that work against a server, too."""
STORELESS = frozenset({*GROUPS["Authoring"], "completion"})
"""Commands that need neither a store nor a server."""
COMMANDS = {words: module for group in GROUPS.values() for words, module in group.items()}
"""Words of a command → its module."""
SYNONYMS = {
    "abort": "cancel",
    "compare": "diff",
    "create": "init",
    "delete": "prune",
    "describe": "show",
    "draw": "graph",
    "execute": "run",
    "history": "events",
    "inbox": "approvals list",
    "inspect": "show",
    "kill": "cancel",
    "lint": "check",
    "logs": "events",
    "ls": "list",
    "new": "init",
    "ps": "list",
    "publish": "signal",
    "remove": "prune",
    "replay": "fork",
    "rerun": "retry",
    "reset": "fork",
    "restart": "retry",
    "rm": "prune",
    "send": "signal",
    "start": "run",
    "status": "show",
    "stop": "cancel",
    "terminate": "cancel",
    "validate": "check",
    "verify": "check",
}
"""Names of commands in other tools → the command here, for hints."""
FAMILIES = {words.split()[0] for words in COMMANDS if " " in words}
"""First words that are not commands by themselves."""


class CommandModule(Protocol):
    """The interface of a command's module."""

    HELP: str
    """Its effect, in one line."""
    EXAMPLE: str
    """Lines to paste."""

    def configure(self, parser: ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, arguments: Namespace) -> int:
        """Run the command, and return the exit code."""


def load(words: str) -> CommandModule:
    """Import the module of a command."""
    return cast("CommandModule", import_module(f"flowengine.cli.commands.{COMMANDS[words]}"))
