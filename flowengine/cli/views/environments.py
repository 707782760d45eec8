"""Environments and kept files in readable form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import first_line, table, when
from flowengine.errors import NotFound
from flowengine.sdk.files.file_names import clean_name, files_in
from flowengine.sdk.texts.visible_text import printable

# Environments in readable form.

LEFT = "left"
"""State of an environment that a dead process left open."""

NAME = "name or id (or a prefix of the id), as shown by `envs list`"
"""Help text of the argument that names an environment."""


def rows(environments: list[dict[str, Any]]) -> list[str]:
    """Return the recorded environments as a table.

    Args:
        environments: The result of `Engine.open_environments`.
    """
    head = ["ID", "NAME", "KIND", "BY", "SCOPE", "OWNER", "STATE", "PROCESS", "SINCE"]
    return table(
        [
            [
                *(environment["id"], first_line(environment["resource_key"], 40)),
                *(environment["kind"], environment["provider"], environment["scope"]),
                first_line(environment["owner_id"], 40) or "-",
                state(environment),
                "-" if environment["process"] is None else str(environment["process"]),
                when(environment["since"]),
            ]
            for environment in environments
        ],
        head,
    )


def state(environment: Mapping[str, Any]) -> str:
    """Return its state, or that its process is dead."""
    return LEFT if environment["alive"] is False else printable(environment["state"])


def details(environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield everything that is recorded about one environment.

    Args:
        environment: An item of `Engine.open_environments`.

    Yields:
        Lines.
    """
    yield f"{printable(environment['resource_key'])}  {printable(environment['id'])}"
    lives = "alive" if environment["alive"] else "dead"
    facts = {
        "kind": f"{environment['kind']} by {environment['provider']}",
        "scope": f"{environment['scope']} {environment['owner_id']}".rstrip(),
        "state": f"{state(environment)} since {when(environment['since'])}",
        "generation": environment["generation"],
        "process": f"{environment['process']} on {environment['host']}, which is {lives}",
        "workspace": environment["workspace"],
        **{name: _plain(value) for name, value in environment["traces"].items()},
    }
    yield from (
        f"  {printable(name):{11}} {first_line(value, 500)}" for name, value in facts.items()
    )


def examined(probes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the machine's capabilities, missing ones, and how limits and rules are enforced.

    Args:
        probes: The result of `EnvironmentManager.examine`.

    Yields:
        Lines.
    """
    yield from table(
        [
            [kind["kind"], kind["provider"], "yes" if kind["available"] else "no",
             kind["isolation"] or "-"]
            for kind in probes
        ],
        ["KIND", "BY", "HERE", "ISOLATION"],
    )  # fmt: skip
    missing: dict[str, list[str]] = {}
    for kind in probes:
        if not kind["available"]:
            missing.setdefault(kind["missing"], []).append(f"{kind['kind']} by {kind['provider']}")
    for why, what in missing.items():
        yield ""
        yield f"missing for {printable(', '.join(what))}:"
        yield f"  {first_line(why, 500)}"
    yield from _held([kind for kind in probes if kind["available"]])


def _held(probes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how each axis is enforced, once for all kinds for which it is the same."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for kind in probes:
        held = tuple(sorted(kind["held"].items()))
        groups.setdefault(held, []).append(f"{kind['kind']} by {kind['provider']}")
    for held, what in groups.items():
        yield ""
        yield f"enforced for {printable(', '.join(what))}:"
        yield from (f"  {printable(axis):12} {printable(how)}" for axis, how in held)
        if not held:
            yield "  nothing"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# The files that an execution keeps, found in its view.

SHORTEST = 8
"""Number of digits of a digest that are shown, and that name a file at least."""


class KeptFile(NamedTuple):
    """A file that an execution keeps."""

    name: str
    """Its name, cleaned: no directories and no control characters."""
    size: int
    sha256: str
    where: str
    """The step whose result names it, or `inputs`, `outputs` or `approvals`."""


def kept_files(session: CliSession, execution: str) -> list[KeptFile]:
    """Return the files of an execution, each once, in the order in which they appeared.

    Args:
        session: The session.
        execution: Full id.
    """
    info: Any = session.engine.executions.show(execution)
    found: dict[str, KeptFile] = {}
    for where, value in _parts(info):
        for file in files_in(value):
            name, sha256 = clean_name(str(file["name"])), str(file["sha256"])
            size = file["size"] if isinstance(file["size"], int) else 0
            found.setdefault(sha256, KeptFile(name, size, sha256, where))
    return list(found.values())


def _parts(info: Any) -> Iterator[tuple[str, Any]]:
    yield "inputs", info.get("inputs")
    for step in info["steps"]:
        yield step["address"], step
    yield "approvals", info["waits"]
    yield "outputs", info.get("outputs")


def chosen(files: list[KeptFile], names: list[str]) -> list[KeptFile]:
    """Return the files with these names, or with digests that begin like this. None: all files.

    Raises:
        NotFound: There is none.
    """
    if not names:
        return files
    wanted: list[KeptFile] = []
    for name in names:
        by_name = [file for file in files if file.name == name]
        digits = name.lower() if len(name) >= SHORTEST else "-"
        matching = by_name or [file for file in files if file.sha256.startswith(digits)]
        if not matching:
            known = ", ".join(dict.fromkeys(file.name for file in files)) or "none"
            raise NotFound(f"the execution keeps no file '{name}'", hint=f"it keeps: {known}")
        wanted += matching
    return list(dict.fromkeys(wanted))
