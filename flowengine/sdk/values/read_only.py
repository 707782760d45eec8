"""Read-only views of plain data: real dicts and lists whose contents are wrapped on access.

Each is a shallow copy of its container, and returns inner containers wrapped as well. Changes to a
view therefore never reach the original, and only accessed parts are copied. Methods by which
CPython would return the inner containers of a `dict` or `list` directly are overridden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

# Overridden methods refuse, so their types differ from the base class on purpose.
# mypy: disable-error-code="override,misc"


def read_only(value: Any) -> Any:
    """Return a read-only view of a dict or list, and any other value unchanged."""
    if type(value) is dict:
        return ReadOnlyDict(value)
    return ReadOnlyList(value) if type(value) is list else value


def plain(value: Any) -> Any:
    """Return a copy that may be changed, of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in dict.items(value)}
    return [plain(item) for item in list.__iter__(value)] if isinstance(value, list) else value


def unwrapped(values: Iterable[Any]) -> Iterator[Any]:
    """Iterate over items without wrapping them, for a quick look at many.

    Args:
        values: Read-only or not. The caller must not change the items.

    Returns:
        The items themselves.
    """
    if isinstance(values, Joined):
        return chain(values.first, values.rest)
    return list.__iter__(values) if isinstance(values, list) else iter(values)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("state is read-only here: change a copy.deepcopy() of it")


class ReadOnlyDict(dict[str, Any]):
    """A dict that is read-only at every depth."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return read_only(super().__getitem__(key))

    def __iter__(self) -> Iterator[str]:  # so that dict() and ** take items from here
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, read-only."""
        return read_only(super().get(key, default))

    def values(self) -> Any:
        """Return the values, read-only."""
        return [read_only(item) for item in super().values()]

    def items(self) -> Any:
        """Return the items, the values read-only."""
        return [(key, read_only(item)) for key, item in super().items()]

    def copy(self) -> Any:
        """Return a dict of the values, which are read-only."""
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, _memo: object) -> Any:
        return plain(self)

    def __reduce_ex__(self, _protocol: object) -> Any:
        return dict, (plain(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class ReadOnlyList(list[Any]):
    """A list that is read-only at every depth."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        return read_only(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        return map(read_only, super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return map(read_only, super().__reversed__())

    def copy(self) -> Any:
        """Return a list of the items, which are read-only."""
        return [*self]

    def __add__(self, other: Any) -> Any:
        return self.copy() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.copy()

    def __mul__(self, times: Any) -> Any:
        return self.copy() * times

    __rmul__ = __mul__

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, _memo: object) -> Any:
        return plain(self)

    def __reduce_ex__(self, _protocol: object) -> Any:
        return list, (plain(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse


class Joined(Sequence[Any]):
    """Two lists one after the other, read-only. Unlike the other views, it does not copy them."""

    __slots__ = ("first", "rest")

    def __init__(self, first: list[Any], rest: list[Any]) -> None:
        self.first = first
        self.rest = rest

    def __len__(self) -> int:
        return len(self.first) + len(self.rest)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        before = len(self.first)
        return read_only(self.first[place] if place < before else self.rest[place - before])

    def __iter__(self) -> Iterator[Any]:
        return map(read_only, chain(self.first, self.rest))

    def __reversed__(self) -> Iterator[Any]:
        return map(read_only, chain(reversed(self.rest), reversed(self.first)))
