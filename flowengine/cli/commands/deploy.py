"""Commands that deploy flows and move executions: to a changed flow, or to another store."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import chain
from typing import Any

from flowengine.cli.commands.flows import show
from flowengine.cli.commands.run import load
from flowengine.cli.driving.drive import warn_of_host_steps
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, fixed, flag
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import (
    err,
    first_line,
    out,
    out_json,
    paint,
    results,
    show_error,
)
from flowengine.engines.infos import UpgradeInfo
from flowengine.errors import Conflict, FlowEngineError, InputError, NotFound, UsageError
from flowengine.flow.export.yaml_text import entry
from flowengine.journal.store import every_item
from flowengine.sdk.texts.visible_text import printable

WORDS = {
    "continues": "continues",
    "mapping": "needs a mapping",
    "cannot": "cannot",
    "held": "is held by a running process",
    "current": "already runs this version",
    "ended": "has ended",
}
COLOURS = {"continues": "green", "mapping": "yellow", "held": "yellow", "cannot": "red"}
FINE = ("continues", "current")
_MAPPING = "steps: {old_name: new_name}"


@command(
    "move open executions to a changed flow, or see with --check which of them can be moved",
    """\
flowengine upgrade order.yaml --check
flowengine upgrade order.yaml --map renamed.yaml
flowengine upgrade order.yaml 01k8xq7mf4jb""",
    arg("file FLOW", "the changed flow: its file, or a deployed one, ID or ID@VERSION"),
    arg(
        "executions ID",
        "only these (default: all open executions of other versions of the flow)",
        nargs="*",
        default=[],
    ),
    flag("--check", "only show the effect on each execution"),
    arg("--map FILE", "new names of steps, state, signals, inputs and values, as YAML"),
    read.on_behalf(),
    fixed(linger=0.0),
)
def upgrade_command(arguments: Namespace) -> int:
    """Move them.

    Returns:
        The exit code: 0 if all can be moved or were moved.
    """
    mapping = {} if arguments.map is None else _mapping(arguments.map)
    with CliSession(arguments) as session:
        flow = load(session, arguments.file)
        upgrades = session.engine.executions.upgrade(
            flow, *arguments.executions, mapping=mapping, check=arguments.check, by=arguments.by
        )
        if arguments.json:
            out_json(upgrades)
        else:
            show_moves(session, upgrades, check=arguments.check, flow=arguments.file)
        return exit_code(upgrades)


def show_moves(
    session: CliSession, upgrades: list[UpgradeInfo], *, check: bool, flow: str | None = None
) -> None:
    """Print the effect on each execution.

    Args:
        flow: The changed flow as the user named it. None: by its id, since it is deployed.
    """
    for info in upgrades:
        for line in _lines(session, info, check=check):
            out(line)
        if info["fork"] is not None:
            id, file = session.short(info["execution"]), info["flow"] if flow is None else flow
            command = session.command("fork", id, "--from-step", info["fork"], "--file", file)
            out(printable(f"  start a new execution from there: {command}"))
    if not upgrades:
        err("no open execution of this flow runs another version of it")
        return
    moved = sum(info["moved"] for info in upgrades)
    can = sum(info["verdict"] == "continues" for info in upgrades)
    err(f"{can} of {len(upgrades)} can be moved, none was" if check
        else f"{moved} of {len(upgrades)} moved")  # fmt: skip


def exit_code(upgrades: list[UpgradeInfo]) -> int:
    """Return the exit code: 0 if all can be moved or were moved."""
    return Conflict.exit_code if any(info["verdict"] not in FINE for info in upgrades) else 0


def _mapping(path: str) -> dict[str, Any]:
    """Read the mapping.

    Args:
        path: A YAML file.

    Returns:
        Its content, which the engine checks.

    Raises:
        FlowFileError: The file is not YAML, or has a key twice.
        InputError: It is not a mapping.
        NotFound: It does not exist.
    """
    try:
        mapping = read.yaml_file(path)
    except NotFound as error:
        hint = f"--map takes a file that holds, for example: {_MAPPING}"
        raise NotFound(error.message, hint=hint) from None
    if mapping is not None and not isinstance(mapping, dict):
        raise InputError(f"{path} is not a mapping", hint=_MAPPING)
    return mapping or {}


def _lines(session: CliSession, info: UpgradeInfo, *, check: bool) -> Iterator[str]:
    """Yield the effect on an execution, the reasons, and the entries that the mapping needs."""
    verdict = WORDS[info["verdict"]]
    if info["verdict"] == "continues" and not check:
        verdict = "moved" if info["moved"] else "was not moved, try again"
    word = paint(verdict, COLOURS.get(info["verdict"]), results())
    yield f"{session.short(info['execution'])}  {info['status']:9}  {word}"
    for obstacle in info["obstacles"]:
        name = f"{obstacle['what']} {obstacle['name']}" if obstacle["name"] else obstacle["what"]
        yield f"  {printable(name)}: {first_line(obstacle['why'])}"
    if info["write"] and info["verdict"] == "mapping":
        yield "  write this into a mapping for --map:"
        fits = {one["name"].rpartition(":")[2]: one["fits"] for one in info["obstacles"]}
        yield from (f"    {line}" for line in _yaml(info["write"], fits))


def _yaml(data: dict[str, Any], fits: dict[str, list[str]]) -> Iterator[str]:
    """Yield nested maps as lines of YAML. The alternatives for a value follow it."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield entry(str(name), {}).removesuffix(" {}")
            yield from (f"  {line}" for line in _yaml(value, fits))
        else:
            may = fits.get(name) or fits.get(name.rpartition(":")[2]) or []
            note = f"  # {', '.join(may)}" if may else ""
            yield printable(f"{entry(str(name), value)}{note}")


