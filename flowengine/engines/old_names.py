"""Names that a later version no longer has: they work, and warn with the new name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import deprecated
else:
    deprecated = lambda text: lambda method: method  # noqa: E731 - only type checkers read it

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def warn_renamed(old: str, new: str, *, above: int = 1) -> None:
    """Warn the caller of the function that calls this.

    Args:
        old: The old name.
        new: The new name.
        above: Number of functions between the caller and this.
    """
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2 + above)


class Renamed(Generic[_Args, _Result]):
    """The old name of a method that is now in a group.

    Args:
        group: Name of the group.
        method: The method.

    Attributes:
        group: Name of the group.
        name: Name of the method in it.
    """

    def __init__(self, group: str, method: Callable[Concatenate[Any, _Args], _Result]) -> None:
        self.group = group
        self.name = method.__name__
        self._old = ""
        self.__doc__ = f"Deprecated: call `{group}.{self.name}`."

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the old name."""
        self._old = name

    @overload
    def __get__(self, owner: None, of: type) -> Self: ...
    @overload
    @deprecated("it is now in a group: see the documentation of the class")
    def __get__(self, owner: object, of: type) -> Callable[_Args, _Result]: ...
    def __get__(self, owner: object | None, of: type) -> Any:
        """Return the method of an object, and warn."""
        if owner is None:
            return self
        name = of.__name__
        warn_renamed(f"{name}.{self._old}", f"{name}.{self.group}.{self.name}")
        return getattr(getattr(owner, self.group), self.name)
