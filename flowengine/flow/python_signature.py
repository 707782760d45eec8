"""What a Python function takes and gives, read from its source without importing it."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.kernel.graph import Plain


class SignatureError(Exception):
    """The function or its signature cannot be read.

    Args:
        message: What is wrong.
        hint: What to do.
        line: Line in the module, if the module was found.
    """

    def __init__(self, message: str, *, hint: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line


class Signature(NamedTuple):
    """A function as a flow sees it."""

    description: str
    """First paragraph of the docstring, or empty."""
    args: dict[str, Plain]
    """JSON Schema of an object: a property per parameter, closed unless it takes `**kwargs`."""
    returns: dict[str, Plain] | None
    """JSON Schema of the result; None: not said."""
    is_async: bool
    quick: bool
    """Marked with `@flowengine.quick`."""
    resources: list[str]
    """Parameters that environments can be given to by name: all that have no annotation of data."""
    takes_resources: bool
    """It has a parameter `runtime_resources`."""
    path: str | None
    """The module's file, absolute; None: it has no source, so nothing is known of its types."""


def derive(function: str, folder: str) -> Signature:
    """Read the signature of a function from its module's source.

    Args:
        function: `package.module:function`, or `package.module:Class.method`.
        folder: Folder of the flow file: modules there come first.

    Returns:
        What it takes and gives.

    Raises:
        SignatureError: There is no such module or function, it has a syntax error, or a parameter
            cannot be given by name.
    """
    raise SignatureError(f"cannot read {function} in {folder}")
