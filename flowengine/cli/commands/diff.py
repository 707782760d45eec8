"""`flowengine diff`: where the histories of two executions diverge, and how two flows differ."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

from flowengine.cli.commands.run import load
from flowengine.cli.parsing.arguments import is_deployed, names_python
from flowengine.cli.parsing.declared import arg, exits
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import STATUS_COLOURS, first_line, out_result, paint, results
from flowengine.engines.flows import load as load_here
from flowengine.engines.infos import Difference, Parting, Side, StepPair
from flowengine.flow.export.definition import definition
from flowengine.flow.export.yaml_text import inline
from flowengine.sdk.texts.visible_text import printable

SAME, DIFFER = 0, 1
WIDTH = 80
NAME = 20
COLUMN = (WIDTH - NAME - 4) // 2
MOST = 30
"""How many further steps are printed."""


@session_command(
    "compare two executions, where their histories diverge, or the definitions of two flows",
    """\
flowengine diff 01k8xq7mf4jb 01k8xq9z63ch
flowengine diff report@1 report@2
flowengine diff report report.yaml""",
    exits(f"{SAME} if they are the same, {DIFFER} if not"),
    arg("execution ID|FLOW", "an execution, or a flow: a file, or a deployed one as ID@VERSION"),
    arg("other_execution OTHER", "the one to compare it with. Beside a flow, ID is a flow, too"),
)
def diff_command(session: CliSession, arguments: Namespace) -> int:
    """Compare them.

    Returns:
        The exit code: 0 if they are the same, 1 if not.
    """
    names = arguments.execution, arguments.other_execution
    if any(map(_is_flow, names)):
        texts, hashes = zip(*(_defined(session, name) for name in names), strict=True)
        before, after = (text.splitlines() for text in texts)
        lines = list(unified_diff(before, after, *names, lineterm=""))
        out_result(arguments, {"same": not lines, "hashes": hashes, "lines": lines}, lines)
        return DIFFER if lines else SAME
    difference = session.engine.executions.diff(*names)
    out_result(arguments, difference, _lines(session, difference))
    return SAME if difference["same"] else DIFFER


def _is_flow(name: str) -> bool:
    """Return whether a name cannot be that of an execution."""
    is_file = name.endswith((".yaml", ".yml")) or os.path.isfile(name) or names_python(name)
    return is_file or "@" in name


def _defined(session: CliSession, name: str) -> tuple[str, str]:
    """Return the definition and hash of a deployed flow, which a server may have, or of a file."""
    if session.is_served and is_deployed(name):
        client: Any = session.engine
        found = client.flows.definition(name)
        return found["definition"], found["hash"]
    flow = load_here(name) if session.is_served else load(session, name)
    return definition(flow.compiled), flow.form


def _lines(session: CliSession, difference: Difference) -> Iterator[str]:
    yield _side(session, "left", difference["left"])
    yield _side(session, "right", difference["right"])
    if not difference["same_flow"]:
        hashes = " and ".join(difference[side]["hash"][:8] for side in ("left", "right"))
        yield _fact("flow", f"they run different definitions ({hashes})")
    yield from _origin(session, difference)
    counts = f"of {difference['left']['facts']} and {difference['right']['facts']}"
    yield _fact("in common", f"the first {difference['shared']} {counts} history entries")
    point = difference["parting"]
    if point is not None:
        yield from _parting(difference, point)
    further = [
        pair for pair in difference["steps"] if point is None or point["address"] != pair["address"]
    ]
    yield from _further(further, difference.get("more_steps", 0))
    for name in ("inputs", "outputs", "errors"):
        if difference[name]:
            yield name
            yield from _columns(difference[name])
    yield "the same" if difference["same"] else "they differ"


def _side(session: CliSession, name: str, side: Side) -> str:
    version = f" version {side['version']}" if side["version"] not in ("", "0") else ""
    status = paint(f"{side['status']:10}", STATUS_COLOURS.get(side["status"]), results())
    flow = printable(f"{side['flow']}{version}")
    return f"{name:11} {session.short(side['execution'])}  {status} {first_line(flow, 40)}"


def _origin(session: CliSession, difference: Difference) -> Iterator[str]:
    fork = difference["fork"]
    if fork is not None:
        other = "right" if fork["side"] == "left" else "left"
        alike = "the same in both" if fork["same"] else "NOT the same in both"
        yield _fact("fork", f"{fork['side']} was forked from {other} at {fork['at']}")
        yield _fact("", f"the {fork['past']} history entries copied from it are {alike}")
        return
    for side in ("left", "right"):
        origin = session.origin(difference[side]["forked_from"])
        if origin:
            yield _fact("fork", f"{side} was forked from {origin}")


def _parting(difference: Difference, point: Parting) -> Iterator[str]:
    """Yield the point where the histories diverge, and input and output of the step there."""
    where = f" of {point['address']}" if point["address"] else ""
    yield _fact("diverge", f"at the {point['what']}{where}")
    for side, one in (("left", point["left"]), ("right", point["right"])):
        if one is None:
            stands = (difference["left"] if side == "left" else difference["right"])["status"]
            yield _fact("", f"missing on the {side}, where the execution is {stands}")
        elif one["address"] != point["address"]:
            yield _fact("", f"on the {side} {one['address']} came instead")
    pair = next((step for step in difference["steps"] if step["address"] == point["address"]), None)
    if pair is None:
        yield from _values(point["left"], point["right"])
    else:
        yield from _values(pair["left"], pair["right"])
    differ = point["differ"] if pair is None else pair["differ"]
    nested = [place for place in differ if "." in place["path"] or "[" in place["path"]]
    if nested:
        yield "where"
        yield from _columns(nested)


def _values(left: dict[str, Any] | None, right: dict[str, Any] | None) -> Iterator[str]:
    """Yield input and output of a step on both sides."""
    yield f"  {'':{NAME}}{'left':{COLUMN}}  right"
    for key in dict.fromkeys([*(left or ()), *(right or ())]):
        if key in ("seq", "address"):
            continue
        a, b = (None if point is None else point.get(key) for point in (left, right))
        if a is not None or b is not None:
            yield from _row(key, left and key in left, a, right and key in right, b)


def _columns(places: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the places where two values differ."""
    yield f"  {'':{NAME}}{'left':{COLUMN}}  right"
    for place in places:
        name = place["path"] or "value"
        yield from _row(name, "left" in place, place.get("left"),
                        "right" in place, place.get("right"))  # fmt: skip


