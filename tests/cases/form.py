"""Files of cases, `NAME.cases.yaml`: flows, and what each does (docs/contributing/testing.md).

What happens outside is either a script, as in the public format (docs/testing.md), or a list of
operations on an engine, under `do`. Only the runner reads the other keys.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from flowengine.flow.cases import parse_cases
from flowengine.flow.models.cases import Case
from tests.cases.matching import Loader, Map, Tag

SUFFIX = ".cases.yaml"
SCRIPTED = ("simulator", "player", "engine", "crash")
"""How a case with a script is played."""
OPERATED = ("engine", "crash", "temporal")
"""How a case with operations is played."""
HEAD = "flowengine: 1\nid: flow\n"
OWN = (
    *("name", "about", "flow", "fill", "columns", "each", "except", "files", "refused", "warns"),
    "seldom",
)
"""Keys of a case that only the runner reads."""
OF_SCRIPTS = ("time", "calls", "then")
"""Those of a case with a script."""
OF_OPERATIONS = ("do", "settings", "rules", "env", "engine", "engines", "change")
"""Those of a case with operations."""
MERGED = ("files", "groups", "except", "fill")
"""Keys of a file to whose value that of a case is added. It takes the place of others."""
NAME = re.compile(r"<(\w+)>")
Calls = list[list[tuple[str, str | None]]]
"""Addresses of calls in the order in which they begin, those of one group in any order, each with
the time since the beginning if it matters."""


class Follow(NamedTuple):
    """What an operator does once the execution has ended, and what follows from it."""

    action: str
    """`retry` or `fork`."""
    step: str | None
    case: Case
    """What happens outside from then on, and what is expected."""
    calls: Calls | None


class Played(NamedTuple):
    """A case to play, of which a table has one for each row."""

    id: str
    told: Map
    """What the file says about it."""
    flow: str | None
    files: dict[str, str]
    case: Case
    """What happens outside, if it is a script."""
    do: list[Any]
    """Operations from outside, if it is none."""
    plays: tuple[str, ...]
    races: bool
    """Whether calls last any time, so that timers may fire before their ends."""
    calls: Calls | None
    then: list[Follow]
    refused: Any
    """Parts of the errors of the flow, if it is checked only."""
    warns: Any
    """Codes of the warnings of the flow, if it is checked only."""

    def line(self, loc: tuple[Any, ...] = ()) -> int:
        """Return the line of a part of the case, or of what is around it."""
        value: Any = self.told
        line = self.told.line
        for part in loc:
            value = value.get(part) if isinstance(value, Mapping) else None
            line = getattr(value, "line", line)
        return line


def read_cases(path: Path) -> list[Played]:
    """Read a file of cases."""
    whole = yaml.load(path.read_text(encoding="utf-8"), Loader)
    flows = whole.pop("flows", {})
    cases = whole.pop("cases")
    whole.pop("about", None)
    found: list[Played] = []
    for given in cases:
        for row, label in _rows(given):
            told = Map(
                (key, value)
                for key, value in {**whole, **given}.items()
                if key not in ("each", "columns")
            )
            for key in MERGED:
                told[key] = {**whole.get(key, {}), **given.get(key, {})}
            fill = {**filled(told["fill"], row), **filled(row, told["fill"])}
            fill = filled(fill, fill)
            told = filled(told, fill)
            told.line = given.line
            told["name"] += label
            try:
                found.append(_played(flows, told, fill))
            except Exception as error:
                raise ValueError(f"{path}:{told.line}: {told['name']}: {error}") from error
    names = [one.id for one in found]
    double = {name for name in names if names.count(name) > 1}
    if double:
        raise ValueError(f"{path}: two cases have the name {', '.join(sorted(double))}")
    return found


def _rows(given: Map) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the rows of a table, each with what it adds to the name. No table: one empty row."""
    if "each" not in given:
        yield {}, ""
    for number, row in enumerate(given.get("each", ()), start=1):
        told = row if isinstance(row, Mapping) else dict(zip(given["columns"], row, strict=True))
        yield told, f" [{told.get('row', _label(told, number))}]"


