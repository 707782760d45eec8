"""What cases in YAML expect: values, and tags for what is not said in full."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml

EXACT = ("outputs", "edits", "subject")
"""Keys of views whose mappings must have no other names. `!part` allows them."""
SHORT = ("address", "status")
"""Keys of views for which a text may stand."""


class Map(dict[Any, Any]):
    """A mapping of a case, with its line."""

    line = 0


class Tag:
    """A value with a tag, such as `!part`."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"!{self.name} {self.value!r}"


class Loader(yaml.CSafeLoader):
    """Reads cases: mappings have lines, any tag is a `Tag`, and words and dates are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the library has it
        first: [
            (tag, pattern)
            for tag, pattern in found
            if not tag.endswith(":timestamp") and (not tag.endswith(":bool") or first in "tfTF")
        ]
        for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _mapping(loader: Loader, node: yaml.MappingNode) -> Iterator[Map]:
    found = Map()
    found.line = node.start_mark.line + 1
    yield found
    found.update(loader.construct_mapping(node, deep=True))
    assert len(found) == len(node.value), f"line {found.line}: a key stands twice"


def _tag(loader: Loader, name: str, node: yaml.Node) -> Tag:
    if isinstance(node, yaml.ScalarNode):
        implied = loader.resolve(  # type: ignore[no-untyped-call]
            yaml.ScalarNode, node.value, (not node.style, bool(node.style))
        )
        plain_node = yaml.ScalarNode(implied, node.value, node.start_mark, node.end_mark)
        return Tag(name, loader.construct_object(plain_node, deep=True))
    if isinstance(node, yaml.SequenceNode):
        return Tag(name, [loader.construct_object(one, deep=True) for one in node.value])
    found = Map(loader.construct_mapping(node, deep=True))  # type: ignore[arg-type]
    found.line = node.start_mark.line + 1
    return Tag(name, found)


Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
Loader.add_multi_constructor("!", _tag)


def plain(value: Any) -> Any:
    """Return what an engine gave as data. A decision has also what its result has."""
    match value:
        case tuple() if hasattr(value, "_asdict"):
            found = {name: plain(one) for name, one in value._asdict().items()}
            result = found.get("result")
            return {**result, **found} if isinstance(result, Mapping) else found
        case Mapping():
            return {key: plain(one) for key, one in value.items()}
        case str() | bytes() | int() | float() | None:
            return value
        case Iterable():
            return [plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def differences(expected: Any, found: Any, at: str, *, exact: bool = False) -> Iterator[str]:
    """Yield how a value differs from what is expected.

    Args:
        expected: A value, in which mappings may have tags.
        found: The value.
        at: Its place.
        exact: Whether its mappings have no other keys.
    """
    match expected:
        case Tag():
            yield from TAGS[expected.name](expected.value, found, at or "it")
        case Mapping() if isinstance(found, Mapping):
            yield from _of_mappings(expected, found, at, exact=exact)
        case list() if isinstance(found, list):
            if len(expected) != len(found):
                yield f"{at}: expected {len(expected)} values, {expected!r}, found {short(found)}"
                return
            for number, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from differences(one, other, f"{at}[{number}]", exact=exact)
        case str() if isinstance(found, Mapping) and not exact:
            name = next((name for name in SHORT if name in found), "")
            if found.get(name) != expected:
                yield f"{at}: expected {expected!r}, found {short(found)}"
        case _:
            if expected != found or isinstance(expected, bool) != isinstance(found, bool):
                yield f"{at or 'it'}: expected {expected!r}, found {short(found)}"


def _of_mappings(expected: Any, found: Any, at: str, *, exact: bool) -> Iterator[str]:
    for key, one in expected.items():
        place = f"{at}.{key}" if at else str(key)
        if isinstance(one, Tag) and one.name == "absent":
            if key in found:
                yield f"{place}: expected none, found {found[key]!r}"
        elif key not in found:
            yield f"{place}: expected {one!r}, and there is none in {short(found)}"
        else:
            yield from differences(one, found[key], place, exact=exact or key in EXACT)
    if exact and (more := found.keys() - expected.keys()):
        yield f"{at}: expected no {', '.join(map(str, more))} in {short(found)}"


def is_like(expected: Any, found: Any) -> bool:
    """Return whether a value is as expected."""
    return not [*differences(expected, found, "")]


def _part(value: Any, found: Any, at: str) -> Iterator[str]:
    """`!part`: texts that a value has in whatever form, or some keys of a mapping."""
    if isinstance(value, Mapping):
        yield from _of_mappings(value, found, at, exact=False)
        return
    for one in value if isinstance(value, list) else [value]:
        if str(one) not in str(found):
            yield f"{at}: expected {one!r} in {short(found)}"


def _without(value: Any, found: Any, at: str) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if str(one) in str(found):
            yield f"{at}: expected no {one!r} in {short(found)}"


def _re(value: Any, found: Any, at: str) -> Iterator[str]:
    if not re.search(value, str(found), re.DOTALL):
        yield f"{at}: expected {value!r} to match {short(found)}"


def _some(value: Any, found: Any, at: str) -> Iterator[str]:
    """`!some`: for each of these, one of a list is like it."""
    for one in value if isinstance(value, list) else [value]:
        if not any(is_like(one, each) for each in found):
            yield f"{at}: expected one like {one!r} in {short(found)}"


def _none(value: Any, found: Any, at: str) -> Iterator[str]:
    """`!none`: no one of a list is like any of these."""
    for one in value:
        if like := [each for each in found if is_like(one, each)]:
            yield f"{at}: expected none like {one!r}, found {short(like)}"


def _set(value: Any, found: Any, at: str) -> Iterator[str]:
    """`!set`: these, in any order."""
    left = list(found)
    for one in value:
        like = next((each for each in left if is_like(one, each)), None)
        if like is None:
            yield f"{at}: expected {one!r} in {short(found)}"
        else:
            left.remove(like)
    if left:
        yield f"{at}: expected no {short(left)}"


def _distinct(value: Any, found: Any, at: str) -> Iterator[str]:
    """`!distinct`: a list that begins with these, in which nothing stands twice."""
    if found[: len(value)] != value or len(set(found)) != len(found):
        yield f"{at}: expected {value!r} first and nothing twice, found {short(found)}"


def _not(value: Any, found: Any, at: str) -> Iterator[str]:
    if is_like(value, found):
        yield f"{at}: expected another value than {short(found)}"


def _len(value: Any, found: Any, at: str) -> Iterator[str]:
    if len(found) != value:
        yield f"{at}: expected {value} of them, found {len(found)}: {short(found)}"


def _exact(value: Any, found: Any, at: str) -> Iterator[str]:
    yield from differences(value, found, at, exact=True)


def _any(_: Any, found: Any, at: str) -> Iterator[str]:
    if found is None:
        yield f"{at}: expected a value"


TAGS: Mapping[str, Callable[[Any, Any, str], Iterator[str]]] = {
    "part": _part,
    "without": _without,
    "re": _re,
    "some": _some,
    "none": _none,
    "set": _set,
    "distinct": _distinct,
    "not": _not,
    "len": _len,
    "exact": _exact,
    "any": _any,
}
"""Tags of values. `!absent` is one of keys."""


def short(value: Any) -> str:
    """Return a value as text of bounded length."""
    text = repr(value)
    return text if len(text) < 1500 else f"{text[:1500]}..."
