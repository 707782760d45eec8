"""`NamedTuple` for the modules that most starts of the program load.

It is `typing.NamedTuple` to a type checker, and its classes behave the same. For each class,
`collections.namedtuple` compiles a constructor and formats texts, and `typing.NamedTuple` also
resolves the annotations. That took a quarter of a start: 0.4 to 1 million instructions for a class
of five fields, of which 0.1 million are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - for the modules that import it
else:
    from collections import _tuplegetter
    from types import FunctionType

    _CONSTRUCTORS: dict[int, Any] = {}
    """Number of fields → the code of a constructor, whose arguments are not named yet."""

    class _Named(tuple):
        """What all named tuples have in common. See `collections.namedtuple`."""

        __slots__ = ()
        _fields = ()
        _field_defaults: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, /, **changes):
            made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = ", ".join(map("{}={!r}".format, self._fields, self))
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    class _Meta(type):
        """Makes a named tuple of a class whose base is `NamedTuple`."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            first = len(fields) - len(defaults)
            if tuple(defaults) != fields[first:]:
                raise TypeError(f"{name}: a field without a default follows one with a default")
            body |= {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            code = _constructor(len(fields)).replace(co_varnames=("_cls", *fields))
            make = FunctionType(code, _GLOBALS, "__new__", tuple(defaults.values()))
            make.__qualname__ = f"{name}.__new__"
            body |= {
                "__slots__": (),
                "__new__": make,
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(name, (_Named,), body)

    def _constructor(count: int) -> Any:
        code = _CONSTRUCTORS.get(count)
        if code is None:
            fields = "".join(f"_{at}, " for at in range(count))
            made = eval(f"lambda _cls, {fields}: _make(_cls, ({fields}))")
            code = _CONSTRUCTORS[count] = made.__code__
        return code

    _GLOBALS = {"_make": tuple.__new__, "__builtins__": {}, "__name__": __name__}
    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})
