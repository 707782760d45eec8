"""Environments as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowengine.cli.terminal.output import clean, one_line, table, when
from flowengine.errors import FlowEngineError

if TYPE_CHECKING:
    from flowengine.engines.results import WaitInfo

LEFT = "left"
"""State of what a dead process has left open."""
MISSING = "missing"
"""State of what an execution is stalled for."""


NAME = "name or id, as `envs list` shows them; the beginning of an id is enough"
"""Help on the argument by which an environment is named."""


@contextmanager
def failures() -> Iterator[None]:
    """Tell what no environment can do, or give, as the command line tells errors.

    Raises:
        FlowEngineError: With the message of the failure.
    """
    from flowengine.sdk import EnvironmentFailure

    try:
        yield
    except EnvironmentFailure as error:
        raise FlowEngineError(error.message) from None


def rows(found: list[dict[str, Any]]) -> list[str]:
    """Return what is written down as a table.

    Args:
        found: Of `EnvironmentManager.written`.
    """
    head = ["ID", "NAME", "KIND", "BY", "SCOPE", "OWNER", "STATE", "PROCESS", "SINCE"]
    return table(
        [
            [
                clean(one["id"]),
                one_line(one["resource_key"], 40),
                clean(one["kind"]),
                clean(one["provider"]),
                clean(one["scope"]),
                one_line(one["owner_id"], 40) or "-",
                state(one),
                "-" if one["process"] is None else str(one["process"]),
                when(one["since"]),
            ]
            for one in found
        ],
        head,
    )


def state(one: Mapping[str, Any]) -> str:
    """Return how far it has come, or that its process is dead."""
    return LEFT if one["alive"] is False else clean(one["state"])


def missing(waits: list[WaitInfo]) -> Iterator[dict[str, Any]]:
    """Yield the environments for which executions are stalled: they cannot be had again.

    Args:
        waits: Open questions.

    Yields:
        Keys as of `EnvironmentManager.written`, without process, and the `error`.
    """
    for wait in waits:
        if wait.get("ran") == "no":
            error: Any = wait["error"]
            yield {
                **error["data"]["environment"],
                "id": wait["id"],
                "state": MISSING,
                "since": wait["since"],
                "process": None,
                "host": None,
                "alive": None,
                "workspace": None,
                "traces": {},
                "error": error["message"],
            }


def details(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield all that is written down of one environment.

    Args:
        one: Of `EnvironmentManager.written`.

    Yields:
        Lines.
    """
    yield f"{clean(one['resource_key'])}  {clean(one['id'])}"
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
    yield from (f"  {clean(name):{11}} {one_line(value, 500)}" for name, value in facts.items())


def examined(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what this machine can give, what is missing, and how things are held.

    Args:
        found: Of `EnvironmentManager.examine`.

    Yields:
        Lines.
    """
    yield from table(
        [
            [
                clean(one["kind"]),
                clean(one["provider"]),
                "yes" if one["available"] else "no",
                clean(one["isolation"] or "-"),
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
        yield f"missing for {clean(', '.join(what))}:"
        yield f"  {one_line(why, 500)}"
    yield from _held([one for one in found if one["available"]])


def _held(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how each axis is held, once for all kinds for which it is the same."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in found:
        held = tuple(sorted(one["held"].items()))
        groups.setdefault(held, []).append(f"{one['kind']} by {one['provider']}")
    for held, what in groups.items():
        yield ""
        yield f"enforced for {clean(', '.join(what))}:"
        yield from (f"  {clean(axis):12} {clean(how)}" for axis, how in held)
        if not held:
            yield "  nothing"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
