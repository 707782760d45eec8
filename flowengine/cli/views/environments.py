"""Environments in readable form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.cli.terminal.output import first_line, table, when
from flowengine.sdk.visible_text import printable

LEFT = "left"
"""State of an environment that a dead process left open."""

NAME = "name or id (or a prefix of the id), as shown by `envs list`"
"""Help text of the argument that names an environment."""


def rows(found: list[dict[str, Any]]) -> list[str]:
    """Return the recorded environments as a table.

    Args:
        found: The result of `Engine.open_environments`.
    """
    head = ["ID", "NAME", "KIND", "BY", "SCOPE", "OWNER", "STATE", "PROCESS", "SINCE"]
    return table(
        [
            [
                printable(one["id"]),
                first_line(one["resource_key"], 40),
                printable(one["kind"]),
                printable(one["provider"]),
                printable(one["scope"]),
                first_line(one["owner_id"], 40) or "-",
                state(one),
                "-" if one["process"] is None else str(one["process"]),
                when(one["since"]),
            ]
            for one in found
        ],
        head,
    )


def state(one: Mapping[str, Any]) -> str:
    """Return its state, or that its process is dead."""
    return LEFT if one["alive"] is False else printable(one["state"])


def details(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield everything that is recorded about one environment.

    Args:
        one: An item of `Engine.open_environments`.

    Yields:
        Lines.
    """
    yield f"{printable(one['resource_key'])}  {printable(one['id'])}"
    lives = "alive" if one["alive"] else "dead"
    facts = {
        "kind": f"{one['kind']} by {one['provider']}",
        "scope": f"{one['scope']} {one['owner_id']}".rstrip(),
        "state": f"{state(one)} since {when(one['since'])}",
        "generation": one["generation"],
        "process": f"{one['process']} on {one['host']}, which is {lives}",
        "workspace": one["workspace"],
        **{name: _plain(value) for name, value in one["traces"].items()},
    }
    yield from (
        f"  {printable(name):{11}} {first_line(value, 500)}" for name, value in facts.items()
    )


def examined(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the machine's capabilities, missing ones, and how limits and rules are enforced.

    Args:
        found: The result of `EnvironmentManager.examine`.

    Yields:
        Lines.
    """
    yield from table(
        [
            [
                printable(one["kind"]),
                printable(one["provider"]),
                "yes" if one["available"] else "no",
                printable(one["isolation"] or "-"),
            ]
            for one in found
        ],
        ["KIND", "BY", "HERE", "ISOLATION"],
    )
    missing: dict[str, list[str]] = {}
    for one in found:
        if not one["available"]:
            missing.setdefault(one["missing"], []).append(f"{one['kind']} by {one['provider']}")
    for why, what in missing.items():
        yield ""
        yield f"missing for {printable(', '.join(what))}:"
        yield f"  {first_line(why, 500)}"
    yield from _held([one for one in found if one["available"]])


def _held(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how each axis is enforced, once for all kinds for which it is the same."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in found:
        held = tuple(sorted(one["held"].items()))
        groups.setdefault(held, []).append(f"{one['kind']} by {one['provider']}")
    for held, what in groups.items():
        yield ""
        yield f"enforced for {printable(', '.join(what))}:"
        yield from (f"  {printable(axis):12} {printable(how)}" for axis, how in held)
        if not held:
            yield "  nothing"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