def _row(name: str, has_left: Any, left: Any, has_right: Any, right: Any) -> Iterator[str]:
    """Yield two values side by side. Wide ones are below each other, cut where they differ."""
    a = _text(left) if has_left else "-"
    b = _text(right) if has_right else "-"
    name = first_line(name, WIDTH - 4)
    if max(len(a), len(b)) <= COLUMN and len(name) < NAME:
        yield f"  {name:{NAME}}{a:{COLUMN}}  {b}".rstrip()
        return
    yield f"  {name}"
    if a == b:
        yield f"    same    {_cut(a, 0)}"
        return
    part = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    part = part or min(len(a), len(b)) * a.startswith(b[:1] or "-")
    yield f"    left    {_cut(a, part)}"
    yield f"    right   {_cut(b, part)}"


def _text(value: Any) -> str:
    return printable(inline(value))


def _cut(text: str, part: int) -> str:
    """Return the part of a text around where it differs from another, as long as fits."""
    room = WIDTH - 12
    if len(text) <= room:
        return text
    begin = max(0, min(part - room // 3, len(text) - room + 1))
    head = "…" if begin else ""
    shown = text[begin : begin + room - len(head)]
    return head + (shown[:-1] + "…" if begin + len(shown) < len(text) else shown)


def _further(pairs: list[StepPair], more: int) -> Iterator[str]:
    """Yield the other steps that differ, one line each. More are not among them."""
    if not pairs:
        return
    yield "other steps that differ"
    width = min(40, max(len(pair["address"]) for pair in pairs))
    for pair in pairs[:MOST]:
        sides = (pair["left"], pair["right"])
        a, b = ("-" if step is None else str(step["status"]) for step in sides)
        where = ", ".join(
            dict.fromkeys(difference["path"].split(".")[0] for difference in pair["differ"])
        )
        why = f"  {where}" if a == b and where else ""
        address = printable(pair["address"])
        if len(address) > width:
            address = f"{address[: width - 1]}…"
        yield f"  {address:{width}}  {a:11} {b:11}{why}"[:WIDTH].rstrip()
    if len(pairs) > MOST:
        shows = "--json shows the first of them" if more else "--json shows all"
        yield f"  … and {len(pairs) - MOST + more} more: {shows}"


def _fact(name: str, value: str) -> str:
    return f"{name:11} {first_line(value, WIDTH - 12)}"