@command(
    "keep flows in the store, to be started by name, signals and schedules",
    """\
flowengine deploy report.yaml
flowengine deploy report.yaml order.yaml && flowengine worker
flowengine deploy report.yaml && flowengine upgrade report
flowengine deploy report@1
flowengine deploy --remove report""",
    arg(
        "flows FLOW",
        "a flow file, which becomes the current version, or ID@VERSION to return to one",
        nargs="+",
    ),
    flag(
        "--remove",
        "remove the flows, or earlier versions, named ID or ID@VERSION: nothing starts them any "
        "more, and open executions continue",
    ),
)
def deploy_command(arguments: Namespace) -> None:
    """Deploy them, once all of them have proved valid, and show what starts them."""
    if arguments.remove:
        with CliSession(arguments) as session:
            undeploy = session.engine.flows.undeploy
            removed = [version for name in arguments.flows for version in undeploy(name)]
        if arguments.json:
            return out_json(removed)
        return None if arguments.quiet else err(f"no longer deployed: {', '.join(removed)}")
    with CliSession(arguments, make=arguments.flows[0]) as session:
        flows = [load(session, flow) for flow in arguments.flows]
        for flow in [] if session.is_served else flows:
            warn_of_host_steps(session, flow)
            if flow.modules and not arguments.quiet:
                names = ", ".join(flow.modules)
                err(f"{flow.id} imports from this host, not from the store: {names}")
        deployed = [session.engine.flows.deploy(flow) for flow in flows]
        if arguments.json:
            return out_json(deployed)
        show(session, deployed)
        return None


@command(
    "move waiting executions to another store, such as one in Temporal",
    """\
flowengine move --to temporal://127.0.0.1:7233/default 01k8xq7mf4jb
flowengine --store temporal://127.0.0.1:7233/default move --to other-store --all""",
    arg("executions ID", "an id, or any unambiguous prefix of one", nargs="*"),
    arg(
        "--to STORE",
        "the other store: a directory, or temporal://HOST:PORT/NAMESPACE",
        required=True,
    ),
    flag("--all", "move all executions that wait or are stalled, and finish interrupted moves"),
)
def move_command(arguments: Namespace) -> int:
    """Move them.

    Returns:
        The exit code: that of the first execution that could not be moved.

    Raises:
        FlowEngineError: There was only one, and it could not be moved.
        UsageError: No execution was named.
    """
    if bool(arguments.executions) == arguments.all:
        raise UsageError("name the executions to move, or all of them with --all")
    code, moved = 0, []
    with CliSession(arguments) as session:
        executions = arguments.executions
        if arguments.all:
            executions = [
                *session.engine.executions.interrupted_moves(to=arguments.to),
                *_resting(session),
            ]
        for execution in dict.fromkeys(executions):
            try:
                id = session.engine.executions.move(execution, to=arguments.to)
            except FlowEngineError as error:
                if len(executions) == 1:
                    raise
                show_error(error)
                code = code or error.exit_code
                continue
            moved.append(id)
            if not arguments.quiet:
                err(f"{id} is in {arguments.to} now")
    if arguments.json:
        out_json(moved)
    return code


def _resting(session: CliSession) -> list[str]:
    """Return the ids of all executions that wait or are stalled."""
    executions = session.engine.executions
    waiting = every_item(lambda after: executions.list(status="waiting", after=after))
    stalled = every_item(lambda after: executions.list(status="stalled", after=after))
    return [item["execution"] for item in chain(waiting, stalled)]
