"""The commands and their modules.

A command is a module of `flowengine.cli.commands` with `HELP` (one line), `EXAMPLE` (lines to
paste), `configure(parser)` and `run(arguments) -> exit code`.
"""

from __future__ import annotations

import re
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
        "mcp": "mcp",
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
        "files list": "files_list",
        "files save": "files_save",
    },
    "Environments": {
        "envs list": "envs_list",
        "envs show": "envs_show",
        "envs look": "envs_look",
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
STORE_COMMANDS = {
    "chat": "a worker runs the agent: run its flow, and continue the conversation on the page",
    "migrate": "it needs both stores",
    "worker": "it needs the store",
    "serve": "it needs the store",
    "mcp": "clients use the server's own /mcp",
    "envs shell": "it opens a sandbox on this machine",
    "envs reap": "a worker ends what it left open, and 'envs release' ends one",
    "prune": "users who can write to the store delete from it",
}
"""Commands that need a store → why. All others work against a server, too, or need neither."""
STORE_OPTIONS = {
    "--as": "the token determines who acts",
    "--durability": "the store of the server has its own",
    "--linger": "a worker runs the steps",
    "--workdir": "a worker runs the steps, in its own directories",
    "flows backfill --at-once": "its workers determine how many run",
    "events --otel": "it is made from the store",
    "resume --due": "a worker resumes what is due",
    "run --events": "read them with: flowengine events ID --follow",
    "signal --file": "deploy the flow first: flowengine deploy FILE",
}
"""Options that need a store, of one command or of all → why."""
STORELESS = frozenset({*GROUPS["Authoring"], "completion", "doctor"})
"""Commands that need neither a store nor a server."""
COMMANDS = {words: module for group in GROUPS.values() for words, module in group.items()}
"""Words of a command → its module."""
SERVED = COMMANDS.keys() - STORE_COMMANDS - STORELESS
"""Commands that work against a server, too."""
SYNONYMS = {
    "abort": "cancel",
    "artifacts": "files list",
    "compare": "diff",
    "create": "init",
    "delete": "prune",
    "describe": "show",
    "download": "files save",
    "draw": "graph",
    "execute": "run",
    "export": "files save",
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


def works_there(text: str) -> bool:
    """Return whether a command line in a text, if any, works against a server."""
    match = re.search(r"flowengine ([a-z]+)(?: ([a-z]+))?", text)
    if match is None:
        return True
    if not (SERVED | STORELESS) & {match[1], f"{match[1]} {match[2]}"}:
        return False
    return match[1] != "resume" or "--on-crash" in text


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