def _label(row: Mapping[str, Any], number: int) -> str:
    """Return the name of a row: its number, and its first value if that is short."""
    text = text_of(next(iter(row.values())))
    short = text and len(text) <= 40 and "\n" not in text
    return f"{number}: {text}" if short else str(number)


def _played(flows: Mapping[str, str], told: Map, fill: Mapping[str, Any]) -> Played:
    named: Any = told.get("flow") or next(iter(flows), None)
    flow = filled(flows.get(named, named) if isinstance(named, str) else named, fill)
    if isinstance(flow, Mapping):
        flow = json.dumps({"flowengine": 1, "id": "flow", **flow})
    if flow is not None and not flow.lstrip().startswith("flowengine:"):
        flow = flow if '"flowengine": 1' in flow else HEAD + flow
    own = {*OWN, *(OF_OPERATIONS if "do" in told else OF_SCRIPTS)}
    case = _public({"name": told["name"], **{key: told[key] for key in told if key not in own}})
    follows = [_follow(each) for each in told.get("then", ())]
    ways: tuple[str, ...] = OPERATED if "do" in told else SCRIPTED
    if "refused" in told or "warns" in told:
        ways = ("check",)
    elif case.operator:
        ways = ("player",)
    elif follows:
        ways = ("engine", "crash")
    but = {way for way, reason in told["except"].items() if reason is not None}
    if unknown := but - set(ways):
        raise ValueError(f"it is not played in {', '.join(unknown)}, but in {', '.join(ways)}")
    plays = tuple(way for way in ways if way not in but)
    return Played(
        id=told["name"],
        told=told,
        flow=flow,
        files=told["files"],
        case=case,
        do=told.get("do", []),
        plays=plays,
        races=told.get("time") == "races",
        calls=_grouped(told.get("calls")),
        then=follows,
        refused=told.get("refused"),
        warns=told.get("warns"),
    )


def _follow(given: Mapping[str, Any]) -> Follow:
    [action] = {"retry", "fork"} & set(given)
    step = given[action] if isinstance(given[action], str) else None
    own = {key: value for key, value in given.items() if key not in {"retry", "fork", "calls"}}
    return Follow(action, step, _public({"name": action, **own}), _grouped(given.get("calls")))


def _grouped(calls: list[Any] | None) -> Calls | None:
    if calls is None:
        return None
    groups: list[Any] = [[one] if isinstance(one, str) else one for one in calls]
    return [
        sorted(one.items() if isinstance(one, Mapping) else ((address, None) for address in one))
        for one in groups
    ]


def _public(given: Mapping[str, Any]) -> Case:
    """Return a case as the public format reads it."""
    return parse_cases(json.dumps({"cases": [given]})).cases[0]


def places(folder: Path) -> dict[str, str]:
    """Return what stands in the places of `<HERE>`, `<PYTHON>` and `<TESTS>`."""
    tests = Path(__file__).parents[1]
    return {"HERE": str(folder), "PYTHON": sys.executable, "TESTS": str(tests)}


def filled(value: Any, row: Mapping[str, Any]) -> Any:
    """Return a value in which `<NAME>` is replaced by the row's value of that name."""
    match value:
        case str():
            whole = NAME.fullmatch(value)
            if whole and whole[1] in row:
                return row[whole[1]]
            return NAME.sub(lambda name: text_of(row.get(name[1], name[0])), value)
        case Tag():
            return Tag(value.name, filled(value.value, row))
        case Mapping():
            done = Map({filled(key, row): filled(one, row) for key, one in value.items()})
            done.line = getattr(value, "line", 0)
            return done
        case list():
            return [filled(one, row) for one in value]
    return value


def text_of(value: Any) -> str:
    """Return a value as it is written in a text."""
    return value if isinstance(value, str) else json.dumps(value)
