"""Read-only data: no operation changes the original."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from flowengine.sdk.values.read_only import Joined, read_only, unwrapped
from tests.rows import each_row

DATA = {"list": [{"a": [1, 2]}, [3]], "map": {"b": {"c": 4}}, "text": "x"}

# ruff: noqa: RUF015, PLW0108 - each way of reading is written out on purpose

WAYS: dict[str, Callable[[Any], Any]] = {
    "index": lambda d: d["list"][0]["a"],
    "get": lambda d: d.get("list")[0].get("a"),
    "slice": lambda d: d["list"][:1][0]["a"],
    "iteration": lambda d: next(iter(d["list"]))["a"],
    "reversed": lambda d: next(iter(reversed(d["list"]))),
    "values": lambda d: next(iter(d.values()))[0]["a"],
    "items": lambda d: next(iter(d.items()))[1][0]["a"],
    "a dict of it": lambda d: dict(d)["list"][0]["a"],
    "its copy": lambda d: d.copy()["list"][0]["a"],
    "copy.copy": lambda d: copy.copy(copy.copy(d)["list"])[0]["a"],
    "unpacked": lambda d: {**d}["list"][0]["a"],
    "or": lambda d: (d | {})["list"][0]["a"],
    "or from the right": lambda d: ({} | d)["list"][0]["a"],
    "a list of it": lambda d: list(d["list"])[0]["a"],
    "a sorted list": lambda d: sorted(d["list"], key=str)[0],
    "list unpacked": lambda d: [*d["list"]][0]["a"],
    "list added": lambda d: (d["list"] + [])[0]["a"],
    "list added from the left": lambda d: ([*[]] + d["list"])[0]["a"],
    "list added to another": lambda d: _added(d["list"])[0]["a"],
    "list put into another": lambda d: _put(d["list"])[0]["a"],
    "tuple": lambda d: tuple(d["list"])[0]["a"],
    "dict updated": lambda d: _updated(d)["list"][0]["a"],
    "first of several": lambda d: _first(*d["list"])["a"],
    "pattern": lambda d: _matched(d["list"]),
    "list times": lambda d: (d["list"] * 2)[0]["a"],
    "list extended": lambda d: _extended(d["list"])[0]["a"],
    "map inside": lambda d: d["map"]["b"],
}


def _added(items: list[Any]) -> list[Any]:
    new: list[Any] = []
    new += items
    return new


def _put(items: list[Any]) -> list[Any]:
    new: list[Any] = []
    new[:] = items
    return new


def _updated(data: dict[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    new.update(data)
    return new


def _first(item: Any, *_: Any) -> Any:
    return item


def _matched(items: Any) -> Any:
    match items:
        case [{"a": found}, *_]:
            return found


def _extended(items: list[Any]) -> list[Any]:
    new: list[Any] = []
    new.extend(items)
    return new


def spoil(value: Any) -> None:
    """Change a list or dict directly, without its overridden methods."""
    if isinstance(value, list):
        list.append(value, "spoilt")
    else:
        dict.__setitem__(value, "spoilt", True)


@each_row("way", WAYS)
def test_no_way_leads_to_the_original(way: str) -> None:
    original = copy.deepcopy(DATA)

    spoil(WAYS[way](read_only(original)))

    assert original == DATA


def test_joined_lists_read_as_one() -> None:
    joined = Joined([1], [2, 3])

    assert [*joined] == [*reversed(joined)][::-1] == [*unwrapped(joined)] == [1, 2, 3]
    assert (joined[0], joined[-1], joined[::2], len(joined)) == (1, 3, [1, 3], 3)
    with pytest.raises(IndexError):
        joined[3]


CHANGES: list[Callable[[Any], Any]] = [
    lambda d: d.update(a=1),
    lambda d: d.pop("list"),
    lambda d: d.setdefault("new", 1),
    lambda d: d.__setitem__("list", 1),
    lambda d: d.__delitem__("list"),
    lambda d: d.clear(),
    lambda d: d["list"].append(1),
    lambda d: d["list"].sort(),
    lambda d: d["list"].__setitem__(0, 1),
    lambda d: d["list"].__iadd__([1]),
    lambda d: d["list"][0]["a"].pop(),
    lambda d: d["map"]["b"].update(c=5),
]


@each_row("change", CHANGES)
def test_a_change_is_refused(change: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"read-only here: change a copy\.deepcopy"):
        change(read_only(copy.deepcopy(DATA)))


@each_row(
    "plain",
    [
        lambda value: copy.deepcopy(value),
        lambda value: pickle.loads(pickle.dumps(value)),
        lambda value: json.loads(json.dumps(value)),
        lambda value: msgpack.unpackb(msgpack.packb(value)),
    ],
)
def test_it_is_real_data(plain: Callable[[Any], Any]) -> None:
    seen = read_only(DATA)

    assert isinstance(seen, dict)
    assert isinstance(seen["list"], list)
    assert seen == DATA
    assert plain(seen) == DATA
    assert type(plain(seen)) is dict
    assert type(plain(seen)["list"][0]) is dict
