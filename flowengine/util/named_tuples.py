"""`NamedTuple` for the modules that most starts of the program load.

It is `typing.NamedTuple` to a type checker, and its classes behave the same, except that their
annotations are not resolved, which takes a twelfth of a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - for the modules that import it
else:
    from collections import namedtuple

    class _Meta(type):
        """Makes a named tuple of a class whose base is `NamedTuple`."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key not in {"__dict__", "__module__", "__slots__"}:
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})
